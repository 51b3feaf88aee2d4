"""Takes waiting messages out of a queue, with all that is stored of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from turnwire.core.turns.waiting.places import Place
from turnwire.core.turns.waiting.queue import SessionQueue
from turnwire.core.turns.waiting.whole import whole_places
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import MessageNotFound, NotFound, StorageError
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.ports.conversations import AlternativesOf
from turnwire.ports.pages import Page
from turnwire.ports.store import Store

PAUSES_SECONDS = (0.1, 0.5, 2.0)
"""Before each further attempt to read a message."""

log = structlog.get_logger()


class WaitingPlaces:
    """Reads what the places of a queue leave out, when it is needed."""

    def __init__(self, store: Store, queue: SessionQueue, stopping: asyncio.Event, reads: FairSemaphore) -> None:
        """Args:
        store: Where the messages are.
        queue: The queue of one session.
        stopping: Set when nothing is to start any more.
        reads: That of all sessions; see `Environment.reads`.
        """
        self._store = store
        self._queue = queue
        self._stopping = stopping
        self._reads = reads

    async def take_first(self) -> Place | None:
        """Takes the next place out of the queue, with its whole turn and without its message.

        Returns None when none waits or nothing is to start any more. Nothing is awaited between taking a place and
        returning it. One that cannot be read is left out: it waits for the next start.
        """
        while (place := self._queue.first) is not None and not self._stopping.is_set():
            is_read = await self._read(place, place.fill_turn)
            if place is self._queue.first and not self._stopping.is_set():
                self._queue.remove(place)
                if is_read:
                    return place
            else:  # another one came before it
                place.empty_turn()
        return None

    @contextlib.asynccontextmanager
    async def whole(self, place: Place) -> AsyncIterator[bool]:
        """Has all of a place that was taken while the beginning of its turn is being stored; waits for room for that.

        Yields False when its message is gone or cannot be read, and once nothing is to start any more.
        """
        async with whole_places([place], self._fill_to_begin, self._reads):
            yield not self._stopping.is_set() and not place.is_outline

    async def _fill_to_begin(self, place: Place) -> None:
        if not self._stopping.is_set():
            await self._read(place, place.fill)

    async def question(self, turn: Turn) -> Message | None:
        """Returns the message that a turn answers again; None when it waits or was taken back.

        Raises StorageError.
        """
        store = self._store.of(turn.tenant)
        try:
            await store.alternatives(turn.session_id, AlternativesOf(turn.regenerates), Page(size=1))
            return await store.message(turn.session_id, turn.regenerates)
        except MessageNotFound:
            return None

    async def _read(self, place: Place, fill: Callable[[Store], Awaitable[None]]) -> bool:
        for pause in (*PAUSES_SECONDS, None):
            try:
                await fill(self._store)
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
