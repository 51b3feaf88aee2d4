"""Handshakes of TLS that fail. The event loop ends them without a word to the protocol of their connection."""

import asyncio
import ssl
from collections.abc import Callable

from turnwire.api.web.http.limits import HEAD_SECONDS

_NOT_ENDED = f"not ended after {HEAD_SECONDS:g} seconds, or left by its client"


def report_failures(context: ssl.SSLContext, failed: Callable[[str], None]) -> None:
    """Reports each handshake of a context that fails. Its connections must belong to the running loop.

    One that is not ended in time, or whose client leaves, is reported when its time is over.

    Args:
        context: Is listened with.
        failed: Takes what the problem was.
    """
    loop = asyncio.get_running_loop()

    class Reported(ssl.SSLObject):
        """One end of a connection."""

        _overdue: asyncio.TimerHandle | None = None
        """Runs from the beginning of the handshake to its end. It does not keep the connection in memory."""

        def do_handshake(self) -> None:
            """Takes the next step of the handshake; see `ssl.SSLObject.do_handshake`."""
            if self._overdue is None:
                self._overdue = loop.call_later(HEAD_SECONDS, failed, _NOT_ENDED)
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                self._overdue.cancel()
                failed(str(error))
                raise
            self._overdue.cancel()

    context.sslobject_class = Reported
