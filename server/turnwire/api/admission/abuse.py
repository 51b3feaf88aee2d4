"""Closes connections of clients that block others, and logs them."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial

import structlog

from turnwire.api.admission.sockets import close_connections
from turnwire.ports.telemetry.line_limit import LineLimit

log = structlog.get_logger()


class CutOffs:
    """Closes connections of both listeners. Used on the event loop."""

    def __init__(self, close: Callable[[Collection[str]], Collection[str]] = close_connections) -> None:
        """Takes what closes connections by their names, on a thread; returns those that there were."""
        self._close = close
        self._lines = LineLimit()
        self._waiting: dict[str, str] = {}
        """Connections that are to be closed, and why. They are closed together: each time takes long."""
        self._closing: asyncio.Future[Collection[str]] | None = None

    def cut_off(self, connection: str, reason: str) -> None:
        """Closes a connection, where the system tells which one it is, and logs it, or counts it for a later line.

        Args:
            connection: The name that its listener gives its peer.
            reason: The client's abuse.
        """
        self._waiting[connection] = reason
        if self._closing is None:
            self._close_waiting()

    def _close_waiting(self) -> None:
        reasons, self._waiting = self._waiting, {}
        self._closing = asyncio.get_running_loop().run_in_executor(None, self._close, frozenset(reasons))
        self._closing.add_done_callback(partial(self._note, reasons))

    def _note(self, reasons: dict[str, str], done: "asyncio.Future[Collection[str]]") -> None:
        self._closing = None
        if done.cancelled():
            return
        if self._waiting:
            self._close_waiting()
        for connection in () if done.exception() else done.result():
            unlogged = self._lines.take()
            if unlogged is not None:
                listener = "grpc" if connection.startswith("ip") else "web"
                counted = {"cut_off_since_last_line": unlogged}
                log.warning("peer_cut_off", peer=connection, listener=listener, reason=reasons[connection], **counted)
