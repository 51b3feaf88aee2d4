"""Measures the delay of the event loop, and reports what blocks it.

A timer on the loop measures its own delay: while one callback runs, every other turn and call waits. A thread takes the
stack of the loop's thread when the timer is overdue, because the cause is no longer known afterwards.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

import structlog

TICK_SECONDS = 0.1
"""Maximum interval between two measurements. Each wakes the process, which costs more than the measurement."""

TICKS_OF_LIMIT = 4
"""Number of measurements within the time from which a stall is reported. A callback that begins between two
measurements seems shorter than it is, by at most the time between them."""

MAX_IDLE_TICK_SECONDS = 1.6
"""Maximum interval while the loop does nothing: an idle server takes next to none of the processor. Work that holds the
loop in its first moment after that seems shorter, or is not seen; whatever follows is."""

IDLE_SHARE = 0.05
"""Share of the time between two measurements up to which the loop's thread may have had a processor and be idle."""

LOG_INTERVAL_SECONDS = 1.0
"""Minimum interval between two lines, and the length of a stall that is reported before it has ended."""

MAX_FRAMES = 12
"""Maximum frames in a line, the innermost ones."""

log = structlog.get_logger()


class _Stall(NamedTuple):
    """A time in which the loop was blocked."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """CPU time of the loop's thread meanwhile: less when it waited for the interpreter or for a processor."""
    where: str = ""
    """The stack of the loop's thread; "" when it could not be taken, as during a function that keeps the interpreter.
    """


class LoopMonitor:
    """Measures one event loop: `start` on it, then `stop` on it.

    `_due` is the time at which the timer should run; the loop sets it. `_seen` is the `_due` of the last stall that the
    thread saw, and its stack. Each is one reference, which needs no lock. Everything else is used on the loop. The
    thread ends at `stop`, and with the process in any case.
    """

    def __init__(self, stuck_seconds: float, on_delay: Callable[[float], None] = lambda _: None) -> None:
        """Args:
        stuck_seconds: The delay from which on a stall is reported; 0 reports none, and starts no thread.
        on_delay: Called on the loop with each measured delay in seconds; must not raise.
        """
        self._stuck_seconds = stuck_seconds
        self._on_delay = on_delay
        self._busy_tick_seconds = min(TICK_SECONDS, stuck_seconds / TICKS_OF_LIMIT) if stuck_seconds else TICK_SECONDS
        self._tick_seconds = self._busy_tick_seconds
        self._due = self._worked = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._seen = (0.0, "")
        self._stalls, self._longest = 0, _Stall()
        """The stalls since the last line."""
        self._may_write_at = 0.0

    def start(self) -> None:
        """Starts to measure the running loop."""
        self._plan()
        if self._stuck_seconds:
            loop_thread = threading.get_ident()
            self._thread = threading.Thread(target=self._look, args=(loop_thread,), name="loop monitor", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends the measurement, after a line about stalls that have not been reported. Idempotent."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()
        self._write(float("inf"))

    def _plan(self) -> None:
        self._due, self._worked = time.monotonic() + self._tick_seconds, time.thread_time()
        self._timer = asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        delay = max(0.0, now - self._due)
        self._on_delay(delay)
        worked = time.thread_time() - self._worked
        is_idle = worked < IDLE_SHARE * self._tick_seconds and delay < self._busy_tick_seconds
        self._tick_seconds = min(2 * self._tick_seconds, MAX_IDLE_TICK_SECONDS) if is_idle else self._busy_tick_seconds
        if self._stuck_seconds and delay >= self._stuck_seconds:
            self._stalls += 1
            if delay > self._longest.seconds:
                seen_due, where = self._seen
                self._longest = _Stall(delay, min(delay, worked), where if seen_due == self._due else "")
        self._write(now)
        self._plan()

    def _write(self, now: float) -> None:
        """Reports the stalls since the last line, if that is long enough ago."""
        if not self._stalls or now < self._may_write_at:
            return
        log.warning(
            "event_loop_stuck",
            milliseconds=round(self._longest.seconds * 1000),
            cpu_milliseconds=round(self._longest.cpu_seconds * 1000),
            times=self._stalls,
            where=self._longest.where,
        )
        self._may_write_at = now + LOG_INTERVAL_SECONDS
        self._stalls, self._longest = 0, _Stall()

    def _look(self, loop_thread: int) -> None:
        """Takes one stack of each stall. Reports one that lasts, once: the loop may never run again."""
        reported = 0.0
        while not self._stopped.wait(max(self._stuck_seconds / 2, self._due + self._stuck_seconds - time.monotonic())):
            due, now = self._due, time.monotonic()
            if now - due < self._stuck_seconds:
                continue
            if due != self._seen[0]:
                self._seen = due, stack_of(loop_thread)
            if now - due >= LOG_INTERVAL_SECONDS and due != reported:
                reported = due
                log.warning("event_loop_stuck", milliseconds=round((now - due) * 1000), where=self._seen[1])


def stack_of(thread: int) -> str:
    """Returns the innermost frames of a thread, outermost first, as `file:line function`; no values of variables."""
    frame = sys._current_frames().get(thread)
    found: list[str] = []
    while frame is not None and len(found) < MAX_FRAMES:
        file = "/".join(PurePath(frame.f_code.co_filename).parts[-3:])
        found.append(f"{file}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(found))
