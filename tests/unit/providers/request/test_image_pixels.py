"""Sizes of images, from first bytes that may be cut or wrong."""

import struct

import pytest

from turnwire.providers.request.image_pixels import longest_side

_FRAME = b"\x00\x11\x08" + struct.pack(">HH", 300, 700)
_TABLE = b"\xff\xe0\x00\x04ab"
"""A segment of four bytes with its length."""
_WEBP = b"RIFF\0\0\0\0WEBP"

IMAGES = {
    "PNG": b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR" + struct.pack(">II", 700, 300),
    "GIF": b"GIF89a" + struct.pack("<HH", 300, 700),
    "JPEG": b"\xff\xd8" + _TABLE * 2 + b"\xff\xc0" + _FRAME,
    "JPEG with tables that look like sizes": b"\xff\xd8\xff\xc4\x00\x08\x08\xff\xff\xff\xff\x01\xff\xc2" + _FRAME,
    "WebP, lossy": _WEBP + b"VP8 " + bytes(10) + struct.pack("<HH", 700 | 0x4000, 300 | 0xC000),
    "WebP, lossless": _WEBP + b"VP8L" + bytes(5) + struct.pack("<I", 299 | 699 << 14),
    "WebP, extended": _WEBP + b"VP8X" + bytes(8) + (299).to_bytes(3, "little") + (699).to_bytes(3, "little"),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_the_longer_side_is_told(kind: str) -> None:
    """An image that is cut has no longer one, and before its size is there, none."""
    image = IMAGES[kind]
    assert longest_side(image + b"content") == 700
    for length in range(len(image)):
        assert longest_side(image[:length]) <= 700
    assert longest_side(image[:8]) == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no image",
        b"RIFF\0\0\0\0WAVEVP8 " + bytes(20),
        _WEBP + b"XXXX" + bytes(20),
        b"\xff\xd8" + _TABLE + b"\0 no marker",
        b"\xff\xd8" + _TABLE,
    ],
)
def test_of_other_bytes_no_size_is_known(data: bytes) -> None:
    """A provider may know more of them; nothing is raised."""
    assert longest_side(data) == 0
