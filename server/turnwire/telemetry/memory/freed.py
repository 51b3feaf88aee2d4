"""Gives memory that was freed back to the system.

The C library keeps freed blocks for later, and gives back only those at the end of a heap. After many long answers
most of a server's memory is free blocks between small ones that are still used. A thread looks now and then how much
that is, and lets the library give it back when it is worth it. Only glibc can tell and do so; with other libraries
nothing happens.
"""

import threading
import time

import structlog

from turnwire.telemetry.memory.process import Memory

LOOK_SECONDS = 5.0
"""Between two looks, so at most this often memory is given back."""

WORTH_BYTES = 48 * 2**20
"""As much must be free and still held. Less is soon used again."""

log = structlog.get_logger()


class FreedMemory:
    """Looks after the memory of this process: `start`, then `stop`.

    `_beside` is what the process holds besides what the library says is used, at the last time that it gave everything
    back: code, stacks, Python's own small objects. What is held beyond that is free.
    """

    def __init__(self, memory: Memory | None, look_seconds: float = LOOK_SECONDS) -> None:
        """Args:
        memory: That of this process; None does nothing.
        look_seconds: Time between two looks.
        """
        self._memory = memory
        self._look_seconds = look_seconds
        self._beside = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to look, on a thread of its own that ends at `stop`, and with the process in any case."""
        if self._memory is not None:
            self._beside = self._memory.held() - self._memory.used()
            self._thread = threading.Thread(target=self._watch, args=(self._memory,), name="freed memory", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread. Idempotent."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self, memory: Memory) -> None:
        """Gives freed memory back if it is worth it."""
        free = memory.held() - memory.used() - self._beside
        if free < WORTH_BYTES:
            return
        before, began = memory.held(), time.monotonic()
        memory.give_back()
        milliseconds = round((time.monotonic() - began) * 1000)
        log.debug("memory_given_back", bytes=before - memory.held(), milliseconds=milliseconds)
        self._beside = memory.held() - memory.used()

    def _watch(self, memory: Memory) -> None:
        while not self._stopped.wait(self._look_seconds):
            self._look(memory)
