"""`turnwire serve` as a person starts it, for programs that connect to it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "listening on "


def announced_address(lines: Iterable[str]) -> str:
    """Returns the address that a starting server prints. A busy machine may make it log something before."""
    others = []
    for line in lines:
        if line.startswith(_PREFIX):
            return line.removeprefix(_PREFIX).strip()
        others.append(line)
    raise AssertionError(f"the server ended: {''.join(others)}")


@contextmanager
def serving(folder: Path, configuration: str = "") -> Iterator[str]:
    """Runs `turnwire serve` in an empty folder; its address."""
    (folder / "turnwire.toml").write_text(configuration)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TURNWIRE_")}
    command = [sys.executable, "-m", "turnwire", "serve", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        yield announced_address(process.stderr)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=200)
