"""A server process whose time of day a test sets, by a library that is loaded before all others."""

import functools
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

SOURCE = Path(__file__).with_name("moved_clock.c")


@functools.cache
def library() -> Path | None:
    """Compiles the library; None where no compiler is, or it cannot be preloaded."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    made = Path(tempfile.mkdtemp()) / "moved_clock.so"
    done = subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", made, SOURCE, "-ldl"], check=False)
    return made if done.returncode == 0 else None


class MovedClock:
    """By how much the time of day of a process is off."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.move(timedelta())

    @property
    def environ(self) -> Mapping[str, str]:
        """Variables of the process, which has to be a new interpreter."""
        return {"LD_PRELOAD": str(library()), "TURNWIRE_TEST_CLOCK": str(self._file)}

    def move(self, by: timedelta) -> None:
        """Sets how far the time is ahead of the right one, at once and for all who read it."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("<q", int(by.total_seconds())))
