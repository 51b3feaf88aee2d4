"""One import: reads an archive twice, because nothing may be stored of a wrong one.

The first reading checks everything. The second one stores session after session, each in parts that are invisible until
the last one. Memory is that of one batch, however large a session is.
"""

import asyncio
from collections.abc import Mapping
from typing import BinaryIO

import msgspec

from turnwire.core.environment import Environment
from turnwire.core.intake.readable_files import is_allowed_directory
from turnwire.core.intake.requests import NamedRequest
from turnwire.core.use_cases.moving.continuing import Continued, Continuing
from turnwire.core.use_cases.moving.formats import OWN
from turnwire.core.use_cases.moving.identities import Identities, Source
from turnwire.core.use_cases.moving.parts import Item, Reading, SessionInParts, changes_of, end_of, first_words_in
from turnwire.core.use_cases.moving.progress import ImportedSession, ImportOutcome, ImportProgress
from turnwire.core.use_cases.moving.validation import Validation
from turnwire.domain.archive.records import (
    ArchivedSession,
    ImportProblem,
    SessionEnd,
)
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged, SessionCreated, SessionView
from turnwire.domain.conversation.sessions import Session, begun
from turnwire.domain.errors import IdTaken, QuotaExceeded, SessionNotFound
from turnwire.domain.principal import Principal
from turnwire.ports.commit import NewEvent, Work
from turnwire.ports.moving.archives import ArchiveReader

NOT_STORED = "NOT_STORED"
"""Why a session was left out: it was deleted at once, or something has an id of what came since."""
DIFFERS = "DIFFERS"
"""Why nothing of a session was stored: it was continued here, or changed here or in its source."""
MISSING = "MISSING"
"""A finding of a verification: the session, or its end, is missing."""


class ImportRequest(NamedRequest, frozen=True, kw_only=True):
    """A request for an import."""

    upload_id: str
    format: str = ""
    dry_run: bool = False
    verify: bool = False
    options: Mapping[str, str] = {}

    @property
    def stores_nothing(self) -> bool:
        """Whether to tell alone what an import would do."""
        return self.dry_run or self.verify


class ImportRun:
    """Carries one import out. Used by one task, which may be cancelled: what is half stored is removed."""

    def __init__(
        self,
        environment: Environment,
        principal: Principal,
        request: ImportRequest,
        *,
        reader: ArchiveReader,
        progress: ImportProgress,
    ) -> None:
        """Takes what it shares with other imports, what to do, and where to tell of it."""
        self._environment = environment
        self._store = environment.store.of(principal.tenant)
        self._principal = principal
        self._request = request
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
        await self._validate(archive)
        reading = Reading(self._reader, archive, self._request.options)
        while batch := await reading.next():
            if not any(isinstance(one, ArchivedSession) for one in batch):  # problems before a session, or after all
                continue
            number = reading.sessions - isinstance(batch[-1], SessionEnd)
            await self._bring(reading, number, batch)
        self._progress.done_bytes = self._progress.total_bytes

    async def _validate(self, archive: BinaryIO) -> None:
        reading = Reading(self._reader, archive, self._request.options)
        validation = Validation(self._is_allowed, checks_values=not self._reader.keeps_ids)
        while batch := await reading.next():
            for problem in await asyncio.to_thread(validation.check, batch):
                self._progress.add_problem(problem)
            self._progress.done_bytes = reading.position // 2

    async def _bring(self, reading: Reading, number: int, first: list[Item]) -> None:
        """Imports the session that begins in a batch, or what came since it was imported.

        Args:
            reading: Is behind the batch.
            number: How many sessions come before.
            first: The batch.
        """
        await self._environment.store.removals()  # else ids of an attempt that failed would seem to be taken
        self._show(reading)
        session = next(one.session for one in first if isinstance(one, ArchivedSession))
        request = self._request
        source = Source(self._principal.tenant, request.format or OWN, session.session_id, self._reader.keeps_ids)
        known = source.imported_as(self._key, await self._store.known_sessions(source.possible_ids(self._key)))
        session_id, done = known.session_id if known else "", None
        try:
            if known is not None:
                done = await self._go_on(known, reading, first)
            elif not request.stores_nothing:
                session_id = await self._store_new(source, reading, number, first)
        except QuotaExceeded as error:
            self._leave_out(session, error.reason, error.message)
        except (IdTaken, SessionNotFound) as error:  # of what came since, or it is deleted again
            self._leave_out(session, NOT_STORED, f"{error.message}; the same import may bring it")
        else:
            messages = await end_of(reading)
            done = done or Continued(outcome=ImportOutcome.CREATED, messages=messages, added=messages)
            self._tell(session, session_id, done)
        await end_of(reading)
        self._show(reading)

    def _leave_out(self, session: Session, reason: str, explanation: str) -> None:
        self._progress.refused_sessions += 1
        self._progress.incomplete_count += 1
        self._add_problem(session, reason, explanation)

    def _tell(self, session: Session, session_id: str, done: Continued) -> None:
        """Notes what became of a session."""
        lacks_some = self._request.stores_nothing and done.outcome in {ImportOutcome.CREATED, ImportOutcome.ADDED}
        self._progress.incomplete_count += lacks_some or done.missing > 0
        if done.missing:
            text = f"the session is not as it was imported: {done.missing} messages from here on are not stored"
            self._add_problem(session, DIFFERS, text, done.place)
        elif lacks_some and self._request.verify:
            is_new = done.outcome is ImportOutcome.CREATED
            text = "the session is not here" if is_new else f"{done.added} messages from here on are not here"
            self._add_problem(session, MISSING, text, done.place)
        self._progress.add_session(
            ImportedSession(
                source_id=session.session_id[:500],
                session_id=session_id,
                message_count=done.messages,
                outcome=done.outcome,
                added_messages=done.added,
                missing_messages=done.missing,
            )
        )

    def _add_problem(self, session: Session, reason: str, explanation: str, place: str = "") -> None:
        self._progress.add_problem(
            ImportProblem(reason=reason, explanation=explanation, place=place, source_id=session.session_id)
        )

    async def _go_on(self, known: Identities, reading: Reading, first: list[Item]) -> Continued:
        """Adds what came since to a session that is here. Raises what `Continuing.carry_out` raises."""
        continuing = Continuing(
            self._environment,
            known,
            self._principal.tenant,
            stores_nothing=self._request.stores_nothing,
        )
        return await continuing.carry_out(reading, first)

    async def _store_new(self, source: Source, reading: Reading, number: int, first: list[Item]) -> str:
        """Stores a session whole. Returns its id.

        Raises:
            QuotaExceeded: the tenant may not store it; nothing of it stays.
            SessionNotFound: it was deleted at once.
        """
        for identities in source.candidates(self._key, self._environment.new_id):
            try:
                await self._store_as(identities, reading, first)
            except IdTaken:
                if reading.last is not first:
                    first = await reading.again(number)
                continue
            break
        return (await self._store.session(identities.session_id)).session_id

    async def _store_as(self, identities: Identities, reading: Reading, batch: list[Item]) -> None:
        """Stores a session under some ids.

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
                changes = await asyncio.to_thread(changes_of, batch, identities, available)
                if not words and (noted := await asyncio.to_thread(first_words_in, changes)):
                    words = noted.first_words
                    changes.append(noted)
                await in_parts.put(changes)
                self._show(reading)
                if reading.is_at_end:
                    break
                batch = await reading.next()
            await in_parts.stored()
            changed = ConversationChanged(ConversationChange.IMPORTED, None, reread=True)
            events = (NewEvent(SessionCreated(SessionView(begun(session, words)))), NewEvent(changed))
            await asyncio.shield(in_parts.publish(await end_of(reading), Work((), events)))
        except BaseException:
            await in_parts.give_up()
            raise

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
        roots = settings.roots(self._principal.tenant)
        return directory.startswith("/") and is_allowed_directory(directory, roots, settings.written_roots)
