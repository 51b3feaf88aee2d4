"""Control groups with a limit of memory, where this machine lets a test make them."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


class ControlGroup:
    """A control group of version 1 or 2. Make it with `control_group`."""

    def __init__(self, folder: Path, *, is_old: bool) -> None:
        """Takes its folder, and whether it is of version 1."""
        self._folder = folder
        self._is_old = is_old

    def limit(self, max_bytes: int) -> None:
        """Sets how much memory its processes may have together, files in the cache included."""
        (self._folder / ("memory.limit_in_bytes" if self._is_old else "memory.max")).write_text(str(max_bytes))

    @property
    def used_bytes(self) -> int:
        """Memory of its processes, in bytes."""
        return int((self._folder / ("memory.usage_in_bytes" if self._is_old else "memory.current")).read_text())

    @property
    def kills(self) -> int:
        """Number of processes that the kernel has killed for want of memory."""
        lines = (self._folder / ("memory.oom_control" if self._is_old else "memory.events")).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def started_in(self, *program: str) -> list[str]:
        """Returns the command that starts a program in the group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs"), *program]


@contextlib.contextmanager
def control_group() -> Iterator[ControlGroup | None]:
    """Makes a control group without a limit, and removes it, when its processes have ended; None where it may not."""
    is_old = not (ROOT / "cgroup.controllers").exists()
    folder = (ROOT / "memory" if is_old else ROOT) / f"turnwire-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        if is_old:
            folder.mkdir()
        elif "memory" in (ROOT / "cgroup.subtree_control").read_text().split():
            folder.mkdir()
            (folder / "memory.swap.max").write_text("0")
    except OSError:
        pass
    try:
        yield ControlGroup(folder, is_old=is_old) if (folder / "cgroup.procs").exists() else None
    finally:
        for _ in range(500):  # processes that were killed are in it for a moment
            try:
                folder.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)
            else:
                break
