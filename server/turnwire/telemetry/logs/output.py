"""Where log lines go: into a bounded queue, from which a thread writes them to a descriptor.

A pipe that nobody reads, a terminal that was stopped, a reader that is gone or a full disk must neither fail a call nor
block the event loop.
"""

import logging
import os
import queue
import select
import threading
from logging.handlers import QueueHandler, QueueListener

import structlog

MAX_WAITING_LINES = 4096
"""Lines that nobody has read yet. Further lines are lost, and counted."""

CLOSE_SECONDS = 1.0
"""How long the end waits for lines to be read."""

log = structlog.get_logger()


class LogOutput(QueueHandler):
    """Takes lines from any thread: a text file for structlog, a handler for `logging`. Never waits or fails."""

    def __init__(self, descriptor: int) -> None:
        """Takes the descriptor, which stays open."""
        self._lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
        super().__init__(self._lines)
        self._descriptor = descriptor
        self._lost = 0
        self._losing = threading.Lock()  # guards `_lost`
        self._writer: _Writer | None = _Writer(self, self._lines, descriptor)
        """Until `close`."""
        self._writer.start()

    def write(self, line: str) -> None:
        """Takes a line; the newline at its end may be missing."""
        self.enqueue(logging.makeLogRecord({"msg": line.removesuffix("\n")}))

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queues a record that has been formatted, or counts it as lost."""
        if self._lines.qsize() < MAX_WAITING_LINES:
            self._lines.put_nowait(record)
        else:
            self.lose()

    def lose(self) -> None:
        """Counts a line that cannot be written."""
        with self._losing:
            self._lost += 1

    def take_lost(self) -> int:
        """Returns how many lines were lost since the last call."""
        with self._losing:
            lost, self._lost = self._lost, 0
        return lost

    def isatty(self) -> bool:
        """Returns whether the descriptor is a terminal."""
        return os.isatty(self._descriptor)

    def close(self) -> None:
        """Waits a moment for lines that nobody has read yet, and gives up the rest. Idempotent."""
        writer, self._writer = self._writer, None
        if writer is not None:
            stopping = threading.Thread(target=writer.stop, daemon=True)  # which waits as long as the reader
            stopping.start()
            stopping.join(CLOSE_SECONDS)
        super().close()


class _Writer(QueueListener):
    """Writes the lines on its thread, which is a daemon: a reader that never comes does not keep the process."""

    def __init__(self, output: LogOutput, lines: "queue.SimpleQueue[logging.LogRecord]", descriptor: int) -> None:
        super().__init__(lines)
        self._lines = lines
        self._output = output
        self._descriptor = descriptor

    def handle(self, record: logging.LogRecord) -> None:
        """Writes a line. Reports lost ones when all others are written."""
        try:
            self._write(f"{record.msg}\n".encode("utf-8", "backslashreplace"))
        except OSError:  # the reader is gone, or the disk is full
            self._output.lose()
            return
        if self._lines.empty() and (lost := self._output.take_lost()):
            log.warning("log_lines_lost", lines=lost)

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # another process has made it non-blocking
                select.select([], [self._descriptor], [])
