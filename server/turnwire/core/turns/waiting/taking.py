"""Takes waiting messages out of a queue, with all that is stored of them."""

import asyncio
import contextlib

import structlog

from turnwire.core.turns.waiting.places import Place
from turnwire.core.turns.waiting.queue import SessionQueue
from turnwire.domain.errors import NotFound, StorageError
from turnwire.ports.store import Store

PAUSES_SECONDS = (0.1, 0.5, 2.0)
"""Before each further attempt to read a message."""

log = structlog.get_logger()


class WaitingPlaces:
    """Reads what the places of a queue leave out, when it is needed."""

    def __init__(self, store: Store, queue: SessionQueue, stopping: asyncio.Event) -> None:
        """Args:
        store: Where the messages are.
        queue: The queue of one session.
        stopping: Set when nothing is to start any more.
        """
        self._store = store
        self._queue = queue
        self._stopping = stopping

    async def take_first(self) -> Place | None:
        """Takes the next place out of the queue and fills it; None when none waits or nothing is to start any more.

        Nothing is awaited between taking it and returning it. One that cannot be read is left out: it waits for the
        next start.
        """
        while (place := self._queue.first) is not None and not self._stopping.is_set():
            is_filled = await self.fill(place)
            if place is self._queue.first and not self._stopping.is_set():
                self._queue.remove(place)
                if is_filled:
                    return place
            elif place in self._queue:  # another one came before it
                place.empty()
        return None

    async def fill(self, place: Place) -> bool:
        """Reads what is stored of a message. Returns False when it is gone, or cannot be read after some attempts."""
        for pause in (*PAUSES_SECONDS, None):
            try:
                await place.fill(self._store)
            except (StorageError, NotFound) as error:
                if pause is None or self._stopping.is_set() or isinstance(error, NotFound):
                    log.error("turn_not_read", session_id=place.turn.session_id, reason=error.reason)
                    return False
            else:
                return True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
        raise AssertionError("the last pause is None")
