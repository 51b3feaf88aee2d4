"""The HTTP client for an MCP server: that of the SDK, with a bound on what it reads.

A message may have `MAX_MESSAGE_BYTES`. Whatever is read for a call ends with the call: the SDK leaves the answer to a
call that was given up open, for as long as the server wants. Imported when it is needed, which takes some time.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import httpx2
import msgspec

from turnwire.tools.mcp.running_call import CallOverError, current_call
from turnwire.tools.mcp.stdio_process import MAX_MESSAGE_BYTES

CONNECT_SECONDS = 30.0
"""Longest time of connecting to the server, and of the answer to a notification, which has none."""

_CONNECTIONS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
"""A call has a connection of its own for as long as it asks a person; the limits of turns and calls bound them."""


def bounded_client(headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """Returns an HTTP client for one MCP server; the caller closes it. Uses the proxies of the environment.

    An answer that is too large or compressed fails, and the others continue: compressed bytes say nothing about how
    many there will be.
    """
    return _BoundedClient(
        headers={**headers, "Accept-Encoding": "identity"},
        # a stream is silent while its call asks a person; calls have time limits of their own
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        limits=_CONNECTIONS,
    )


class _BoundedClient(httpx2.AsyncClient):
    """Ends requests with their call, and bounds answers."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Sends a request; returns once the headers of the response have arrived."""
        try:
            async with _bounded(request):
                response = await super().send(request, **options)
        except CallOverError:
            return _refusal(request, "the call has ended")
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            await response.aclose()
            return _refusal(request, "the server compresses its answers, though it was not asked to")
        if options.get("stream"):
            is_events = response.headers.get("content-type", "").strip().lower().startswith("text/event-stream")
            response.stream = _Body(response.stream, None if is_events else MAX_MESSAGE_BYTES)
        return response


class _Body(httpx2.AsyncByteStream):
    """The body of an answer. The SDK bounds the events of a stream, and nothing of any other body."""

    def __init__(self, inner: Any, max_bytes: int | None) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        call, pieces, received = current_call.get(), aiter(self._inner), 0
        while True:
            try:
                async with call.reading() if call else contextlib.nullcontext():
                    piece = await anext(pieces, None)
            except CallOverError:
                raise httpx2.StreamError("the call has ended") from None
            except httpx2.TransportError as error:
                raise httpx2.StreamError(f"the server broke off its answer: {type(error).__name__}") from error
            if piece is None:
                return
            received += len(piece)
            if self._max_bytes is not None and received > self._max_bytes:
                raise httpx2.StreamError(f"it sent a message larger than {self._max_bytes} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Sent(msgspec.Struct, frozen=True):
    """The member of a message that tells whether an answer follows."""

    id: int | str | None = None


def _bounded(request: httpx2.Request) -> contextlib.AbstractAsyncContextManager[object]:
    """Returns the limit within which an answer has to begin."""
    call = current_call.get()
    if request.method == "POST" and msgspec.json.decode(request.content, type=_Sent).id is None:
        return asyncio.timeout(CONNECT_SECONDS)  # the SDK sends nothing else meanwhile
    return call.reading() if call else contextlib.nullcontext()


def _refusal(request: httpx2.Request, words: str) -> httpx2.Response:
    """Returns an answer that is an error, in place of one that is not read."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": words}}
    return httpx2.Response(
        400, headers={"content-type": "application/json"}, content=msgspec.json.encode(error), request=request
    )
