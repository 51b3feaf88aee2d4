"""Measures how late the event loop runs, and says where it is held.

A timer on the loop measures its own delay: while one callback runs, every other turn and call waits. A thread looks
where the loop's thread is whenever the timer is overdue, and writes the longest delay once in a while.
"""

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import PurePath
from types import FrameType
from typing import NamedTuple

import structlog

TICK_SECONDS = 0.1
"""How often the loop's delay is measured at least. Each time wakes the process, which costs more than the measuring."""

TICKS_OF_LIMIT = 4
"""How often it is measured within the time from which a delay is told: a callback that begins between two measurements
is seen shorter than it is, by at most the time between them."""

LOG_INTERVAL_SECONDS = 1.0
"""Least time between two lines: a slow function that is called again and again would fill the log."""

MAX_FRAMES = 12
"""Most frames in a line, the innermost ones."""

_MAX_DELAYS = 10_000
"""Delays that the thread has not seen yet; more than come between two of its turns."""

log = structlog.get_logger()


class _Delay(NamedTuple):
    """The loop was held, and is free again."""

    due: float
    """When the timer should have run, which tells one delay from another."""
    seconds: float
    cpu_seconds: float
    """What the loop's thread worked meanwhile: less when it waited for the interpreter or for a processor."""


class LoopWatch:
    """Watches one event loop: `start` on it, then `stop` on it.

    `_due` is when the timer should run next; written on the loop and read by the thread, which needs no lock for one
    number. `_delays` goes from the loop to the thread. The thread ends at `stop`, and with the process in any case.
    """

    def __init__(
        self,
        stuck_seconds: float,
        on_tick: Callable[[float], None] = lambda _: None,
        log_interval_seconds: float = LOG_INTERVAL_SECONDS,
    ) -> None:
        """Args:
        stuck_seconds: The delay from which a line says where the loop is held; 0 writes no lines.
        on_tick: Called on the loop with each measured delay in seconds; must not raise.
        log_interval_seconds: Least time between two lines.
        """
        self._stuck_seconds = stuck_seconds
        self._on_tick = on_tick
        self._log_interval_seconds = log_interval_seconds
        self._tick_seconds = min(TICK_SECONDS, stuck_seconds / TICKS_OF_LIMIT) if stuck_seconds else TICK_SECONDS
        self._due = self._worked = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._delays: deque[_Delay] = deque(maxlen=_MAX_DELAYS)

    def start(self) -> None:
        """Begins to watch the running loop."""
        self._plan()
        if self._stuck_seconds:
            thread = threading.Thread(
                target=self._watch, args=(threading.get_ident(),), name="event loop watch", daemon=True
            )
            thread.start()
            self._thread = thread

    def stop(self) -> None:
        """Ends the watch, after a line about what is not told yet. Idempotent."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    def _plan(self) -> None:
        self._due, self._worked = time.monotonic() + self._tick_seconds, time.thread_time()
        self._timer = asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)

    def _tick(self) -> None:
        delay = max(0.0, time.monotonic() - self._due)
        if self._stuck_seconds and delay >= self._stuck_seconds:
            self._delays.append(_Delay(self._due, delay, min(delay, time.thread_time() - self._worked)))
        self._on_tick(delay)
        self._plan()

    def _watch(self, watched_thread: int) -> None:
        """Runs on the thread."""
        told = _Told(self._log_interval_seconds)
        pause = self._stuck_seconds / 2
        while not self._stopped.wait(max(self._due + self._stuck_seconds - time.monotonic(), pause)):
            due, now = self._due, time.monotonic()
            if now - due >= self._stuck_seconds:
                told.see(due, now - due, watched_thread)
            self._take(told)
            told.write(now)
        self._take(told)
        told.write(float("inf"))

    def _take(self, told: "_Told") -> None:
        while self._delays:
            told.end(self._delays.popleft())


class _Told:
    """What the next line says. Used by the thread only."""

    def __init__(self, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._may_write_at = 0.0
        self._current, self._where_now = 0.0, ""
        """The delay that was seen last, by when it was due, and where the loop was then."""
        self._longest, self._cpu, self._where, self._count = 0.0, 0.0, "", 0

    def see(self, due: float, seconds: float, watched_thread: int) -> None:
        """Notes a delay that goes on. Where the loop is is looked up once for each."""
        if due != self._current:
            frame = sys._current_frames().get(watched_thread)
            self._current, self._where_now = due, where(frame)
            del frame  # it keeps the values of the loop's thread alive
            self._count += 1
        self._note(seconds, 0.0, self._where_now)

    def end(self, delay: _Delay) -> None:
        """Notes a delay that is over. One of a function that keeps the interpreter was never seen while it went on."""
        seen = delay.due == self._current
        self._count += not seen
        self._note(delay.seconds, delay.cpu_seconds, self._where_now if seen else "")

    def write(self, now: float) -> None:
        """Writes a line, if there is something to tell and the last line is long enough ago."""
        if not self._longest or now < self._may_write_at:
            return
        milliseconds, times = round(self._longest * 1000), max(1, self._count)  # one that goes on is told again
        log.warning(
            "event_loop_stuck",
            milliseconds=milliseconds,
            cpu_milliseconds=round(self._cpu * 1000),
            times=times,
            where=self._where,
        )
        self._may_write_at = now + self._interval_seconds
        self._longest, self._cpu, self._where, self._count = 0.0, 0.0, "", 0

    def _note(self, seconds: float, cpu_seconds: float, place: str) -> None:
        self._cpu = max(self._cpu, cpu_seconds)
        if seconds > self._longest:
            self._longest, self._where = seconds, place or self._where


def where(frame: FrameType | None) -> str:
    """Returns the innermost frames of a stack, outermost first, as `file:line function`; no values of variables."""
    found: list[str] = []
    while frame is not None and len(found) < MAX_FRAMES:
        file = "/".join(PurePath(frame.f_code.co_filename).parts[-3:])
        found.append(f"{file}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(found))
