"""The destination of log lines: a bounded queue, from which a thread writes them to a descriptor.

A pipe without a reader, a stopped terminal, a closed reader or a full disk must neither fail a call nor block the event
loop.
"""

import contextlib
import logging
import os
import queue
import select
import threading
import time

import structlog

MAX_WAITING_LINES = 4096
"""Maximum unwritten lines. Further lines are lost, and counted."""

CLOSE_SECONDS = 1.0
"""Maximum time that `close` waits for lines to be read."""

COLLECT_SECONDS = 0.02
"""Pause of the thread between two writes: each time that it wakes, the event loop has to wait for it."""

log = structlog.get_logger()


class LogOutput(logging.Handler):
    """Takes lines from any thread: a text file for structlog, a handler for `logging`. Never waits or fails."""

    def __init__(self, descriptor: int) -> None:
        """Takes the descriptor, which stays open."""
        super().__init__()
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()  # None is the last one
        self._descriptor = descriptor
        self._lost = 0
        self._losing = threading.Lock()  # guards `_lost`
        # a daemon: a reader that never reads does not keep the process alive
        self._writer = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._writer.start()

    def write(self, line: str) -> None:
        """Takes a line; the newline at its end may be missing."""
        if self._lines.qsize() < MAX_WAITING_LINES:
            self._lines.put_nowait(line.removesuffix("\n"))
        else:
            self._lose(1)

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a record of `logging`."""
        try:
            self.write(self.format(record))
        except Exception:  # as in each handler of `logging`
            self.handleError(record)

    def take_lost(self) -> int:
        """Returns the number of lines that were lost since the last call."""
        with self._losing:
            lost, self._lost = self._lost, 0
        return lost

    def isatty(self) -> bool:
        """Returns whether the descriptor is a terminal."""
        return os.isatty(self._descriptor)

    def close(self) -> None:
        """Waits at most `CLOSE_SECONDS` until the remaining lines are written, and drops the rest. Idempotent."""
        self._lines.put_nowait(None)
        self._writer.join(CLOSE_SECONDS)
        super().close()

    def _write_all(self) -> None:
        """Writes all waiting lines together, repeatedly until `close`."""
        is_open = True
        while is_open:
            lines = [self._lines.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    lines.append(self._lines.get_nowait())
            is_open = None not in lines
            self._write("".join(f"{line}\n" for line in lines if line is not None).encode("utf-8", "backslashreplace"))
            time.sleep(COLLECT_SECONDS)

    def _write(self, data: bytes) -> None:
        """Writes lines. Reports lost ones when all others are written."""
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # another process has made it non-blocking
                select.select([], [self._descriptor], [])
            except OSError:  # the reader has closed, or the disk is full
                self._lose(data.count(b"\n"))
                return
        if self._lines.empty() and (lost := self.take_lost()):
            log.warning("log_lines_lost", lines=lost)

    def _lose(self, lines: int) -> None:
        with self._losing:
            self._lost += lines
