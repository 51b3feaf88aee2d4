"""All that is stored of waiting messages, while it is needed: few of them are in memory at the same time."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from turnwire.core.turns.waiting.places import Place
from turnwire.domain.fair_semaphore import FairSemaphore


@contextlib.asynccontextmanager
async def whole_places(
    places: Iterable[Place],
    fill: Callable[[Place], Awaitable[object]],
    reads: FairSemaphore,
    *,
    max_bytes: int = 0,
    acquire: Callable[[str, int], Awaitable[None]] | None = None,
) -> AsyncIterator[list[Place]]:
    """Reads the first places of one session, and has memory for them meanwhile.

    It waits for memory for the first one alone. Each further one comes only when it can be had at once: two that wait
    for more while they have some would wait for each other.

    Args:
        places: The places; at least one.
        fill: Reads what a place leaves out.
        reads: The budget of all sessions; see `Environment.reads`.
        max_bytes: The place that passes it is the last one.
        acquire: How to wait for memory; None as `FairSemaphore.acquire` does.
    """
    wholes = list[Place]()
    held_bytes, tenant = 0, ""
    try:
        for place in places:
            size, tenant = _needed_bytes(place, reads), place.turn.tenant
            if not wholes:
                await (acquire or reads.acquire)(tenant, size)
            elif held_bytes > max_bytes or not reads.try_acquire(tenant, size):
                break
            held_bytes += size
            place.is_held = True
            wholes.append(place)
            await fill(place)
            more = _needed_bytes(place, reads) - size
            reads.adjust(tenant, more)
            held_bytes += more
        yield wholes
    finally:
        reads.release(tenant, held_bytes)
        for place in wholes:
            place.is_held = False


def _needed_bytes(place: Place, reads: FairSemaphore) -> int:
    """Returns the memory for a place. A message that is answered again is read beside, so its place tells nothing."""
    size = place.size_bytes if place.is_outline else place.held_bytes
    if size is None or place.turn.regenerates:
        return reads.limit // 2
    return min(size, reads.limit)
