"""The body of one answer, unpacked and bounded while it is read."""

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator

import aiohttp
import httpx2

from turnwire.domain.errors import ProviderAnswerOverLimit, ProviderStreamCut, ProviderStreamFailed
from turnwire.domain.limits import Limits

CHUNK_BYTES = 16 * 1024
"""Most that is read, or unpacked, at once."""

LEAST_BYTES, FIRST_BYTES = 256, 4 * 1024
"""Most that is read at once where reads take long, and at first. aiohttp parses what a read asks for in one step, and
the number of chunks decides how long that takes."""

READ_SECONDS = 0.001
"""Of a read that was given all that it asked for; after a longer one, less is asked for."""

MAX_CHARGE_SECONDS = 0.05
"""Counted of a long read, which may have waited for its first byte."""

MAX_WHOLE_BYTES = 64 * 1024
"""Of a body that is no stream, unpacked: an error or a page. The rest is not read."""

_WHOLE = ("application/json", "application/problem+json", "text/html", "application/xhtml+xml", "image/")
"""Media types that are certainly no stream. Some servers give their streams another one, or none."""

Unpack = Callable[[bytes], Iterator[bytes]]
"""Takes the next bytes of a body and yields what they are when unpacked, in pieces of at most `CHUNK_BYTES`."""


def is_stream(status: int, media_type: str) -> bool:
    """Returns whether an answer may be a stream of events, which is read to its end."""
    return 200 <= status < 300 and not media_type.startswith(_WHOLE)


def unpacking(encodings: str) -> Unpack:
    """Returns what unpacks a body.

    Args:
        encodings: The header Content-Encoding; "" for none.

    Raises:
        ProviderStreamFailed: it is packed in a way that was not asked for: several times, for example.
    """
    names = [name for part in encodings.lower().split(",", 8) if (name := part.strip()) not in ("", "identity")]
    if not names:
        return _plain
    if names in (["gzip"], ["x-gzip"]):
        return _Gzip()
    raise ProviderStreamFailed("the answer of the provider is compressed in a way that it was not asked for")


def _plain(data: bytes) -> Iterator[bytes]:
    yield data


class _Gzip:
    """Unpacks one gzip member; what follows it is left out, as zlib would keep all of it."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def __call__(self, data: bytes) -> Iterator[bytes]:
        while not self._inflate.eof:
            try:
                piece = self._inflate.decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                raise ProviderStreamFailed("the answer of the provider cannot be unpacked") from error
            if not piece:
                return
            yield piece
            data = self._inflate.unconsumed_tail


class Body(httpx2.AsyncByteStream):
    """Yields the unpacked body in small pieces. Read once; `aclose` ends the connection unless all was read."""

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        unpack: Unpack,
        limits: Limits,
        deadline: float,
        charge: Callable[[float], None],
        *,
        whole: bool,
    ) -> None:
        """Args:
        response: An open answer; this owns it.
        unpack: Unpacks it.
        limits: What it may bring.
        deadline: When it has to be at its end, by the loop's clock.
        charge: Takes how many seconds a long read took.
        whole: Whether it is no stream, so that only its beginning is read.
        """
        self._response = response
        self._unpack = unpack
        self._limits = limits
        self._deadline = deadline
        self._charge = charge
        self._whole = whole
        self._read_bytes = FIRST_BYTES

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields the pieces.

        Raises:
            ProviderStreamCut: the connection broke, or the provider fell silent.
            ProviderAnswerOverLimit: the answer is too large or takes too long.
            ProviderStreamFailed: it cannot be unpacked.
        """
        received = unpacked = 0
        while chunk := await self._read():
            received += len(chunk)
            self._check(received)
            for piece in self._unpack(chunk):
                unpacked += len(piece)
                if self._whole and unpacked >= MAX_WHOLE_BYTES:
                    yield piece[: len(piece) - (unpacked - MAX_WHOLE_BYTES)]
                    return
                self._check(unpacked)
                yield piece

    async def aclose(self) -> None:
        """Gives the connection back if the whole body was read, else closes it at once."""
        self._response.release()

    async def _read(self) -> bytes:
        wanted, began = self._read_bytes, time.perf_counter()
        try:
            async with asyncio.timeout_at(self._deadline) as whole_time:
                chunk = await self._response.content.read(wanted)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            if whole_time.expired():
                raise took_too_long(self._limits) from error
            if isinstance(error, TimeoutError):
                raise ProviderStreamCut("the provider fell silent in the middle of its answer") from error
            raise ProviderStreamCut("the connection to the provider broke before the end of its answer") from error
        if len(chunk) == wanted:
            seconds = time.perf_counter() - began
            if seconds > READ_SECONDS:
                self._read_bytes = max(LEAST_BYTES, wanted // 2)
                self._charge(min(seconds, MAX_CHARGE_SECONDS))
            else:
                self._read_bytes = min(CHUNK_BYTES, wanted * 2)
        return chunk

    def _check(self, size: int) -> None:
        limit = self._limits.max_answer_received_bytes
        if size > limit:
            raise ProviderAnswerOverLimit.of("is too large", "max_answer_received_bytes", limit)


def took_too_long(limits: Limits) -> ProviderAnswerOverLimit:
    """Returns the error for an answer that is not at its end in time."""
    return ProviderAnswerOverLimit.of("takes too long", "max_answer_seconds", limits.max_answer_seconds)
