"""Long lists as bytes, encoded a few elements at a time."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from google.protobuf.message import Message

from turnwire.api.wire.framing import frame

ELEMENTS_AT_ONCE = 32
"""Converting one takes 10 to 50 microseconds."""

BYTES_AT_ONCE = 256 * 1024
"""Size of encoded elements after which the event loop runs other tasks; one alone may be larger."""

T = TypeVar("T")


async def framed(values: Iterable[T], convert: Callable[[T], Message], rest: Message) -> bytes:
    """Returns a response: the values as the elements of a repeated field 1, and the other fields from `rest`.

    The event loop runs other tasks between a few elements. Safe to cancel.
    """
    frames: list[bytes] = []
    count, size = 0, 0
    for value in values:
        frames.append(frame(convert(value).SerializeToString()))
        count, size = count + 1, size + len(frames[-1])
        if count >= ELEMENTS_AT_ONCE or size >= BYTES_AT_ONCE:
            await asyncio.sleep(0)
            count, size = 0, 0
    frames.append(rest.SerializeToString())
    return b"".join(frames)
