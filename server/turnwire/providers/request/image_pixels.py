"""Reads the size of an image from its first bytes. An image that is too large for an API would fail every later
request.
"""

import struct

_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers before the size; the three excluded ones mark other tables."""


def longest_side(data: bytes) -> int:
    """Returns the longer side of a PNG, GIF, JPEG or WebP image in pixels; 0 when it is unknown."""
    try:
        return max(_sides(data))
    except (struct.error, IndexError):
        return 0


def _sides(data: bytes) -> tuple[int, ...]:
    if data.startswith(b"\x89PNG"):
        return struct.unpack_from(">II", data, 16)
    if data.startswith(b"GIF8"):
        return struct.unpack_from("<HH", data, 6)
    if data.startswith(b"\xff\xd8"):
        return _jpeg_sides(data)
    return _webp_sides(data) if data[8:12] == b"WEBP" else (0,)


def _jpeg_sides(data: bytes) -> tuple[int, ...]:
    at = 2
    while data[at] == 0xFF:
        marker, length = struct.unpack_from(">BH", data, at + 1)
        if marker in _START_OF_FRAME:
            return struct.unpack_from(">HH", data, at + 5)
        at += 2 + length
    return (0,)


def _webp_sides(data: bytes) -> tuple[int, ...]:
    match data[12:16]:
        case b"VP8 ":
            return tuple(side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
        case b"VP8L":
            bits = struct.unpack_from("<I", data, 21)[0]
            return ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        case b"VP8X":
            return tuple(int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        case _:
            return (0,)
