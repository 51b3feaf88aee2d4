"""Converting requests that may be large."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

LARGE_BYTES = 256 * 1024
"""Size from which a request is converted on a worker thread: its texts are read, and digested when it has a name."""

R = TypeVar("R", bound=Message)
T = TypeVar("T")


async def converted(convert: Callable[[R], T], request: R) -> T:
    """Returns the values of a request; those of a large one are made on a thread. Raises what `convert` raises."""
    if request.ByteSize() > LARGE_BYTES:
        return await asyncio.to_thread(convert, request)
    return convert(request)
