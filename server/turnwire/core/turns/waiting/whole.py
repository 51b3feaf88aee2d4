"""All that is stored of waiting messages, while it is needed: few of them are in memory at the same time."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from turnwire.core.turns.waiting.places import Place
from turnwire.domain.incremental.room import Room


@contextlib.asynccontextmanager
async def whole_places(
    places: Iterable[Place],
    fill: Callable[[Place], Awaitable[object]],
    room: Room,
    *,
    max_bytes: int = 0,
    take: Callable[[str, int], Awaitable[None]] | None = None,
) -> AsyncIterator[list[Place]]:
    """Reads the first places of one session, and has room for what they are meanwhile.

    It waits for room for the first one alone. Each further one comes only when there is room at once: two that wait for
    more while they have some would wait for each other.

    Args:
        places: The places; at least one.
        fill: Reads what a place leaves out.
        room: That of all sessions; see `Environment.beginnings`.
        max_bytes: The place that passes it is the last one.
        take: How to wait for room; None as `Room.take` does.
    """
    wholes = list[Place]()
    held_bytes = 0
    try:
        for place in places:
            size = _needed_bytes(place, room)
            if not wholes:
                await (take or room.take)(place.turn.tenant, size)
            elif held_bytes > max_bytes or not room.has_room(size):
                break
            held_bytes += size
            place.is_held = True
            wholes.append(place)
            await fill(place)
            more = _needed_bytes(place, room) - size
            room.change(more)
            held_bytes += more
        yield wholes
    finally:
        room.change(-held_bytes)
        for place in wholes:
            place.is_held = False


def _needed_bytes(place: Place, room: Room) -> int:
    """Returns the room for a place. A message that is answered again is read beside, so its place tells nothing."""
    size = place.size_bytes if place.is_outline else place.held_bytes
    if size is None or place.turn.regenerates:
        return room.max_bytes // 2
    return min(size, room.max_bytes)
