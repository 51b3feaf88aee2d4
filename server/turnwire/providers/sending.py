"""Sends a request that is JSON already, through the clients of both SDKs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from turnwire.providers.answer.stream import OpenAnswer

_CHUNK_BYTES = 64 * 1024
"""About what a socket takes at once; the loop is given back after each."""


class _Body:
    """Pieces in chunks of a useful size. May be sent again."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        waiting: list[bytes] = []
        size = 0
        for piece in self._pieces:
            waiting.append(piece)
            size += len(piece)
            if size >= _CHUNK_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
                await asyncio.sleep(0)  # a socket that takes everything at once never waits
        yield b"".join(waiting)


class _Answer:
    """Implements `OpenAnswer`."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.headers: Mapping[str, str] = response.headers

    def iter_bytes(self) -> AsyncIterator[bytes]:
        return self._response.aiter_bytes()

    async def read(self) -> bytes:
        return await self._response.aread()


@asynccontextmanager
async def post(
    send: Callable[..., Awaitable[Any]], path: str, pieces: Sequence[bytes], headers: Mapping[str, str]
) -> AsyncIterator[OpenAnswer]:
    """Sends a body and yields the open answer; closes it afterwards.

    The SDKs' methods for messages would walk over the body, and encode it on the event loop.

    Args:
        send: The `post` of the SDK's client, which adds the key and turns statuses into its errors.
        path: Of the API's method.
        pieces: The body.
        headers: Further headers.
    """
    size = sum(map(len, pieces))
    response: httpx2.Response = await send(
        path,
        cast_to=httpx2.Response,
        content=b"".join(pieces) if size <= _CHUNK_BYTES else _Body(pieces),
        options={
            "headers": {"Content-Type": "application/json", "Content-Length": str(size), **headers},
            # nothing is retried, so no key has to tell two requests apart: one that is not given is drawn by chance
            "idempotency_key": "none",
        },
        stream=True,
    )
    try:
        yield _Answer(response)
    finally:
        await response.aclose()
