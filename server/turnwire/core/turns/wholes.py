"""Waiting messages with everything stored of them, while it is needed: few of them are in memory at the same time."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from msgspec import Struct

from turnwire.core.context.next_request import settings_bytes
from turnwire.core.environment import Environment
from turnwire.core.turns.schedule import Waiting
from turnwire.domain.conversation.messages import Message, Text
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.text import memory_bytes


class Whole(Struct, frozen=True):
    """A waiting message with everything that is stored of it."""

    waiting: Waiting
    """As it was when it was read."""
    turn: Turn
    message: Message


def held_bytes(turn: Turn, message: Message) -> int:
    """Returns the memory of the texts of a message, and of the tools and the system prompt of its turn."""
    texts = (part.content.text for part in message.parts if isinstance(part.content, Text))
    return sum(map(memory_bytes, texts)) + settings_bytes(turn)


@contextlib.asynccontextmanager
async def read_whole(
    environment: Environment,
    waiting: Iterable[Waiting],
    *,
    max_bytes: int = 0,
    acquire: Callable[[str, int], Awaitable[None]] | None = None,
) -> AsyncIterator[list[Whole]]:
    """Reads the first of the waiting messages of one session, and holds memory for them meanwhile.

    It waits for memory for the first one only. Each further one is read only if memory is available at once: two
    readers that wait for more while they hold some would wait for each other.

    Args:
        environment: The store, and the budget of all sessions.
        waiting: The messages; at least one.
        max_bytes: The message that exceeds it is the last one.
        acquire: Waits for memory; None uses `FairSemaphore.acquire`.

    Raises:
        SessionNotFound, TurnNotFound, MessageNotFound: they are gone.
        StorageError: they could not be read.
    """
    budget, wholes, held, tenant = environment.reads, list[Whole](), 0, ""
    try:
        for one in waiting:
            size, tenant = _needed_bytes(one.size_bytes, one.turn, budget), one.turn.tenant
            if not wholes:
                await (acquire or budget.acquire)(tenant, size)
            elif held > max_bytes or not budget.try_acquire(tenant, size):
                break
            held += size
            reads, session_id = environment.store.of(tenant), one.turn.session_id
            turn = await reads.turn(session_id, one.turn.turn_id)
            message = await reads.message(session_id, one.message_id)
            wholes.append(Whole(one, turn, message))
            more = _needed_bytes(held_bytes(turn, message), turn, budget) - size
            budget.adjust(tenant, more)
            held += more
        yield wholes
    finally:
        budget.release(tenant, held)


def _needed_bytes(size: int | None, turn: Turn, budget: FairSemaphore) -> int:
    """Returns the memory to acquire. A turn that answers again reads another message, whose size is not known."""
    if size is None or turn.regenerates:
        return budget.limit // 2
    return min(size, budget.limit)
