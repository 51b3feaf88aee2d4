"""Compression of messages: gzip. What comes compressed is bounded by the size of what comes out."""

import asyncio
import zlib

GZIP = "gzip"
IDENTITY = "identity"
SUPPORTED = (GZIP, IDENTITY)

WORTHWHILE_BYTES = 1024
"""Shorter messages are sent as they are: nearly all deltas, for which compression costs more than it saves."""

IN_THREAD_BYTES = 65_536
"""Size from which data is compressed or decompressed on a worker thread: it would block the event loop for some
milliseconds."""

_LEVEL = 4
"""Takes a third of the time of level 6, for a few per cent more bytes."""

_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class BadCompression(Exception):
    """Bytes are not what their encoding says."""


class TooLarge(Exception):
    """A message has more bytes than are allowed."""


def accepts_gzip(accepted: str) -> bool:
    """Returns whether a list of encodings, as in `accept-encoding`, has gzip with a weight above 0."""
    for item in accepted.split(","):
        name, _, weight = item.partition(";")
        if name.strip().lower() == GZIP:
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


async def compress(data: bytes) -> bytes:
    """Returns the bytes compressed by gzip. Safe to cancel."""
    if len(data) < IN_THREAD_BYTES:
        return _compressed(data)
    return await asyncio.to_thread(_compressed, data)


async def decompress(data: bytes, max_bytes: int) -> bytes:
    """Returns what was compressed by gzip. Takes no more memory than `max_bytes` allows. Safe to cancel.

    Raises:
        BadCompression: it is not gzip, or not all of it.
        TooLarge: it has more than `max_bytes`.
    """
    if len(data) < IN_THREAD_BYTES // 64:  # deflate makes at most a thousand bytes of one
        return _decompressed(data, max_bytes)
    return await asyncio.to_thread(_decompressed, data, max_bytes)


def _compressed(data: bytes) -> bytes:
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress(data) + compressor.flush()


def _decompressed(data: bytes, max_bytes: int) -> bytes:
    decompressor = zlib.decompressobj(_GZIP_WINDOW)
    try:
        result = decompressor.decompress(data, max_bytes + 1)
    except zlib.error:
        raise BadCompression("not gzip") from None
    if len(result) > max_bytes:
        raise TooLarge
    if not decompressor.eof or decompressor.unused_data:
        raise BadCompression("not one whole gzip stream")
    return result
