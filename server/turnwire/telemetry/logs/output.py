"""Where log lines go: to a descriptor, without ever holding up who writes them.

A pipe that nobody reads, a terminal that was stopped, a reader that is gone or a full disk are no reason for a call to
fail or for the event loop to stand.
"""

import contextlib
import os
import select
import threading
import time
from collections import deque

import structlog

MAX_WAITING_BYTES = 2**20
"""Of lines that nobody has read yet; further lines are lost, and counted."""

PIECE_BYTES = 4096
"""What a pipe that is ready takes without waiting (PIPE_BUF)."""

CHECK_SECONDS = 0.5
"""How long the thread waits for a reader before it looks again whether the output was closed."""

CLOSE_SECONDS = 1.0
"""How long the end waits for lines to be read."""

log = structlog.get_logger()


class LogOutput:
    """A text file for log lines. Any thread may write.

    A line goes out at once while the descriptor takes it. Once it does not, lines wait in `_waiting`, and a thread that
    lives until they are written takes care of them. `_lock` guards all that and the order of lines.
    """

    def __init__(self, descriptor: int) -> None:
        """Takes the descriptor, which stays open."""
        self._descriptor = descriptor
        self._lock = threading.RLock()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._lost = 0
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def write(self, text: str) -> int:
        """Writes a text, now or later; returns its length. Never waits, never fails: what cannot be written is lost."""
        data = text.encode("utf-8", "backslashreplace")
        with self._lock:
            if not self._waiting:
                data = self._write_ready(data)
            if data and not self._is_closed:
                self._keep(data)
        return len(text)

    def flush(self) -> None:
        """Does nothing: nothing is held back that could be written."""

    def isatty(self) -> bool:
        """Returns whether the descriptor is a terminal."""
        return os.isatty(self._descriptor)

    def close(self) -> None:
        """Waits a moment for lines that were not read yet, and gives the rest up. Idempotent."""
        thread = self._thread
        if thread is not None:
            thread.join(CLOSE_SECONDS)
        with self._lock:
            self._is_closed = True
            self._waiting.clear()

    def _write_ready(self, data: bytes) -> bytes:
        """Writes what the descriptor takes at once; returns the rest."""
        while data and self._is_ready(0):
            try:
                data = data[os.write(self._descriptor, data[:PIECE_BYTES]) :]
            except BlockingIOError:
                break
            except OSError:  # the reader is gone, or the disk is full
                self._lost += 1
                return b""
        return data

    def _is_ready(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(seconds * 1000))

    def _keep(self, data: bytes) -> None:
        if self._waiting_bytes + len(data) > MAX_WAITING_BYTES:
            self._lost += 1
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_waiting, name="log output", daemon=True)
            with contextlib.suppress(RuntimeError):  # there are too many threads: the next line tries again
                self._thread.start()
                return
            self._thread = None

    def _write_waiting(self) -> None:
        """Writes what waits, and tells how many lines were lost meanwhile."""
        while True:
            is_ready = self._is_ready(CHECK_SECONDS)
            with self._lock:
                if is_ready and self._waiting:
                    self._waiting_bytes -= len(self._waiting[0])
                    rest = self._write_ready(self._waiting.popleft())
                    if rest:
                        self._waiting.appendleft(rest)
                        self._waiting_bytes += len(rest)
                if not self._waiting:
                    self._thread, lost, self._lost = None, self._lost, 0
                    break
            time.sleep(0)  # who writes now has a chance to
        if lost and not self._is_closed:
            log.warning("log_lines_lost", lines=lost)
