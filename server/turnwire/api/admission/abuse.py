"""Closes connections whose clients hold up others, and logs them."""

import asyncio
from collections.abc import Callable

import structlog

from turnwire.api.admission.sockets import close_connection
from turnwire.ports.telemetry.line_limit import LineLimit

log = structlog.get_logger()


class CutOffs:
    """Closes connections of both listeners. Used on the event loop."""

    def __init__(self, close: Callable[[str], bool] = close_connection) -> None:
        """Takes what closes a connection by its name, on a thread; returns whether there was one."""
        self._close = close
        self._lines = LineLimit()

    def cut_off(self, connection: str, reason: str) -> None:
        """Closes a connection, where the system tells which one it is, and logs it, or counts it for a later line.

        Args:
            connection: The name that its listener gives its peer.
            reason: What its client did.
        """

        def note(done: "asyncio.Future[bool]") -> None:
            if done.cancelled() or done.exception() or not done.result():
                return
            unlogged = self._lines.take()
            if unlogged is not None:
                listener = "grpc" if connection.startswith("ip") else "web"
                counted = {"cut_off_since_last_line": unlogged}
                log.warning("peer_cut_off", peer=connection, listener=listener, reason=reason, **counted)

        asyncio.get_running_loop().run_in_executor(None, self._close, connection).add_done_callback(note)
