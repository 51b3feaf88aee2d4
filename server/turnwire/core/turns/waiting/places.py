"""Places: where messages stand in their sessions before their turns run."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from turnwire.core.context.next_request import settings_bytes
from turnwire.core.ending.closing import Ending, end_turn
from turnwire.core.work import Work
from turnwire.domain.conversation.events import (
    ConversationChange,
    ConversationChanged,
    MessageAdded,
    MessageRemoved,
    MessageReplaced,
    TurnSteered,
)
from turnwire.domain.conversation.messages import FinishReason, Message, MessageStatus, MessageType, Text
from turnwire.domain.conversation.turns import QueueEntry, Turn
from turnwire.domain.text import memory_bytes
from turnwire.ports.commit import Committed, NewEvent, PathEnd, PutMessage, RemoveMessage, SelectPath
from turnwire.ports.store import Store


@dataclass(eq=False)
class Place:
    """The place of a message in its session: its turn starts at once, or waits behind others.

    It is reserved before the message is stored, so that the response and the stored work can contain it. From when it
    is stored until its turn starts, it is an outline: it has neither the content of the message nor the tools and the
    system prompt of the turn, however many wait. `fill` reads them, and `fill_turn` those of the turn alone.
    """

    turn: Turn
    """RUNNING when it starts at once, else QUEUED."""
    message: Message
    """The user message; QUEUED when its turn waits. Of a turn that answers a message again it stands for that one while
    it waits, unless it is an edited form of it."""
    queue_position: int = 0
    """Its place among the waiting messages, from 1; 0 when it starts at once."""
    work: Work = field(default_factory=Work)
    """What is stored and told about the place; it follows the message's own."""
    durable: asyncio.Future[Committed] | None = None
    """The commit that stores the message; None before `start`, and when an earlier process stored it."""
    is_outline: bool = False
    size_bytes: int | None = None
    """Of an outline, what `held_bytes` was; None when an earlier process stored it."""
    is_held: bool = False
    """Whether somebody works with all of it."""

    @classmethod
    def waiting(cls, turn: Turn, message_id: str) -> "Place":
        """Returns the place of a stored message that waits, as an outline."""
        return cls(turn.outline(), _outline(turn, message_id), is_outline=True)

    @property
    def entry(self) -> QueueEntry:
        """The place as clients see it while it waits."""
        return QueueEntry(self.message.message_id, self.turn.turn_id, self.turn.busy_policy)

    @property
    def is_stored(self) -> bool:
        """True once its message is durable."""
        return self.durable is None or (self.durable.done() and self.durable.exception() is None)

    @property
    def held_bytes(self) -> int:
        """What the texts of the message, the tools and the system prompt of the turn take in memory."""
        texts = (part.content.text for part in self.message.parts if isinstance(part.content, Text))
        return sum(map(memory_bytes, texts)) + settings_bytes(self.turn)

    def empty(self) -> None:
        """Leaves out what may be large; call it once the message is stored."""
        if not self.is_outline:
            self.size_bytes = self.held_bytes
        self.turn = self.turn.outline()
        self.message = _outline(self.turn, self.message.message_id)
        self.work, self.is_outline = Work(), True

    def empty_unless_held(self) -> None:
        """As `empty`, unless somebody works with all of it, who empties it then."""
        if not self.is_held:
            self.empty()

    async def fill_turn(self, store: Store) -> None:
        """Reads what was left out of the turn; the place stays an outline. As `fill`."""
        if self.is_outline:
            self.turn = await store.of(self.turn.tenant).turn(self.turn.session_id, self.turn.turn_id)

    def empty_turn(self) -> None:
        """Leaves out of an outline what `fill_turn` has read."""
        if self.is_outline:
            self.turn = self.turn.outline()

    async def fill(self, store: Store) -> None:
        """Reads what was left out. Does nothing when nothing was. Safe to cancel.

        Raises:
            SessionNotFound, TurnNotFound, MessageNotFound: they are gone.
            StorageError: they could not be read.
        """
        if not self.is_outline:
            return
        reads, session_id = store.of(self.turn.tenant), self.turn.session_id
        turn = await reads.turn(session_id, self.turn.turn_id)
        message = await reads.message(session_id, self.message.message_id)
        self.turn, self.message, self.is_outline = turn, message, False

    async def settled(self) -> bool:
        """Returns whether its message is stored, once that is known. Safe to cancel."""
        if self.durable is not None:
            await asyncio.wait((self.durable,))
        return self.is_stored


def leading_work(turn: Turn, now: datetime, question: Message, stands_in: str = "") -> Work:
    """Returns the work that leads the path to the message that a turn answers again, or before it for an edited form.

    Args:
        turn: The turn.
        now: When it begins.
        question: The message.
        stands_in: The waiting message that stands for it and goes; "" for none.
    """
    told = NewEvent(ConversationChanged(ConversationChange.ALTERNATIVE_SELECTED, None), turn.turn_id)
    if turn.user_message_id != turn.regenerates:
        return Work((SelectPath(turn.regenerates, PathEnd.BEFORE),), (told,))
    answered = msgspec.structs.replace(question, turn_id=turn.turn_id, updated_at=now)
    work = Work(
        (SelectPath(turn.regenerates, PathEnd.HERE), PutMessage(answered, ())),
        (told, NewEvent(MessageReplaced(answered), turn.turn_id)),
    )
    if not stands_in:
        return work
    return Work((RemoveMessage(stands_in),), (NewEvent(MessageRemoved(stands_in), turn.turn_id),)) + work


def _outline(turn: Turn, message_id: str) -> Message:
    return Message(
        message_id=message_id,
        session_id=turn.session_id,
        type=MessageType.USER,
        status=MessageStatus.QUEUED,
        created_at=turn.created_at,
        updated_at=turn.created_at,
        turn_id=turn.turn_id,
    )


def dropping_work(place: Place, now: datetime) -> Work:
    """Returns the work that takes a message out of the queue and ends its turn, which never ran.

    The place may be an outline unless the turn is late: then the message goes back into the conversation.
    """
    dropped = Ending(FinishReason.ABORTED)
    return _leaving_work(place) + end_turn(place.turn, (), dropped, now, is_outline=place.is_outline)


def joining_work(place: Place, turn_id: str, now: datetime) -> Work:
    """Returns the work that moves a message out of the queue into a running turn, and ends its own one."""
    message = msgspec.structs.replace(place.message, status=MessageStatus.COMPLETE, updated_at=now)
    told = NewEvent(TurnSteered(message.message_id, turn_id), turn_id)
    merged = msgspec.structs.replace(place.turn, merged_into_turn_id=turn_id)
    ended = end_turn(merged, (), Ending(FinishReason.MERGED), now)
    return Work((PutMessage(message, ()),), (told,)) + ended


def _leaving_work(place: Place) -> Work:
    """Returns the work that takes a message out of the queue: removed, or put back into the conversation."""
    message_id = place.message.message_id
    removed = NewEvent(MessageRemoved(message_id), place.turn.turn_id)
    if not place.turn.is_late:
        return Work((RemoveMessage(message_id),), (removed,))
    back = msgspec.structs.replace(place.message, status=MessageStatus.COMPLETE, turn_id="")
    return Work((PutMessage(back, (), at_end=True),), (removed, NewEvent(MessageAdded(back))))
