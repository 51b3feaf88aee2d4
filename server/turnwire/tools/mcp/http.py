"""The HTTP client for an MCP server: that of the SDK, with limits on what it reads.

A message may have `MAX_MESSAGE_BYTES`. Reading for a call ends with the call; the SDK would leave the answer to a
cancelled call open, for as long as the server wants. Import it only when needed, because the import is slow.
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
"""Maximum time to connect to the server, and to wait for the answer to a notification, which has no content."""

_CONNECTIONS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
"""A call keeps a connection while it waits for a person; the limits of turns and calls also limit the connections."""


def bounded_client(headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """Returns an HTTP client for one MCP server; the caller closes it. Uses the proxies of the environment.

    An answer that is too large or compressed fails, and the others continue. Compressed answers are rejected because
    their size is unknown until they are unpacked.
    """
    return _BoundedClient(
        headers={**headers, "Accept-Encoding": "identity"},
        # a stream is silent while its call waits for a person; calls have time limits of their own
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        limits=_CONNECTIONS,
    )


class _BoundedClient(httpx2.AsyncClient):
    """Ends requests with their call, and limits answers."""

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
    """The body of an answer. The SDK limits the events of a stream, but no other body."""

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
    """The member of a message that shows whether an answer follows."""

    id: int | str | None = None


def _bounded(request: httpx2.Request) -> contextlib.AbstractAsyncContextManager[object]:
    """Returns the time limit for the beginning of an answer."""
    call = current_call.get()
    if request.method == "POST" and msgspec.json.decode(request.content, type=_Sent).id is None:
        return asyncio.timeout(CONNECT_SECONDS)  # the SDK sends nothing else meanwhile
    return call.reading() if call else contextlib.nullcontext()


def _refusal(request: httpx2.Request, words: str) -> httpx2.Response:
    """Returns an error response in place of an answer that is not read."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": words}}
    return httpx2.Response(
        400, headers={"content-type": "application/json"}, content=msgspec.json.encode(error), request=request
    )
