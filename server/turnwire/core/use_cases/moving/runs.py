"""One import: reads an archive twice, because nothing may be stored of a wrong one.

The first reading checks everything, and finds out how large each session is where a quota wants to know. The second one
stores session after session, each in parts that nobody sees until the last one. Memory is that of one batch, however
large a session is.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.readable_files import is_allowed_directory
from turnwire.core.quotas.reservations import Reservation, Reservations
from turnwire.core.use_cases.moving.identities import Identities, Source
from turnwire.core.use_cases.moving.parts import SessionInParts
from turnwire.core.use_cases.moving.progress import ImportedSession, ImportProgress
from turnwire.core.use_cases.moving.reading import Item, Reading
from turnwire.core.use_cases.moving.validation import Validation
from turnwire.core.work import Work
from turnwire.domain.archive.records import (
    ArchivedFile,
    ArchivedMessage,
    ArchivedSession,
    ArchivedTurn,
    ImportProblem,
    SessionEnd,
)
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged, SessionCreated, SessionView
from turnwire.domain.conversation.sessions import Session, begun
from turnwire.domain.conversation.titles import first_words
from turnwire.domain.errors import IdTaken, QuotaExceeded, SessionNotFound
from turnwire.domain.principal import Principal
from turnwire.ports.commit import Change, NewEvent, NoteFirstWords, PutFile, PutMessage, PutTurn
from turnwire.ports.moving.archives import ArchiveReader

NOT_STORED = "NOT_STORED"
"""Why a session was left out: it was deleted at once."""


class ImportPlan(Struct, frozen=True, kw_only=True):
    """What to import, and how."""

    principal: Principal
    format_name: str
    options: Mapping[str, str]
    dry_run: bool


class ImportRun:
    """Carries one import out. Used by one task, which may be cancelled: what is half stored is removed."""

    def __init__(
        self,
        environment: Environment,
        reservations: Reservations,
        plan: ImportPlan,
        *,
        reader: ArchiveReader,
        progress: ImportProgress,
    ) -> None:
        """Takes what it shares with other imports, what to do, and where to tell of it."""
        self._environment = environment
        self._store = environment.store.of(plan.principal.tenant)
        self._reservations = reservations
        self._plan = plan
        self._reader = reader
        self._progress = progress
        self._key = environment.store.token_key

    async def carry_out(self, archive: BinaryIO) -> None:
        """Checks the whole archive, then stores its sessions; in a dry run it says what it would store.

        Args:
            archive: Can seek.

        Raises:
            ArchiveInvalid: it cannot be imported; nothing was stored.
            InvalidRequest: an option is wrong.
            StorageError: nothing more can be stored; what was imported stays.
        """
        sizes = await self._validate(archive)
        reading = Reading(self._reader, archive, self._plan.options)
        while batch := await reading.next():
            if not any(isinstance(one, ArchivedSession) for one in batch):  # problems before a session, or after all
                continue
            number = reading.sessions - isinstance(batch[-1], SessionEnd)
            await self._bring(reading, number, batch, sizes[number])
        self._progress.done_bytes = self._progress.total_bytes

    async def _validate(self, archive: BinaryIO) -> Sequence[int]:
        """Checks the whole archive. Returns the bytes that its sessions take; zeros where no quota wants to know."""
        reading = Reading(self._reader, archive, self._plan.options)
        quotas = self._environment.settings.quotas_of(self._plan.principal.tenant)
        validation = Validation(
            self._is_allowed, checks_values=not self._reader.keeps_ids, measures=bool(quotas.max_stored_bytes)
        )
        while batch := await reading.next():
            for problem in await asyncio.to_thread(validation.check, batch):
                self._progress.add_problem(problem)
            self._progress.done_bytes = reading.position // 2
        return validation.sizes

    async def _bring(self, reading: Reading, number: int, first: list[Item], stored_bytes: int) -> None:
        """Imports the session that begins in a batch, unless it is there.

        Args:
            reading: Is behind the batch.
            number: How many sessions come before.
            first: The batch.
            stored_bytes: What the session takes.
        """
        await self._environment.store.removals()  # else ids of an attempt that failed would seem to be taken
        session = next(one.session for one in first if isinstance(one, ArchivedSession))
        plan = self._plan
        source = Source(plan.principal.tenant, plan.format_name, session.session_id, self._reader.keeps_ids)
        known = source.imported_as(self._key, await self._store.known_sessions(source.possible_ids(self._key)))
        try:
            if known or plan.dry_run:
                session_id, messages = known.session_id if known else "", await self._skip(reading, first)
            else:
                session_id, messages = await self._store_new(source, reading, number, first, stored_bytes)
        except QuotaExceeded as error:
            self._leave_out(session, error.reason, error.message)
            await self._skip(reading, first)
        except SessionNotFound as error:  # it is deleted again
            self._leave_out(session, NOT_STORED, f"{error.message}; the same import may bring it")
        else:
            self._progress.add_session(
                ImportedSession(
                    source_id=session.session_id[:500],
                    session_id=session_id,
                    message_count=messages,
                    existed=known is not None,
                )
            )

    def _leave_out(self, session: Session, reason: str, explanation: str) -> None:
        self._progress.refused_sessions += 1
        self._progress.add_problem(ImportProblem(reason=reason, explanation=explanation, source_id=session.session_id))

    async def _skip(self, reading: Reading, batch: list[Item]) -> int:
        """Reads to the end of a session. Returns how many messages it has."""
        self._show(reading)
        while not isinstance(batch[-1], SessionEnd):
            batch = await reading.next()
            self._show(reading)
        return batch[-1].messages

    async def _store_new(
        self, source: Source, reading: Reading, number: int, first: list[Item], stored_bytes: int
    ) -> tuple[str, int]:
        """Stores a session whole. Returns its id, and how many messages it has.

        Raises:
            QuotaExceeded: nothing more of it was read.
            SessionNotFound: it was deleted at once.
        """
        tenant = self._plan.principal.tenant
        with self._reservations.reserve(tenant, copied_bytes=stored_bytes, is_new_session=True) as reserved:
            for identities in source.candidates(self._key, self._environment.new_id):
                try:
                    messages = await self._store_as(identities, reading, first, reserved)
                except IdTaken:
                    if reading.last is not first:
                        first = await reading.again(number)
                    continue
                break
        return (await self._store.session(identities.session_id)).session_id, messages

    async def _store_as(
        self, identities: Identities, reading: Reading, batch: list[Item], reserved: Reservation
    ) -> int:
        """Stores a session under some ids. Returns how many messages it has.

        Raises:
            IdTaken: something else has one of the ids. Nothing of the session stays.
        """
        archived = next(one.session for one in batch if isinstance(one, ArchivedSession))
        session = await asyncio.to_thread(self._allowed, identities.session(archived))
        in_parts, available, words = SessionInParts(self._environment, session), set[str](), ""
        try:
            while True:
                if await self._store.is_taken(await asyncio.to_thread(identities.names, batch)):
                    raise IdTaken.of("session", session.session_id)
                changes = await asyncio.to_thread(_changes_of, batch, identities, available)
                if not words and (noted := await asyncio.to_thread(_first_words, changes)):
                    words = noted.first_words
                    changes.append(noted)
                await in_parts.put(changes)
                self._show(reading)
                if isinstance(batch[-1], SessionEnd):
                    break
                batch = await reading.next()
            await in_parts.stored()
            changed = ConversationChanged(ConversationChange.IMPORTED, None, reread=True)
            events = (NewEvent(SessionCreated(SessionView(begun(session, words)))), NewEvent(changed))
            storing = in_parts.publish(batch[-1].messages, Work((), events))
            reserved.until(storing)
            await asyncio.shield(storing)
        except BaseException:
            await in_parts.give_up()
            raise
        return batch[-1].messages

    def _show(self, reading: Reading) -> None:
        done = (self._progress.total_bytes + reading.position) // 2
        self._progress.done_bytes = max(done, self._progress.done_bytes)  # a session may be read again

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
                renamed = identities.message(message, available)
                off_path = identities.branch(branch)
                taken_back = hidden and off_path is None
                changes.append(PutMessage(renamed, is_hidden=taken_back, branch=off_path))
    return changes


def _first_words(changes: list[Change]) -> NoteFirstWords | None:
    """Returns what notes the first words that messages have; None when none of them has any."""
    messages = (one.message for one in changes if isinstance(one, PutMessage))
    noted = (NoteFirstWords(message.message_id, first_words(message)) for message in messages)
    return next((one for one in noted if one.first_words), None)
