"""Protobuf by hand: tags and lengths, so that long texts are copied once."""

FRAME_TAG = b"\x0a"
"""Field 1, length-delimited: `events` of the batches and `messages` of MessageList are both field 1."""

_FRAME_TAG_BYTE = FRAME_TAG[0]


def tag_of(field: int) -> bytes:
    """Returns the tag of a length-delimited field."""
    return varint(field << 3 | 2)


def varint(number: int) -> bytes:
    """Returns a number as protobuf writes lengths."""
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


def frame(body: bytes) -> bytes:
    """Returns the bytes as an element of a repeated field 1."""
    length = len(body)
    if length < 0x80:  # nearly all deltas
        return bytes((_FRAME_TAG_BYTE, length)) + body
    return FRAME_TAG + varint(length) + body
