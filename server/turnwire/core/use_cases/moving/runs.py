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
from turnwire.core.use_cases.moving.identities import Identities, Source
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
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import IdTaken, QuotaExceeded, SessionNotFound
from turnwire.domain.principal import Principal
from turnwire.ports.commit import Change, NewEvent, PutFile, PutMessage, PutTurn
from turnwire.ports.moving.archives import ArchiveReader, SeenIds
from turnwire.ports.moving.sessions import SessionNames

Item = Record | ImportProblem

NOT_STORED = "NOT_STORED"
"""Why a session was left out: something has taken one of its ids meanwhile, or it was deleted at once."""


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
    free: tuple[Identities, ...]
    """Those of the ids that it may get of which nothing else has any, the best first."""


class _Batches:
    """Reads an archive in batches on threads. A batch ends with the end of a session at the latest."""

    def __init__(self, reader: ArchiveReader, source: BinaryIO, options: Mapping[str, str]) -> None:
        self._items: Iterator[Item] = iter(reader.read(source, options))
        self._source = source
        self.position = 0
        """How many bytes have been read."""
        self.is_inside = False
        """Whether the batch before has not ended its session."""

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
        self.is_inside = bool(batch) and not isinstance(batch[-1], SessionEnd)
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
        self._key = environment.store.token_key

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
        session_id = known = await self._known(found)
        if known or self._plan.dry_run:
            await self._skip(batches)
        else:
            try:
                session_id = await self._store(found, await self._identities(found), batches)
            except QuotaExceeded as error:
                self._leave_out(found, error.reason, error.message)
                await self._skip(batches)
                return True
            except (IdTaken, SessionNotFound) as error:  # another import was as quick, or it is deleted again
                self._leave_out(found, NOT_STORED, f"{error.message}; the same import may bring it")
                if batches.is_inside:
                    await self._skip(batches)
                return True
        self._progress.add_session(
            ImportedSession(
                source_id=found.session.session_id[:500],
                session_id=session_id,
                message_count=found.messages,
                existed=bool(known),
            )
        )
        return True

    def _leave_out(self, found: _Scouted, reason: str, explanation: str) -> None:
        self._progress.refused_sessions += 1
        self._progress.add_problem(
            ImportProblem(reason=reason, explanation=explanation, source_id=found.session.session_id)
        )

    async def _look_ahead(self, scout: _Batches) -> _Scouted | None:
        """Reads a session without storing it; None at the end of the archive."""
        session, messages, size, free = None, 0, 0, list[Identities]()
        store = self._environment.store.of(self._plan.principal.tenant)
        while batch := await scout.next():
            begun = next((one.session for one in batch if isinstance(one, ArchivedSession)), None)
            if begun is not None:
                session, source = begun, self._source(begun)
                free = [*([source.kept()] if source.is_own else ()), source.derived(self._key)]
            messages += sum(isinstance(one, ArchivedMessage) for one in batch)
            if self._environment.settings.quotas_of(self._plan.principal.tenant).max_stored_bytes:
                size += await asyncio.to_thread(_size_of_all, batch)
            for identities in tuple(free):
                if await store.is_taken(await asyncio.to_thread(identities.names, batch)):
                    free.remove(identities)
            if session is not None and isinstance(batch[-1], SessionEnd):
                return _Scouted(session=session, messages=messages, stored_bytes=size, free=tuple(free))
        return None

    def _source(self, session: Session) -> Source:
        plan = self._plan
        return Source(plan.principal.tenant, plan.format_name, session.session_id, self._reader.keeps_ids)

    async def _known(self, found: _Scouted) -> str:
        """Returns the id of the session if an earlier import has brought it, or the archive came from here; else ""."""
        source, store = self._source(found.session), self._environment.store.of(self._plan.principal.tenant)
        return source.imported_as(self._key, await store.known_sessions(source.possible_ids(self._key)))

    async def _identities(self, found: _Scouted) -> Identities:
        """Returns free ids for a new session. That they still are when it is stored the store makes sure."""
        if found.free:
            return found.free[0]
        source, store = self._source(found.session), self._environment.store.of(self._plan.principal.tenant)
        for session_id in source.derived_ids(self._key)[1:]:
            if not await store.is_taken(SessionNames(session_id)):
                return source.fresh(session_id)
        return source.fresh(self._environment.new_id("ses"))

    async def _store(self, found: _Scouted, identities: Identities, batches: _Batches) -> str:
        """Stores a session whole, and returns its id when it is there.

        Raises:
            QuotaExceeded: nothing of it was read.
            IdTaken: something else has one of the ids by now.
            SessionNotFound: it was deleted at once.
        """
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
        return (await self._environment.store.of(tenant).session(identities.session_id)).session_id

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


def _weight(item: Item) -> int:
    match item:
        case ArchivedFile(content=content):
            return len(content)
        case ArchivedMessage(message):
            return weight(message)
    return 0


def _size_of_all(batch: list[Item]) -> int:
    return sum(size_of(one) for one in batch if not isinstance(one, ImportProblem))
