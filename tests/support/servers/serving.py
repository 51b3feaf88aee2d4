"""`turnwire serve` as a person starts it, for programs that connect to it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving(folder: Path, configuration: str = "") -> Iterator[str]:
    """Runs `turnwire serve` in an empty folder; its address."""
    (folder / "turnwire.toml").write_text(configuration)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
    command = [sys.executable, "-m", "turnwire", "serve", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        line = process.stderr.readline()
        assert line.startswith("listening on "), line
        yield line.removeprefix("listening on ").strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
