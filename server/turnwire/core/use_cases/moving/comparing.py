"""Whether a session that is here is as an archive has it, and what came since."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime

import msgspec

from turnwire.core.use_cases.moving.identities import Identities
from turnwire.core.use_cases.moving.reading import Item
from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedSession,
    ArchivedTurn,
    ImportProblem,
    Record,
    SessionEnd,
)
from turnwire.domain.conversation.messages import Message, Part, ToolUse
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn

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
        """How many messages were compared and are equal."""
        self.last_shown_id: str | None = None
        """The last of them that is not hidden."""
        self.differs_at: str | None = None
        """The first message of the archive that is not as it is here, by its id there; None while all are."""
        self.new_messages = 0
        """How many messages of the archive come after all that are here."""
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
        """Whether the session goes on here where the archive ends. Ask at the end of its session."""
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
