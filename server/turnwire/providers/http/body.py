"""The body of one answer, bounded in time while it is read."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import httpx2

from turnwire.domain.errors import ProviderAnswerOverLimit, ProviderStreamCut
from turnwire.domain.limits import Limits

CHUNK_BYTES = 16 * 1024
"""Most that is read at once: what a hundred deltas take."""

MAX_WHOLE_BYTES = 64 * 1024
"""Of a body that is no stream: an error or a page. The rest is not read."""

_WHOLE = ("application/json", "application/problem+json", "text/html", "application/xhtml+xml", "image/")
"""Media types that are certainly no stream. Some servers give their streams another one, or none."""


def is_stream(status: int, media_type: str) -> bool:
    """Returns whether an answer may be a stream of events, which is read to its end."""
    return 200 <= status < 300 and not media_type.startswith(_WHOLE)


class Body(httpx2.AsyncByteStream):
    """Yields the body in pieces. Read once; `aclose` ends the connection unless all was read."""

    def __init__(self, response: aiohttp.ClientResponse, limits: Limits, deadline: float, *, whole: bool) -> None:
        """Args:
        response: An open answer; this owns it.
        limits: What it may take.
        deadline: When it has to be at its end, by the loop's clock.
        whole: Whether it is no stream, so that only its beginning is read.
        """
        self._response = response
        self._limits = limits
        self._deadline = deadline
        self._whole = whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields the pieces.

        Raises:
            ProviderStreamCut: the connection broke, or the provider fell silent.
            ProviderAnswerOverLimit: the answer takes too long.
        """
        left = MAX_WHOLE_BYTES
        while chunk := await self._read():
            if not self._whole:
                yield chunk
                continue
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return

    async def aclose(self) -> None:
        """Gives the connection back if the whole body was read, else closes it at once."""
        self._response.release()

    async def _read(self) -> bytes:
        try:
            async with asyncio.timeout_at(self._deadline) as whole_time:
                return await self._response.content.read(CHUNK_BYTES)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            if whole_time.expired():
                raise took_too_long(self._limits) from error
            if isinstance(error, TimeoutError):
                raise ProviderStreamCut("the provider fell silent in the middle of its answer") from error
            raise ProviderStreamCut("the connection to the provider broke before the end of its answer") from error


def took_too_long(limits: Limits) -> ProviderAnswerOverLimit:
    """Returns the error for an answer that is not at its end in time."""
    return ProviderAnswerOverLimit.of("takes too long", "max_answer_seconds", limits.max_answer_seconds)
