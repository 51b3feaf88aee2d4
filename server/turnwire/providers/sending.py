"""Sends a request that is JSON already, through the clients of both SDKs."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from turnwire.domain.errors import ProviderStreamFailed
from turnwire.ports.provider import PreparedRequest
from turnwire.providers.answer.stream import OpenAnswer

_CHUNK_BYTES = 64 * 1024
"""Bytes given to a socket at once; the event loop runs other tasks after each."""


class Body:
    """The body of one request, in chunks of a useful size. Sent pieces are released, so it can be read once."""

    def __init__(self, prepared: PreparedRequest) -> None:
        """Takes over the pieces of a request."""
        self._pieces = deque(prepared.pieces)
        self._was_read = prepared.was_read
        self.size_bytes = sum(map(len, prepared.pieces))
        """Size of the complete body."""

    def whole(self) -> bytes:
        """Returns the complete body."""
        whole = b"".join(self._pieces)
        self._let_go()
        return whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields the chunks."""
        waiting: list[bytes] = []
        size = 0
        while self._pieces:
            waiting.append(self._pieces.popleft())
            size += len(waiting[-1])
            if size >= _CHUNK_BYTES or not self._pieces:
                yield b"".join(waiting)
                waiting, size = [], 0
                await asyncio.sleep(0)  # a socket that accepts everything at once never waits
        self._let_go()

    def _let_go(self) -> None:
        self._pieces.clear()
        self._was_read()


class _Answer:
    """Implements `OpenAnswer`."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.headers: Mapping[str, str] = response.headers

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.aiter_bytes():
                yield chunk
        except httpx2.DecodingError as error:
            raise ProviderStreamFailed("the answer of the provider cannot be unpacked") from error

    async def read(self) -> bytes:
        return await self._response.aread()


@asynccontextmanager
async def post(
    send: Callable[..., Awaitable[Any]], path: str, body: Body, headers: Mapping[str, str]
) -> AsyncIterator[OpenAnswer]:
    """Sends a body and yields the open answer; closes it afterwards.

    The SDKs' methods for messages would traverse the body, and encode it on the event loop.

    Args:
        send: The `post` of the SDK's client, which adds the key and turns statuses into its errors.
        path: The path of the API's method.
        body: The body; nothing of it is kept once the provider has read it.
        headers: Further headers.
    """
    size = body.size_bytes
    response: httpx2.Response = await send(
        path,
        cast_to=httpx2.Response,
        content=body.whole() if size <= _CHUNK_BYTES else body,
        options={
            "headers": {"Content-Type": "application/json", "Content-Length": str(size), **headers},
            # nothing is retried, so no idempotency key has to distinguish two requests; without one, the SDK draws one
            # at random
            "idempotency_key": "none",
        },
        stream=True,
    )
    try:
        yield _Answer(response)
    finally:
        await response.aclose()
