"""Compares the memory of the process with its limit, and reports when too little is left for new work.

The measure is the memory that the process has from the machine (resident memory). `memory_limit` returns the lower one
of the configured limit and that of the control group; the shares below are shares of it.
"""

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import structlog

CHECK_SECONDS = 0.1
"""Interval between readings of the memory, which take some microseconds."""

HIGH_CHECK_SECONDS = 0.02
"""Interval while pressure is high and not yet critical: a flood of large requests can take a gigabyte in a second."""

EXHAUSTED_SHARE = 0.95
"""Memory is exhausted from this share of the limit on: new work may take memory before any is freed."""

CRITICAL_SHARE, RECOVERED_SHARE = 0.7, 0.65
"""Memory pressure is critical from the first share of the limit on, and until it is below the second one. The rest is
for work that arrives between two readings, and for work that was accepted before."""

HIGH_SHARE = 0.6
"""Memory pressure is high from this share of the limit on: caches are dropped, so that few callers have to be rejected.
"""

TRIM_SECONDS = 0.3
"""Minimum interval between cache evictions, each followed by a request to the allocator to return free memory."""

CGROUP_SHARE = 0.9
"""Share of the limit of a control group that is used: files in the page cache also count."""

_CGROUPS = Path("/sys/fs/cgroup")
_STATM = Path("/proc/self/statm")

log = structlog.get_logger()


class OnMemory(Protocol):
    """Receives the memory that is left, at each reading."""

    def __call__(self, room: int, *, is_critical: bool, is_exhausted: bool) -> None:
        """Called on the event loop.

        Args:
            room: Bytes that are left until memory is critical; negative beyond that.
            is_critical: Whether memory is critical, or was and has not recovered.
            is_exhausted: Whether memory is exhausted.
        """
        ...


class MemoryMonitor:
    """Reads the memory of this process at intervals: `start`, then `aclose`."""

    def __init__(
        self,
        max_bytes: int,
        on_look: OnMemory,
        give_up: Callable[[], None],
        read_bytes: Callable[[], int | None] | None = None,
    ) -> None:
        """Args:
        max_bytes: Memory limit of the process.
        on_look: Called at each reading.
        give_up: Called on the loop while there is little memory: drops what can be rebuilt.
        read_bytes: Returns the memory of the process, or None if the system does not report it; by default
            `resident_bytes`.
        """
        self._max_bytes = max_bytes
        self._on_look = on_look
        self._give_up = give_up
        self._read_bytes = read_bytes or resident_bytes
        self._task: asyncio.Task[None] | None = None
        self._trimming: asyncio.Future[None] | None = None
        """No reading waits for it: it takes long on a busy machine, and memory grows meanwhile."""
        self._trimmed_at = float("-inf")
        self.is_short = False
        self._resident = 0
        """Bytes at the last reading; 0 on systems that do not report them."""

    def start(self) -> None:
        """Starts the readings. On systems that do not report the memory of a process, each reading is 0."""
        self._task = asyncio.create_task(self._run(), name="memory monitor")

    async def aclose(self) -> None:
        """Stops. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._trimming is not None:
            await self._trimming

    def check(self) -> None:
        """Reads the memory once. Where it cannot be read, nothing changes."""
        if (resident := self._read_bytes()) is None:
            resident = self._resident
        self._resident = resident
        is_short = resident >= self._max_bytes * (RECOVERED_SHARE if self.is_short else CRITICAL_SHARE)
        has_changed, self.is_short = is_short != self.is_short, is_short
        if has_changed:
            name = "memory_short" if is_short else "memory_enough"
            log.warning(name, resident_bytes=resident, max_bytes=self._max_bytes)
        room = int(self._max_bytes * CRITICAL_SHARE) - resident
        self._on_look(room, is_critical=is_short, is_exhausted=resident >= self._max_bytes * EXHAUSTED_SHARE)
        # work that is ended because memory is critical has freed its memory by the next reading
        if resident >= self._max_bytes * HIGH_SHARE and not has_changed:
            self._trim()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(HIGH_CHECK_SECONDS if self._is_nearly_critical() else CHECK_SECONDS)
            try:
                self.check()
            except Exception as error:  # of its callbacks; without further readings nothing would limit the memory
                log.error("memory_not_checked", exc_info=error)

    def _is_nearly_critical(self) -> bool:
        return not self.is_short and self._resident >= self._max_bytes * HIGH_SHARE

    def _trim(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._trimmed_at >= TRIM_SECONDS and (self._trimming is None or self._trimming.done()):
            self._trimmed_at = now
            self._give_up()
            self._trimming = asyncio.get_running_loop().run_in_executor(None, trim)


def memory_limit(max_bytes: int) -> int:
    """Returns the memory limit of this process: `max_bytes`, or `CGROUP_SHARE` of its control group's limit if that is
    lower.
    """
    limit = cgroup_bytes()
    return max_bytes if limit is None else min(max_bytes, int(limit * CGROUP_SHARE))


def resident_bytes() -> int | None:
    """Returns the resident memory of this process; None if the system does not report it."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def trim() -> None:
    """Returns free memory of the allocator to the system, where it can (glibc). Takes some milliseconds per
    gigabyte.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def cgroup_bytes(proc: Path = Path("/proc/self/cgroup"), root: Path = _CGROUPS) -> int | None:
    """Returns the lowest memory limit of the control groups of this process, of version 1 or 2; None without one."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return None
    found = []
    for line in lines:  # number, controllers, path
        _, controllers, place = line.split(":", 2)
        top, name = (root, "memory.max") if not controllers else (root / "memory", "memory.limit_in_bytes")
        folder = top / place.strip("/")
        while controllers in ("", "memory") and folder.is_relative_to(top):
            with contextlib.suppress(OSError, ValueError):
                found.append(int((folder / name).read_text()))
            folder = folder.parent
    return min(found, default=None)
