"""Sessions and archives in parts, so that a long one does not block the commits of others, or fill the memory."""

import asyncio
from asyncio import Future
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import BinaryIO

import msgspec

from turnwire.core.environment import Environment
from turnwire.core.use_cases.moving.identities import Identities
from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedTurn,
    ImportProblem,
    Record,
    SessionEnd,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.sizes import message_bytes
from turnwire.domain.conversation.titles import first_words
from turnwire.domain.shards import id_beside
from turnwire.event_loop.tasks import retrieve
from turnwire.ports.commit import (
    Change,
    Commit,
    Committed,
    JoinSession,
    NoteFirstWords,
    PublishSession,
    PutFile,
    PutMessage,
    PutSession,
    PutTurn,
    RemoveSession,
    SessionState,
    Work,
)
from turnwire.ports.moving.archives import ArchiveReader, SeekingReader

PART_CHANGES = 100
PART_BYTES = 2**20
"""Maximum size of one commit: others wait some tens of milliseconds for it at most."""


class SessionInParts:
    """One session while it is stored in parts. Used by one task; the session is invisible until it is published."""

    def __init__(self, environment: Environment, session: Session, *, joins: bool = False) -> None:
        """Takes the ports, the session as it is to be, and whether it exists and the parts are to join it."""
        self._environment = environment
        self._session = session
        own = session.session_id
        self._id = id_beside(own, lambda: environment.new_id("ses")) if joins else own
        self._joins = own if joins else ""
        self._quotas = environment.within_quotas(session.tenant)
        self._is_begun = False
        self._storing: Future[Committed] | None = None  # the last part; the one before it is durable

    async def put(self, changes: Sequence[Change]) -> None:
        """Stores changes in one commit. Returns when those before are durable: the next ones can be made meanwhile.

        Raises:
            QuotaExceeded: the tenant may not store this or an earlier part.
            IdTaken: something else has an id of this or an earlier part, or of the session.
            StorageError: this or an earlier part could not be stored.
        """
        await self.stored()
        own = msgspec.structs.replace(self._session, session_id=self._id, revision=1)
        first = () if self._is_begun else (PutSession(own, self._joins),)
        self._is_begun = True
        self._storing = self._commit(Work((*first, *changes)) + self._quotas)
        self._storing.add_done_callback(retrieve)

    async def stored(self) -> None:
        """Returns when all that was put is durable. Raises what `put` raises."""
        if self._storing is not None:
            await asyncio.shield(self._storing)

    def publish(self, messages: int, work: Work) -> "Future[Committed]":
        """Makes the session, with this number of messages, visible; further work in the same commit has its events.

        Returns the store's own future, which must not be cancelled.
        """
        publishing = self._commit(Work((PublishSession(messages, self._session.updated_at),)) + work + self._quotas)
        publishing.add_done_callback(self._give_up_unless_published)
        return publishing

    def join(self, messages: int, work: Work, updated_at: datetime) -> "Future[Committed]":
        """Appends all parts, with this number of messages, to their session, with further work in the same commit.

        Returns the store's own future, which must not be cancelled.
        """
        joining = self._environment.commit(
            self._session.tenant,
            self._session.session_id,
            work + Work((JoinSession(self._id, messages, updated_at),)) + self._quotas,
            self._environment.clock(),
        )
        joining.add_done_callback(self._give_up_unless_published)
        return joining

    async def give_up(self) -> None:
        """Removes what was stored. The store repeats it when it fails, and at its next start."""
        if self._is_begun:
            await asyncio.wait((self._remove(),))

    def _give_up_unless_published(self, publishing: "Future[Committed]") -> None:
        if publishing.cancelled() or publishing.exception() is not None:
            self._remove()

    def _remove(self) -> "Future[Committed]":
        removing = self._commit(Work((RemoveSession(),)))
        removing.add_done_callback(retrieve)
        return removing

    def _commit(self, work: Work) -> "Future[Committed]":
        return self._environment.store.commit(
            Commit(
                tenant=self._session.tenant,
                session_id=self._id,
                state=SessionState.IMPORTING,
                at=self._environment.clock(),
                changes=work.changes,
                events=work.events,
            )
        )


def changes_of(batch: list[Record | ImportProblem], identities: Identities, available: set[str]) -> list[Change]:
    """Returns what stores some records of an archive; adds their files to those that are available."""
    changes = list[Change]()
    for one in batch:
        match one:
            case ArchivedFile(sha256, content):
                available.add(sha256)
                changes.append(PutFile(sha256, content))
            case ArchivedTurn(turn):
                changes.append(PutTurn(identities.turn(turn)))
            case ArchivedMessage(message, hidden, branch):
                renamed = identities.message(message, available)
                off_path = identities.branch(branch)
                taken_back = hidden and off_path is None
                changes.append(PutMessage(renamed, is_hidden=taken_back, branch=off_path))
    return changes


def first_words_in(changes: Iterable[Change]) -> NoteFirstWords | None:
    """Returns what notes the first words that messages have; None when none of them has any."""
    messages = (one.message for one in changes if isinstance(one, PutMessage))
    noted = (NoteFirstWords(message.message_id, first_words(message)) for message in messages)
    return next((one for one in noted if one.first_words), None)


def parts_of(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Yields changes in parts for `SessionInParts.put`, in order."""
    part, size = list[Change](), 0
    for change in changes:
        part.append(change)
        size += len(change.content) if isinstance(change, PutFile) else 0
        size += message_bytes(change.message) if isinstance(change, PutMessage) else 0
        if len(part) >= PART_CHANGES or size >= PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


Item = Record | ImportProblem


class Reading:
    """Reads an archive. A batch is about what one commit stores, and ends with the end of a session at the latest."""

    def __init__(self, reader: ArchiveReader, source: BinaryIO, options: Mapping[str, str]) -> None:
        """Begins at the beginning of the source, whatever was read of it before."""
        self._reader = reader
        self._source = source
        self._options = options
        self._items: Iterator[Item] | None = None
        self.position = 0
        """Number of bytes that have been read."""
        self.sessions = 0
        """Number of sessions that have been read to their end."""
        self.last = list[Item]()
        """The batch that was read last."""
        self._begin = (0, 0)
        """The position at which the session of the last batch begins, and the number of those before it."""

    @property
    def is_at_end(self) -> bool:
        """Whether the last batch has ended its session."""
        return bool(self.last) and isinstance(self.last[-1], SessionEnd)

    async def next(self) -> list[Item]:
        """Returns the next items; [] at the end of the archive."""
        self.last = await asyncio.to_thread(self._next)
        return self.last

    async def again(self, sessions: int) -> list[Item]:
        """Goes back, and returns the first batch behind some sessions."""
        self._items, self.position, self.sessions = None, 0, 0
        if isinstance(self._reader, SeekingReader) and self._begin[1] == sessions > 0:
            self.position, self.sessions = self._begin  # else an archive of sessions with equal ids is read as often
            self._items = iter(self._reader.read_from(self._source, self.position, sessions))
        while self.sessions < sessions:
            await self.next()
        return await self.next()

    def _next(self) -> list[Item]:
        if self._items is None:
            self._source.seek(0)
            self._items = iter(self._reader.read(self._source, self._options))
        if self.is_at_end:
            self._begin = self.position, self.sessions
        batch, size = list[Item](), 0
        for item in self._items:
            batch.append(item)
            read = self._advanced()  # the whole of a line, whatever it has
            size += max(read, _bytes_of(item))
            if isinstance(item, SessionEnd):
                self.sessions += 1
                break
            if len(batch) >= PART_CHANGES or size >= PART_BYTES:
                break
        self._advanced()
        return batch

    def _advanced(self) -> int:
        """Moves the position to where the reader is. Returns by how many bytes."""
        before = self.position
        if not self._source.closed:
            self.position = self._source.tell()
        return self.position - before


async def end_of(reading: Reading) -> int:
    """Reads to the end of a session. Returns how many messages it has."""
    while not reading.is_at_end:
        await reading.next()
    end = reading.last[-1]
    return end.messages if isinstance(end, SessionEnd) else 0


def _bytes_of(item: Item) -> int:
    match item:
        case ArchivedFile(content=content):
            return len(content)
        case ArchivedMessage(message):
            return message_bytes(message)
    return 0
