"""Sessions that are here already: whether one is as an archive has it.

What the archive has of it since is added, as a whole or not at all.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.use_cases.moving.identities import Identities
from turnwire.core.use_cases.moving.parts import Item, Reading, SessionInParts, changes_of, end_of, first_words_in
from turnwire.core.use_cases.moving.progress import ImportOutcome
from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedSession,
    ArchivedTurn,
    ImportProblem,
    Record,
    SessionEnd,
)
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged
from turnwire.domain.conversation.messages import Message, Part, ToolUse
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.errors import IdTaken, StaleVersion
from turnwire.ports.commit import NewEvent, NoteFirstWords, PutTurn, RequireHead, Work
from turnwire.ports.pages import Page

_NO_TIME = datetime.fromtimestamp(0, UTC)


class Comparison:
    """Goes through a session of an archive and one that is here, message by message, with the memory of a batch.

    Settings and times are not compared: people change the former, and some formats do not know the latter.
    """

    def __init__(self, identities: Identities, stored: AsyncGenerator[tuple[Record, ...]]) -> None:
        """Takes the ids that the session has here, and its records."""
        self._identities = identities
        self._stored = stored
        self._is_read = False  # whether all records of the session were read
        self._messages = deque[ArchivedMessage]()  # those that were read and not compared
        self._turns = set[str]()
        self._last_turn: Turn | None = None  # it may have gone on since the session was archived first
        self._session: Session | None = None
        self.equal_messages = 0
        """Number of messages that were compared and are equal."""
        self.last_shown_id: str | None = None
        """The last of them that is not hidden."""
        self.differs_at: str | None = None
        """The first message of the archive that is not as it is here, by its id there; None while all are."""
        self.new_messages = 0
        """Number of messages of the archive that come after all that are here."""
        self.first_new_id = ""
        """The first of them, by its id in the archive."""

    @property
    def session(self) -> Session:
        """The session that is here. Ask when something was compared."""
        if self._session is None:
            raise RuntimeError("nothing was compared yet")
        return self._session

    def has_turn(self, turn: Turn) -> bool:
        """Returns whether a turn of the archive, under its id here, is here."""
        return turn.turn_id in self._turns

    @property
    def is_continued(self) -> bool:
        """Whether the session continues here after the end of the archive. Read it at the end of the session."""
        return bool(self._messages)

    async def take(self, batch: list[Item]) -> list[Item]:
        """Compares a batch of the archive's session. Returns what of it is not here, unless the sessions differ.

        So far as it is known: turns come before messages, so a turn is returned before there is a new message, and so
        are all files.
        """
        messages = sum(isinstance(one, ArchivedMessage) for one in batch)
        while not self._is_read and len(self._messages) <= messages:  # one more, to see whether the session goes on
            records: tuple[Record, ...] | None = await anext(self._stored, None)
            self._note(records or ())
        return await asyncio.to_thread(self._compare, batch)

    def _note(self, records: Iterable[Record]) -> None:
        self._is_read = not records
        for record in records:
            match record:
                case ArchivedSession(session):
                    self._session = session
                case ArchivedTurn(turn):
                    self._turns.add(turn.turn_id)
                    self._last_turn = turn
                case ArchivedMessage():
                    self._messages.append(record)

    def _compare(self, batch: list[Item]) -> list[Item]:
        new = list[Item]()
        for item in batch:
            match item:
                case ArchivedFile():
                    new.append(item)
                case ArchivedTurn(turn):
                    if self._is_new(self._identities.turn(turn)):
                        new.append(item)
                case ArchivedMessage() if not self._messages:
                    self.first_new_id = self.first_new_id or item.message.message_id
                    self.new_messages += 1
                    new.append(item)
                case ArchivedMessage():
                    if not self._is_equal(item, self._messages.popleft()):
                        self.differs_at = item.message.message_id
                        return []
                case ArchivedSession() | SessionEnd() | ImportProblem():
                    pass
        return new

    def _is_new(self, turn: Turn) -> bool:
        if turn.turn_id not in self._turns:
            return True
        last = self._last_turn
        if last is None or turn.turn_id != last.turn_id:
            return False
        known = msgspec.structs.replace(last, subject="", traceparent="", start_sequence=0, end_sequence=0)
        return _outcome_of(turn) != _outcome_of(known)

    def _is_equal(self, archived: ArchivedMessage, stored: ArchivedMessage) -> bool:
        named = {file.sha256 for file in stored.message.all_files()}  # in place of others stands a line of text
        renamed = self._identities.message(archived.message, named)
        branch = self._identities.branch(archived.branch)
        if (_comparable(renamed), branch) != (_comparable(stored.message), stored.branch):
            return False
        if branch is None and archived.hidden != stored.hidden:
            return False
        self.equal_messages += 1
        if not stored.hidden:
            self.last_shown_id = stored.message.message_id
        return True


def _outcome_of(turn: Turn) -> Turn:
    return msgspec.structs.replace(turn, created_at=_NO_TIME, started_at=None, ended_at=None)


def _comparable(message: Message) -> Message:
    return msgspec.structs.replace(
        message, created_at=_NO_TIME, updated_at=_NO_TIME, parts=tuple(map(_without_times, message.parts))
    )


def _without_times(part: Part) -> Part:
    if not isinstance(part.content, ToolUse):
        return part
    return msgspec.structs.replace(
        part, content=msgspec.structs.replace(part.content, started_at=None, finished_at=None)
    )


_UNFINISHED = frozenset(TurnStatus) - {TurnStatus.ENDED}


class Continued(Struct, frozen=True, kw_only=True):
    """The outcome for a session that exists already."""

    outcome: ImportOutcome
    messages: int
    """Number of messages in the archive."""
    added: int = 0
    missing: int = 0
    place: str = ""
    """The first message that is added or missing, by its id in the archive."""


class Continuing:
    """One session that is here, while it is compared and gets what came since. Used by one task."""

    def __init__(
        self,
        environment: Environment,
        identities: Identities,
        tenant: str,
        *,
        stores_nothing: bool,
    ) -> None:
        """Takes the ids that the session has here, whose it is, and whether to tell alone what would be stored."""
        self._environment = environment
        self._store = environment.store.of(tenant)
        self._identities = identities
        self._stores_nothing = stores_nothing
        self._parts: SessionInParts | None = None
        self._available = set[str]()
        self._gone_on: tuple[PutTurn, ...] = ()  # the newest turn that is here, as the archive has it
        self._first_words: tuple[NoteFirstWords, ...] = ()  # of what is new: a session without words takes them

    async def carry_out(self, reading: Reading, batch: list[Item]) -> Continued:
        """Compares the session that begins in a batch, and adds what is not here.

        Raises:
            QuotaExceeded: the tenant may not store it.
            IdTaken: something else has an id of it.
            SessionNotFound: the session was deleted meanwhile.
        """
        begun = next(one.session for one in batch if isinstance(one, ArchivedSession))
        try:
            comparison = await self._compare(reading, batch)
            messages = await end_of(reading)
            if comparison.differs_at is not None:
                missing = messages - comparison.equal_messages
                place = comparison.differs_at
                return Continued(outcome=ImportOutcome.DIFFERS, messages=messages, missing=missing, place=place)
            if comparison.is_continued:
                return Continued(outcome=ImportOutcome.DIFFERS, messages=messages)
            if not comparison.new_messages:
                return Continued(outcome=ImportOutcome.UNCHANGED, messages=messages)
            is_added = await self._is_idle() and (self._stores_nothing or await self._join(comparison, begun))
        finally:
            if self._parts is not None:
                await self._parts.give_up()
        outcome = ImportOutcome.ADDED if is_added else ImportOutcome.DIFFERS
        new, place = comparison.new_messages, comparison.first_new_id
        counts = (new, 0) if is_added else (0, new)
        return Continued(outcome=outcome, messages=messages, added=counts[0], missing=counts[1], place=place)

    async def _compare(self, reading: Reading, batch: list[Item]) -> Comparison:
        """Compares the session until it differs or ends, and stores what is new in parts."""
        async with (
            self._store.archive() as archive,
            contextlib.aclosing(archive.records(self._identities.session_id, include_files=False)) as records,
        ):
            comparison = Comparison(self._identities, records)
            while True:
                new = await comparison.take(batch)
                if comparison.differs_at is not None:
                    break
                if new and not self._stores_nothing:
                    await self._put(comparison, new)
                if reading.is_at_end:
                    break
                batch = await reading.next()
        return comparison

    async def _put(self, comparison: Comparison, new: list[Item]) -> None:
        here = await self._store.stored_files([one.sha256 for one in new if isinstance(one, ArchivedFile)])
        self._available |= here
        wanted = list[Item]()
        for one in new:
            if isinstance(one, ArchivedTurn) and comparison.has_turn(self._identities.turn(one.turn)):
                self._gone_on = (PutTurn(self._identities.turn(one.turn)),)
            elif not (isinstance(one, ArchivedFile) and one.sha256 in here):
                wanted.append(one)
        if not wanted:
            return
        if await self._store.is_taken(await asyncio.to_thread(self._identities.names, wanted)):
            raise IdTaken.of("session", self._identities.session_id)
        if self._parts is None:
            self._parts = SessionInParts(self._environment, comparison.session, joins=True)
        changes = await asyncio.to_thread(changes_of, wanted, self._identities, self._available)
        if not self._first_words and (noted := await asyncio.to_thread(first_words_in, changes)):
            self._first_words = (noted,)
        await self._parts.put(changes)

    async def _is_idle(self) -> bool:
        """Returns whether no turn runs or waits: it would not know of what is added."""
        return not (await self._store.turns(self._identities.session_id, Page(size=1), _UNFINISHED)).turns

    async def _join(self, comparison: Comparison, begun: Session) -> bool:
        """Adds what was stored. Returns whether the session was still as it was compared."""
        if self._parts is None:
            raise RuntimeError("new messages were not put")
        session = comparison.session
        await self._parts.stored()
        changed = ConversationChanged(ConversationChange.IMPORTED, comparison.last_shown_id, reread=True)
        work = Work((RequireHead(session.head_sequence), *self._gone_on, *self._first_words), (NewEvent(changed),))
        joining = self._parts.join(comparison.new_messages, work, max(begun.updated_at, session.updated_at))
        try:
            await asyncio.shield(joining)
        except StaleVersion:
            return False
        self._parts = None
        return True
