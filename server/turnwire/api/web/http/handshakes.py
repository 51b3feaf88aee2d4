"""Handshakes of TLS: how many are under way at once, and those that fail, which the event loop ends without a word."""

import asyncio
import ssl
import weakref
from collections.abc import Callable

from turnwire.api.web.http.limits import HEAD_SECONDS, Connections

_NOT_ENDED = f"not ended after {HEAD_SECONDS:g} seconds, or left by its client"
_TOO_MANY = "too many connections, or the listener stops"


def watch_handshakes(context: ssl.SSLContext, connections: Connections, failed: Callable[[str], None]) -> None:
    """Counts the handshakes of a context among connections, and reports each that fails.

    One for which there is no room fails at its beginning, and its connection is closed. One that is not ended in time,
    or whose client leaves, is reported when its time is over. The connections must belong to the running loop.

    Args:
        context: Is listened with.
        connections: Bounds them, together with those that are open.
        failed: Takes what the problem was.
    """
    loop = asyncio.get_running_loop()

    def end_overdue(handshake: Callable[[], ssl.SSLObject | None]) -> None:
        # a client's leaving may keep the object until memory is collected, and it must not count for so long
        if (tls := handshake()) is not None:
            connections.end_handshake(tls)
        failed(_NOT_ENDED)

    class Watched(ssl.SSLObject):
        """One end of a connection."""

        _overdue: asyncio.TimerHandle | None = None
        """Runs from the beginning of the handshake to its end. It does not keep the connection in memory."""

        def do_handshake(self) -> None:
            """Takes the next step of the handshake; see `ssl.SSLObject.do_handshake`.

            The loop takes the first one when it has accepted the connection, before its client has sent anything.
            """
            if self._overdue is None:
                if not connections.begin_handshake(self):
                    failed(_TOO_MANY)
                    raise ssl.SSLError(_TOO_MANY)
                self._overdue = loop.call_later(HEAD_SECONDS, end_overdue, weakref.ref(self))
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                self._end()
                failed(str(error))
                raise
            self._end()

        def _end(self) -> None:
            assert self._overdue is not None
            self._overdue.cancel()
            connections.end_handshake(self)

    context.sslobject_class = Watched
