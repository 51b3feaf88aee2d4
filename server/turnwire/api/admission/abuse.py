"""Abuse detection: a connection that begins calls only to end them (rapid reset) is closed."""

import asyncio
from collections.abc import Callable

import structlog

from turnwire.api.admission.sockets import close_connection
from turnwire.ports.telemetry.line_limit import LineLimit

MAX_RESETS = 200
"""Calls of one connection that end before their request was there, more than those that go on."""

_MAX_COUNTED = 10_000
"""Connections that have such calls; the count of the oldest one is forgotten."""

log = structlog.get_logger()


class CutOffLog:
    """Logs peers whose connection is closed because they attack."""

    def __init__(self) -> None:
        """Begins without lines."""
        self._limit = LineLimit()

    def note(self, peer: str, listener: str, reason: str) -> None:
        """Writes a line, or counts the peer for a later line.

        Args:
            peer: The address with the port.
            listener: "grpc" or "web".
            reason: What it did.
        """
        unlogged = self._limit.take()
        if unlogged is not None:
            log.warning("peer_cut_off", peer=peer, listener=listener, reason=reason, cut_off_since_last_line=unlogged)


class Resets:
    """Counts calls that their client ends before the request is there. Each costs the server more than the client."""

    def __init__(self, close: Callable[[str], bool] = close_connection) -> None:
        """Takes what closes a connection by its name, on a thread; returns whether there was one."""
        self._close = close
        self._log = CutOffLog()
        self._counts: dict[str, int] = {}
        self.when_cut_off = list[Callable[[str], None]]()
        """Each gets the name of a connection that was closed. One that cannot be closed goes on."""

    def note(self, connection: str, reason: str = "calls that are reset") -> None:
        """Counts a call that ended before its request was there. Closes a connection that has too many.

        Args:
            connection: Whose call it was.
            reason: What the log says of a connection that is closed.
        """
        count = self._counts.pop(connection, 0) + 1
        if count > MAX_RESETS:
            self.cut_off(connection, reason)
            return
        if len(self._counts) >= _MAX_COUNTED:
            del self._counts[next(iter(self._counts))]
        self._counts[connection] = count

    def forgive(self, connection: str) -> None:
        """Notes that a call of the connection had its request."""
        count = self._counts.get(connection)
        if count is None:
            return
        if count > 1:
            self._counts[connection] = count - 1
        else:
            del self._counts[connection]

    def cut_off(self, connection: str, reason: str) -> None:
        """Closes a connection, where the system tells which one it is, and logs the reason."""

        def tell(done: "asyncio.Future[bool]") -> None:
            if not done.cancelled() and not done.exception() and done.result():
                for note in self.when_cut_off:
                    note(connection)
                self._log.note(connection, "grpc" if connection.startswith("ip") else "web", reason)

        asyncio.get_running_loop().run_in_executor(None, self._close, connection).add_done_callback(tell)
