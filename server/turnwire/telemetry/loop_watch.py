"""Measures how late the event loop runs, and says where it is held.

A timer on the loop measures its own delay. A thread notices when the timer is overdue, and logs where the loop's thread
is at that moment: while one callback runs, every other turn and call waits.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from pathlib import PurePath
from types import FrameType

import structlog

TICK_SECONDS = 0.1
"""How often the loop's delay is measured. Each time wakes the process, which costs more than the measuring."""

LOG_INTERVAL_SECONDS = 10.0
"""Least time between two lines: a slow function that is called again and again would fill the log."""

MAX_FRAMES = 12
"""Most frames in a line, the innermost ones."""

log = structlog.get_logger()


class LoopWatch:
    """Watches one event loop: `start` on it, then `stop` on it.

    `_due` is when the timer should run next; written on the loop and read by the thread, which needs no lock for one
    number. The thread ends at `stop`, and with the process in any case.
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
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self.unlogged = 0
        """How often the loop was held since the last line, without a line of its own. Written by the thread."""

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
        """Ends the watch. Idempotent."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    def _plan(self) -> None:
        self._due = time.monotonic() + TICK_SECONDS
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._on_tick(max(0.0, time.monotonic() - self._due))
        self._plan()

    def _watch(self, watched_thread: int) -> None:
        """Runs on the thread."""
        noticed_due, may_log_at = 0.0, 0.0
        while not self._stopped.wait(max(self._due + self._stuck_seconds - time.monotonic(), self._stuck_seconds / 2)):
            due, now = self._due, time.monotonic()
            if now - due < self._stuck_seconds or due == noticed_due:
                continue
            noticed_due = due
            if now < may_log_at:
                self.unlogged += 1
                continue
            frame = sys._current_frames().get(watched_thread)
            log.warning(
                "event_loop_stuck",
                milliseconds=round((now - due) * 1000),
                where=where(frame),
                unlogged=self.unlogged,
            )
            del frame  # it keeps the values of the loop's thread alive
            may_log_at, self.unlogged = now + self._log_interval_seconds, 0


def where(frame: FrameType | None) -> str:
    """Returns the innermost frames of a stack, outermost first, as `file:line function`; no values of variables."""
    found: list[str] = []
    while frame is not None and len(found) < MAX_FRAMES:
        file = "/".join(PurePath(frame.f_code.co_filename).parts[-3:])
        found.append(f"{file}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return " > ".join(reversed(found))
