"""Changes of waiting messages: edits, moves, removals, and joining a running turn, each one commit."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager

import msgspec
import structlog
from msgspec import Struct

from turnwire.core.ending.closing import ended_turns
from turnwire.core.environment import Environment
from turnwire.core.intake.contents import Contents
from turnwire.core.quotas.reservations import Reservation
from turnwire.core.turns.waiting.places import Place, dropping_work, joining_work
from turnwire.core.turns.waiting.queue import SessionQueue
from turnwire.core.turns.waiting.whole import whole_places
from turnwire.core.work import Work
from turnwire.domain.conversation.events import MessageReplaced
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry
from turnwire.domain.errors import InvalidRequest, MessageNotWaiting
from turnwire.domain.text import utf8_bytes
from turnwire.ports.commit import Change, Committed, NewEvent, PutMessage, PutTurn, RemoveMessage

log = structlog.get_logger()

MAX_JOINING_BYTES = 8 * 2**20
"""Of the messages that join a turn in one commit; one alone may be larger."""

Reserve = Callable[[Message], AbstractContextManager[Reservation]]


class MessageEdit(Struct, frozen=True):
    """What changes in a waiting message."""

    message_id: str
    contents: Contents | None
    """All that it has from now on; None leaves its content."""
    policy: BusyPolicy | None
    """None leaves its policy."""

    def apply_to(self, place: Place, aim_of: Callable[[BusyPolicy], str], environment: Environment) -> Work:
        """Changes a place, and returns the work that stores it.

        Raises InvalidRequest and MessageTooLarge before anything has changed.
        """
        now = environment.clock()
        changes: list[Change] = []
        if place.turn.regenerates and self.policy is BusyPolicy.STEER:
            raise InvalidRequest.of("busy_policy", "is STEER, and a new answer is a turn of its own")
        if self.contents is not None:
            others = utf8_bytes(place.message.metadata_json)
            self.contents.check_size(environment.settings.limits, others, "parts")
        if self.contents is not None and place.turn.regenerates:  # an edited question from now on
            place.turn = msgspec.structs.replace(place.turn, user_message_id=self.message_id)
            changes.append(PutTurn(place.turn))
        if self.policy is not None:
            aim = aim_of(self.policy)
            place.turn = msgspec.structs.replace(place.turn, busy_policy=self.policy, aimed_at_turn_id=aim)
            changes.append(PutTurn(place.turn))
        if self.contents is None:
            return Work(tuple(changes))
        parts = self.contents.parts(environment.new_id)
        place.message = message = msgspec.structs.replace(place.message, parts=parts, updated_at=now)
        # removed and written anew, so that no part of the old one stays; then the files, which both may have
        changes += [RemoveMessage(self.message_id), *self.contents.changes(now), PutMessage.whole(message)]
        return Work(tuple(changes), (NewEvent(MessageReplaced(message), place.turn.turn_id),))


class QueueChanges:
    """Changes the queue of one session, one change after the other.

    A change is visible here as soon as its commit is on its way, like a new message, and is taken back when that fails.
    Every method returns when the change is durable, with the revision of the queue, and raises StorageError,
    MessageNotWaiting, and StaleVersion when `further` requires another revision. None may be cancelled: what waits here
    would differ from what is stored.
    """

    def __init__(
        self,
        environment: Environment,
        tenant: str,
        session_id: str,
        queue: SessionQueue,
        aim_of: Callable[[BusyPolicy], str],
        *,
        interrupt: Callable[[Place], None],
    ) -> None:
        """Args:
        environment: Ports and settings.
        tenant: Whose session it is.
        session_id: The session.
        queue: Its queue.
        aim_of: Returns the turn that a message with a policy acts on.
        interrupt: Called when a change is stored: ends the turn that a message is to interrupt from now on.
        """
        self._environment = environment
        self._tenant = tenant
        self._session_id = session_id
        self._queue = queue
        self._aim_of = aim_of
        self._interrupt = interrupt

    async def edit(self, edit: MessageEdit, reserve: Reserve, further: Work) -> tuple[Message, int]:
        """Changes a message.

        Args:
            edit: What changes.
            reserve: Reserves what the message takes.
            further: More work for the same commit.

        Returns:
            The new message, and the revision of the queue.
        """
        async with self._queue.changing, self._whole(edit.message_id) as place:
            return await self._edit(place, edit, reserve, further)

    async def _edit(self, place: Place, edit: MessageEdit, reserve: Reserve, further: Work) -> tuple[Message, int]:
        before = place.turn, place.message
        work = edit.apply_to(place, self._aim_of, self._environment)
        former = self._queue.remove(place)
        if edit.policy in (None, BusyPolicy.QUEUE):
            self._queue.put_back(place, former)
        else:
            self._queue.add(place)
        try:
            with reserve(place.message) as reserved:
                storing = self._commit(work + self._queue.ordered() + further)
                reserved.until(storing)
            committed = await storing
        except Exception:
            place.turn, place.message = before
            self._take_back(place, former)
            raise
        self._interrupt(place)
        return place.message, committed.queue_revision

    async def move(self, message_id: str, before_message_id: str, further: Work) -> tuple[tuple[QueueEntry, ...], int]:
        """Moves a message before another one; "" moves it to the end. Returns the queue and its revision."""
        async with self._queue.changing:
            place = self._queue.find(message_id)
            before = self._queue.find(before_message_id) if before_message_id else None
            former = self._queue.move(place, before)
            storing = self._commit(self._queue.ordered() + further)
            entries = self._queue.shown()
            try:
                return entries, (await storing).queue_revision
            except Exception:
                self._take_back(place, former)
                raise

    async def remove(self, message_id: str, further: Work) -> int:
        """Removes a message and ends its turn. Returns the revision of the queue."""
        async with self._queue.changing:
            if not self._queue.find(message_id).turn.is_late:
                return await self._remove(self._queue.find(message_id), further)
            async with self._whole(message_id) as place:  # its message goes back into the conversation
                return await self._remove(place, further)

    async def _remove(self, place: Place, further: Work) -> int:
        former = self._queue.remove(place)
        work = dropping_work(place, self._environment.clock())
        try:
            revision = (await self._commit(work + further)).queue_revision
        except Exception:
            self._queue.put_back(place, former)
            place.empty_unless_held()
            raise
        self._report_ended(work)
        return revision

    async def join(self, turn_id: str, takes_messages: Callable[[], bool]) -> None:
        """Lets the messages that are aimed at the running turn join it; returns when that is durable.

        Those that are large together join in several commits, so that few of them are in memory. When it cannot be
        stored, they wait on: for the next step, or for their own turns.

        Args:
            turn_id: The turn.
            takes_messages: Returns False once the turn is to end.
        """
        async with self._queue.changing:
            try:
                while takes_messages() and (places := self._queue.joining(turn_id)):
                    async with self._all_of(places) as wholes:
                        if takes_messages():
                            await self._join([place for place in wholes if place in self._queue], turn_id)
            except Exception as error:
                log.warning("turn_not_steered", session_id=self._session_id, error=type(error).__name__)

    async def _join(self, places: list[Place], turn_id: str) -> None:
        if not places:  # an abort took them meanwhile
            return
        now = self._environment.clock()
        former = [self._queue.remove(place) for place in places]
        work = sum((joining_work(place, turn_id, now) for place in places), Work())
        try:
            await self._commit(work)
        except BaseException:
            for place, one in zip(reversed(places), reversed(former), strict=True):
                self._queue.put_back(place, one)
            raise
        self._report_ended(work)

    @contextlib.asynccontextmanager
    async def _whole(self, message_id: str) -> AsyncIterator[Place]:
        """Has a place with all that is stored of its message. Raises MessageNotWaiting, and TooManyTurns: no room."""
        async with self._all_of([self._queue.find(message_id)]) as [place]:
            if place not in self._queue:  # an abort took it meanwhile
                raise MessageNotWaiting(f"message {message_id!r} does not wait", message_id)
            yield place

    @contextlib.asynccontextmanager
    async def _all_of(self, places: list[Place]) -> AsyncIterator[list[Place]]:
        """Has the first places whole, as many as fit into memory together. Raises TooManyTurns: there is no room."""
        reads, store = self._environment.reads, self._environment.store

        async def fill(place: Place) -> None:
            await place.fill(store)

        try:
            async with whole_places(
                places, fill, reads, max_bytes=MAX_JOINING_BYTES, acquire=reads.acquire_soon
            ) as wholes:
                yield wholes
        finally:  # also when one of them could not be read
            for place in places:
                if place in self._queue:
                    place.empty()

    def _report_ended(self, work: Work) -> None:
        for turn in ended_turns(work):
            self._environment.observer.turn_ended(turn, None)

    def _take_back(self, place: Place, former: Place | None) -> None:
        """Puts a place back behind the one that was before it, unless it does not wait any more."""
        if place in self._queue:
            self._queue.put_back(place, former)

    def _commit(self, work: Work) -> "asyncio.Future[Committed]":
        changed = work + self._queue.changed()
        return self._environment.commit(self._tenant, self._session_id, changed, self._environment.clock())
