"""The HTTP client for an MCP server: what it answers is read at a pace, within bounds, and never unpacked.

The SDK reads a whole body of JSON before it looks at it, connects again as soon as a server tells it to, and follows
redirects only within the server's own origin, so that headers with keys go nowhere else. Imported when it is needed:
the package comes with the SDK.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import httpx2

from turnwire.tools.mcp.places import Place, Places
from turnwire.tools.mcp.running_call import CallOverError, current_call
from turnwire.tools.mcp.wire.connections import Connections, refusal
from turnwire.tools.mcp.wire.pace import Pace
from turnwire.tools.mcp.wire.sizes import MAX_MESSAGE_BYTES, EventSize, JsonSize, TooLargeError

STREAMS_PER_SECOND = 1.0
"""Requests for streams of the server's own: one that ends each at once would be asked again without a pause."""

STREAMS_AT_ONCE = 10
"""Such requests that need not wait."""

_PIECE_BYTES = 4096
"""Of an event stream, between which others have their turn: the SDK reads all events of a piece in one go."""

_EVENTS_OF_LINE = 0.25
"""An event has at least two lines, and usually three."""

_SMALL_BYTES = 128
"""A piece of fewer bytes costs as much as a message: chunks of one byte have no use."""

_PIECE = 0.05
"""What any other costs."""


def bounded_client(url: str, headers: Mapping[str, str], places: Places) -> httpx2.AsyncClient:
    """Returns a client for one MCP server; the caller closes it. Goes by the proxies of the environment.

    A response that breaks a limit fails as one that cannot be read, and the others go on.

    Args:
        url: The server's address.
        headers: Of each request.
        places: Of the server's large messages.
    """
    streams, pace = Pace(STREAMS_PER_SECOND, STREAMS_AT_ONCE), Pace()

    async def asked(request: httpx2.Request) -> None:
        if request.method == "GET":
            await streams.take(1)

    async def answered(response: httpx2.Response) -> None:
        kind = response.headers.get("content-type", "").strip().lower()
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            del response.headers["content-encoding"]
            words = refusal(response.request, "the server compresses its answers, though nobody asked it to")
            response.headers["content-type"], response.status_code = "application/json", 400
            response.stream = _Words(response.stream, words.content)
        else:
            size = EventSize() if kind.startswith("text/event-stream") else JsonSize()
            response.stream = _Bounded(
                response.stream, size, pace, Place(places, response.headers, is_kept=current_call.get() is not None)
            )

    return httpx2.AsyncClient(
        headers={**headers, "Accept-Encoding": "identity"},
        # a stream is silent while its call asks a person; calls have time limits of their own
        timeout=None,
        transport=Connections(url),
        event_hooks={"request": [asked], "response": [answered]},
    )


class _Bounded(httpx2.AsyncByteStream):
    """A body within its bounds."""

    def __init__(self, inner: Any, size: EventSize | JsonSize, pace: Pace, place: Place) -> None:
        self._inner = inner
        self._size = size
        self._pace = pace
        self._place = place
        self._call = current_call.get()

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        step = _PIECE_BYTES if isinstance(self._size, EventSize) else MAX_MESSAGE_BYTES
        async for data in self._inner:
            await asyncio.sleep(0)  # there may be more already
            for first in range(0, len(data), step):
                piece = data[first : first + step]
                try:
                    self._size.add(piece)
                    async with self._call.reading() if self._call else contextlib.nullcontext():
                        await self._place.take(self._size.held_bytes)
                except (TooLargeError, CallOverError) as error:
                    raise httpx2.StreamError(str(error) or "the call has ended") from None
                lines = piece.count(b"\n") + piece.count(b"\r") if step == _PIECE_BYTES else 0
                cost = 1.0 if len(data) < _SMALL_BYTES else _PIECE
                await self._pace.take(cost + lines * _EVENTS_OF_LINE, len(piece))
                yield piece

    async def aclose(self) -> None:
        if self._call:
            self._call.keep(self._place.leave)  # what came is there until its result is stored
        else:
            self._place.leave()
        await self._inner.aclose()


class _Words(httpx2.AsyncByteStream):
    """An error in place of a body that is not read."""

    def __init__(self, inner: Any, words: bytes) -> None:
        self._inner = inner
        self._words = words

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        yield self._words

    async def aclose(self) -> None:
        await self._inner.aclose()
