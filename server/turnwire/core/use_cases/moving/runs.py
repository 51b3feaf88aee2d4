"""One import: reads an archive three times, because nothing may be stored of a wrong one, or of half a session.

First everything is checked. Then one reader goes ahead of another, session by session: the first finds out how large
the session is and whether its ids are free, the second stores it. So memory is that of one batch, however large a
session is.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.readable_files import is_allowed_directory
from turnwire.core.quotas.reservations import Reservations
from turnwire.core.use_cases.moving.identities import Identities
from turnwire.core.use_cases.moving.progress import ImportedSession, ImportProgress
from turnwire.core.use_cases.moving.staging import PART_BYTES, PART_CHANGES, StagedSession, Staging, weight
from turnwire.core.use_cases.moving.validation import Validation, size_of
from turnwire.core.work import Work
from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedSession,
    ArchivedTurn,
    ImportProblem,
    Record,
    SessionEnd,
)
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged, SessionCreated, SessionView
from turnwire.domain.conversation.messages import ToolUse
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import QuotaExceeded, SessionNotFound
from turnwire.domain.principal import Principal
from turnwire.ports.commit import Change, NewEvent, PutFile, PutMessage, PutTurn
from turnwire.ports.moving.archives import ArchiveReader, SeenIds
from turnwire.ports.moving.sessions import SessionNames

Item = Record | ImportProblem


class ImportPlan(Struct, frozen=True, kw_only=True):
    """What to import, and how."""

    principal: Principal
    format_name: str
    options: Mapping[str, str]
    dry_run: bool


class _Scouted(Struct, frozen=True, kw_only=True):
    """What the reader ahead has found out about a session."""

    session: Session
    messages: int
    stored_bytes: int
    is_taken: bool
    """Whether one of its ids belongs to something else."""


class _Batches:
    """Reads an archive in batches on threads. A batch ends with the end of a session at the latest."""

    def __init__(self, reader: ArchiveReader, source: BinaryIO, options: Mapping[str, str]) -> None:
        self._items: Iterator[Item] = iter(reader.read(source, options))
        self._source = source
        self.position = 0
        """How many bytes have been read."""

    async def next(self) -> list[Item]:
        """Returns the next items; [] at the end of the archive."""
        return await asyncio.to_thread(self._next)

    def _next(self) -> list[Item]:
        batch, size = list[Item](), 0
        for item in self._items:
            batch.append(item)
            read = self._advanced()  # the whole of a line, whatever it has
            size += max(read, _weight(item))
            if isinstance(item, SessionEnd) or len(batch) >= PART_CHANGES or size >= PART_BYTES:
                break
        self._advanced()
        return batch

    def _advanced(self) -> int:
        """Moves the position to where the reader is. Returns by how many bytes."""
        before = self.position
        if not self._source.closed:
            self.position = self._source.tell()
        return self.position - before


class ImportRun:
    """Carries one import out. Used by one task, which may be cancelled: what is half stored is dropped."""

    def __init__(
        self,
        environment: Environment,
        staging: Staging,
        reservations: Reservations,
        plan: ImportPlan,
        *,
        reader: ArchiveReader,
        progress: ImportProgress,
    ) -> None:
        """Takes what it shares with other imports, what to do, and where to tell of it."""
        self._environment = environment
        self._staging = staging
        self._reservations = reservations
        self._plan = plan
        self._reader = reader
        self._progress = progress

    async def validate(self, source: BinaryIO, make_seen: Callable[[], SeenIds]) -> None:
        """Checks the whole archive.

        Raises:
            ArchiveInvalid: it cannot be imported.
            InvalidRequest: an option is wrong.
        """
        batches = _Batches(self._reader, source, self._plan.options)
        seen = await asyncio.to_thread(make_seen)
        try:
            validation = Validation(seen, self._is_allowed, checks_values=not self._reader.keeps_ids)
            while batch := await batches.next():
                for problem in await asyncio.to_thread(validation.check, batch):
                    self._progress.add_problem(problem)
                self._progress.done_bytes = batches.position // 2
        finally:
            await asyncio.to_thread(seen.close)

    async def store(self, ahead: BinaryIO, behind: BinaryIO, keeping: asyncio.Lock) -> None:
        """Stores the sessions one after the other, or, in a dry run, says what it would store.

        Args:
            ahead: The archive, for the reader that goes ahead.
            behind: The archive once more.
            keeping: Held from the look at ids that are to be kept until they are stored: archives may have equal ones.

        Raises:
            StorageError: nothing more can be stored; what was imported stays.
        """
        scout = _Batches(self._reader, ahead, self._plan.options)
        batches = _Batches(self._reader, behind, self._plan.options)
        while True:
            if self._reader.keeps_ids:
                async with keeping:
                    goes_on = await self._next_session(scout, batches)
            else:
                goes_on = await self._next_session(scout, batches)
            if not goes_on:
                self._progress.done_bytes = self._progress.total_bytes
                return

    async def _next_session(self, scout: _Batches, batches: _Batches) -> bool:
        """Imports the next session. Returns False when there is none."""
        await self._staging.settled()  # else ids of an attempt that failed would seem to be taken
        found = await self._look_ahead(scout)
        if found is None:
            return False
        identities, existed = await self._identities(found)
        if not existed and not self._plan.dry_run:
            try:
                await self._store(found, identities, batches)
            except QuotaExceeded as error:
                self._progress.refused_sessions += 1
                self._progress.add_problem(
                    ImportProblem(reason=error.reason, explanation=error.message, source_id=found.session.session_id)
                )
                await self._skip(batches)
                return True
        else:
            await self._skip(batches)
        is_there = existed or not self._plan.dry_run
        self._progress.add_session(
            ImportedSession(
                source_id=found.session.session_id[:500],
                session_id=identities.session_id if is_there else "",
                message_count=found.messages,
                existed=existed,
            )
        )
        return True

    async def _look_ahead(self, scout: _Batches) -> _Scouted | None:
        """Reads a session without storing it; None at the end of the archive."""
        session, messages, size, is_taken = None, 0, 0, False
        store = self._environment.store.of(self._plan.principal.tenant)
        while batch := await scout.next():
            session = next((one.session for one in batch if isinstance(one, ArchivedSession)), session)
            messages += sum(isinstance(one, ArchivedMessage) for one in batch)
            if self._environment.settings.quotas_of(self._plan.principal.tenant).max_stored_bytes:
                size += await asyncio.to_thread(_size_of_all, batch)
            if self._reader.keeps_ids and session is not None and not is_taken:
                is_taken = await store.is_taken(_names_in(session.session_id, batch))
            if session is not None and isinstance(batch[-1], SessionEnd):
                return _Scouted(session=session, messages=messages, stored_bytes=size, is_taken=is_taken)
        return None

    async def _identities(self, found: _Scouted) -> tuple[Identities, bool]:
        """Returns the ids of a session, and whether it is there already."""
        keeps = self._reader.keeps_ids
        kept, derived = self._named(found, keeps=True), self._named(found, keeps=False)
        for identities in (kept, derived) if keeps else (derived,):
            if await self._exists(identities.session_id):
                return identities, True
        return (kept if keeps and not found.is_taken else derived), False

    def _named(self, found: _Scouted, *, keeps: bool) -> Identities:
        plan = self._plan
        return Identities(
            plan.principal.tenant,
            plan.format_name,
            found.session.session_id,
            keeps=keeps,
            is_own=self._reader.keeps_ids,
        )

    async def _exists(self, session_id: str) -> bool:
        try:
            await self._environment.store.of(self._plan.principal.tenant).session(session_id)
        except SessionNotFound:
            return False
        return True

    async def _store(self, found: _Scouted, identities: Identities, batches: _Batches) -> None:
        """Stores a session whole. Raises QuotaExceeded before anything of it is read."""
        tenant = self._plan.principal.tenant
        with self._reservations.reserve(tenant, copied_bytes=found.stored_bytes, is_new_session=True) as reserved:
            staged = self._staging.begin(tenant)
            try:
                session = await self._stage(staged, identities, batches)
                await staged.give_files()
                changed = ConversationChanged(ConversationChange.IMPORTED, None, reread=True)
                events = (NewEvent(SessionCreated(SessionView(session))), NewEvent(changed))
                storing = staged.adopt(session, found.messages, Work((), events))
                reserved.until(storing)
                await asyncio.shield(storing)
            except BaseException:
                staged.drop()
                raise

    async def _stage(self, staged: StagedSession, identities: Identities, batches: _Batches) -> Session:
        """Stores the parts of a session. Returns the session as it is to be."""
        available, session = set[str](), None
        while batch := await batches.next():
            for one in batch:
                if isinstance(one, ArchivedSession):
                    session = await asyncio.to_thread(self._allowed, identities.session(one.session))
            changes = await asyncio.to_thread(_changes_of, batch, identities, available)
            await staged.put(changes)
            self._show(batches)
            if session is not None and isinstance(batch[-1], SessionEnd):
                return session
        raise RuntimeError("an archive that was checked has no end")

    async def _skip(self, batches: _Batches) -> None:
        while batch := await batches.next():
            self._show(batches)
            if isinstance(batch[-1], SessionEnd):
                return

    def _show(self, batches: _Batches) -> None:
        self._progress.done_bytes = (self._progress.total_bytes + batches.position) // 2

    def _allowed(self, session: Session) -> Session:
        """Returns a session without a directory that its tenant may not have."""
        if not session.directory or self._is_allowed(session.directory):
            return session
        return msgspec.structs.replace(session, directory="")

    def _is_allowed(self, directory: str) -> bool:
        settings = self._environment.settings
        roots = settings.roots(self._plan.principal.tenant)
        return directory.startswith("/") and is_allowed_directory(directory, roots, settings.written_roots)


def _changes_of(batch: list[Item], identities: Identities, available: set[str]) -> list[Change]:
    changes = list[Change]()
    for one in batch:
        match one:
            case ArchivedFile(sha256, content):
                available.add(sha256)
                changes.append(PutFile(sha256, content))
            case ArchivedTurn(turn):
                changes.append(PutTurn(identities.turn(turn)))
            case ArchivedMessage(message, hidden, branch):
                renamed, indexes = identities.message(message, available), tuple(range(len(message.parts)))
                off_path = identities.branch(branch)
                taken_back = hidden and off_path is None
                changes.append(PutMessage(renamed, indexes, is_hidden=taken_back, branch=off_path))
    return changes


def _names_in(session_id: str, batch: list[Item]) -> SessionNames:
    messages = [one.message for one in batch if isinstance(one, ArchivedMessage)]
    return SessionNames(
        session_id,
        turn_ids=tuple(one.turn.turn_id for one in batch if isinstance(one, ArchivedTurn)),
        message_ids=tuple(message.message_id for message in messages),
        call_ids=tuple(
            part.part_id for message in messages for part in message.parts if isinstance(part.content, ToolUse)
        ),
    )


def _weight(item: Item) -> int:
    match item:
        case ArchivedFile(content=content):
            return len(content)
        case ArchivedMessage(message):
            return weight(message)
    return 0


def _size_of_all(batch: list[Item]) -> int:
    return sum(size_of(one) for one in batch if not isinstance(one, ImportProblem))
