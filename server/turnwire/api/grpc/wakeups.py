"""Lets gRPC's thread wake the event loop without ever waiting for it.

gRPC's asyncio layer has one thread that does all network work. For each thing that happens, new calls and finished
writes, it writes one byte to a socket pair; the loop is woken, reads one byte, and takes all that has happened. When
more things happen than the loop has turns, the unread bytes fill the pair after about 280 of them. Then the thread
waits until the loop has read half, and meanwhile nothing is read from any client: a health check took 430 ms with
280 turns that stream. Reading all available bytes keeps the pair empty. (grpcio 1.85, `completion_queue.pyx.pxi`:
`_poll`, `_handle_events`; the bytes of what happened are written after it is queued, so none is missed.)
"""

import contextlib
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import structlog
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # has no stubs

log = structlog.get_logger()

MAX_BYTES = 4096
"""More than a socket pair holds of single bytes."""


class WakeupReader(socket.socket):
    """The reading end of a socket pair on which a byte means only that there is something."""

    reads = 0
    """Number of times that any reader was asked for a byte; for the test that gRPC still uses this class."""

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Returns all available bytes, whatever the size requested."""
        WakeupReader.reads += 1
        return super().recv(max(size, MAX_BYTES), flags)


def wakeup_pair() -> tuple[WakeupReader, socket.socket]:
    """Returns a connected pair of sockets. The first one reads all available bytes and never waits for more."""
    reading, writing = socket.socketpair()
    reader = WakeupReader(reading.family, reading.type, reading.proto, reading.detach())
    reader.setblocking(False)
    return reader, writing


@contextlib.contextmanager
def unblocked_wakeups() -> Iterator[None]:
    """Lets gRPC's thread have such a pair, if its asyncio layer is started within: with the first server or channel.

    With a version of gRPC that makes its pair in another way, the thread waits for the loop, and the log says so.
    """
    module: Any = cygrpc
    before = getattr(module, "socket", None)
    if not hasattr(before, "socketpair"):
        log.warning("wakeups_one_by_one")
        yield
        return
    module.socket = SimpleNamespace(socketpair=wakeup_pair)
    try:
        yield
    finally:
        module.socket = before
