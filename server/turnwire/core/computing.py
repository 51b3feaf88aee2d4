"""Runs long computations on a thread, so that they do not block the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.sizes import body_bytes

T = TypeVar("T")

MANY_PARTS = 200
"""Number of messages, or of their parts, above which they are processed on a thread: they take 2 milliseconds."""

MANY_BYTES = 256 * 1024
"""Size of messages above which they are processed on a thread: they take as long."""


async def compute(work: Callable[[], T], messages: Sequence[Message]) -> T:
    """Returns the result of a computation on messages.

    If this is cancelled, the computation may continue, so it must be the only user of what it changes.

    Args:
        work: The computation. It runs at once, or on a thread.
        messages: All messages whose content it reads.
    """
    return await asyncio.to_thread(work) if _are_many(messages) else work()


def _are_many(messages: Sequence[Message]) -> bool:
    if len(messages) > MANY_PARTS or sum(len(message.parts) for message in messages) > MANY_PARTS:
        return True
    return sum(map(body_bytes, messages)) > MANY_BYTES
