"""Brings sessions of an archive: each is stored whole or not at all, in parts that are invisible until the last one.

Memory is that of one batch, however large a session is.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import BinaryIO

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.readable_files import is_allowed_directory
from turnwire.core.intake.requests import NamedRequest
from turnwire.core.use_cases.moving.continuing import Continued, Continuing
from turnwire.core.use_cases.moving.formats import OWN
from turnwire.core.use_cases.moving.identities import Identities, Source
from turnwire.core.use_cases.moving.parts import Item, Reading, SessionInParts, changes_of, end_of, first_words_in
from turnwire.core.use_cases.moving.progress import ImportedSession, ImportOutcome
from turnwire.domain.archive.records import ArchivedSession, ImportProblem, SessionEnd
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged, SessionCreated, SessionView
from turnwire.domain.conversation.sessions import Session, begun
from turnwire.domain.errors import IdTaken, QuotaExceeded, SessionMoving, SessionNotFound
from turnwire.domain.principal import Principal
from turnwire.domain.shards import shard_of
from turnwire.ports.commit import NewEvent, Work
from turnwire.ports.moving.archives import ArchiveReader

NOT_STORED = "NOT_STORED"
"""Why a session was left out: it was deleted at once, something has an id of what came since, or no server had it."""
DIFFERS = "DIFFERS"
"""Why nothing of a session was stored: it was continued here, or changed here or in its source."""
MISSING = "MISSING"
"""A finding of a verification: the session, or its end, is missing."""

NOT_ASKED = 255
"""In place of the candidate of a session: it is not to be brought."""


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


class Brought(Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one session of an archive."""

    number: int
    """Its place in the archive, from 0."""
    session: ImportedSession | None = None
    """None when nothing of it was stored, or it is for another server."""
    problem: ImportProblem | None = None
    is_refused: bool = False
    """Whether it was left out, and the same import may bring it."""
    is_incomplete: bool = False
    """Whether it is not here as the archive has it."""
    shard: int | None = None
    """The shard whose owner is to bring it; None when it is brought or left out."""
    candidate: int = 0
    """The first of the ids that it may get that has not turned out to be taken; see `Source.candidates`."""


class _OfAnotherServer(Exception):
    """The session is another server's."""

    def __init__(self, shard: int, candidate: int) -> None:
        self.shard, self.candidate = shard, candidate


def source_of(principal: Principal, request: ImportRequest, reader: ArchiveReader, session: Session) -> Source:
    """Returns what identifies a session of an archive."""
    return Source(principal.tenant, request.format or OWN, session.session_id, reader.keeps_ids)


class Bringing:
    """Brings sessions of one archive into this server's store. Used by one task.

    The task may be cancelled: what is half stored is removed.
    """

    def __init__(
        self,
        environment: Environment,
        principal: Principal,
        request: ImportRequest,
        reader: ArchiveReader,
        note_position: Callable[[int], None],
    ) -> None:
        """Takes the ports, whose sessions they will be, and a function to call with how many bytes were read."""
        self._environment = environment
        self._store = environment.store.of(principal.tenant)
        self._principal, self._request, self._reader = principal, request, reader
        self._note_position = note_position
        self._key = environment.store.token_key
        self.session_id = ""
        """The session to which it writes now; "" between two."""

    async def bring(self, archive: BinaryIO, note: Callable[[Brought], None], candidates: bytes | None = None) -> None:
        """Brings sessions of an archive one after the other; in a dry run it says what it would bring.

        Args:
            archive: Can seek. It was validated.
            note: Called with what became of each session.
            candidates: For each session the first id to try, or NOT_ASKED; None brings all.

        Raises:
            StorageError: nothing more can be stored; what was brought stays.
        """
        reading = Reading(self._reader, archive, self._request.options)
        left = None if candidates is None else len(candidates) - candidates.count(NOT_ASKED)
        while left != 0 and (batch := await reading.next()):
            if not any(isinstance(one, ArchivedSession) for one in batch):  # problems before a session, or after all
                continue
            number = reading.sessions - isinstance(batch[-1], SessionEnd)
            candidate = 0 if candidates is None else candidates[number]
            if candidate != NOT_ASKED:
                note(await self._bring(reading, number, batch, candidate))
                left = None if left is None else left - 1
            await end_of(reading)
            self._note_position(reading.position)

    async def _bring(self, reading: Reading, number: int, first: list[Item], candidate: int) -> Brought:
        """Brings the session that begins in the first batch, or what came since it was imported."""
        await self._environment.store.removals()  # else ids of an attempt that failed would seem to be taken
        self._note_position(reading.position)
        session = next(one.session for one in first if isinstance(one, ArchivedSession))
        source = source_of(self._principal, self._request, self._reader, session)
        known = source.imported_as(self._key, await self._store.known_sessions(source.possible_ids(self._key)))
        session_id, done = known.session_id if known else "", None
        try:
            if known is not None:
                done = await self._go_on(known, reading, first, candidate)
            elif not self._request.stores_nothing:
                session_id = await self._store_new(source, reading, number, first, candidate)
        except _OfAnotherServer as other:
            return Brought(number=number, shard=other.shard, candidate=other.candidate)
        except QuotaExceeded as error:
            return self._left_out(number, session, error.reason, error.message)
        except (IdTaken, SessionNotFound) as error:  # of what came since, or it is deleted again
            return self._left_out(number, session, NOT_STORED, f"{error.message}; the same import may bring it")
        finally:
            self.session_id = ""
        messages = await end_of(reading)
        done = done or Continued(outcome=ImportOutcome.CREATED, messages=messages, added=messages)
        return self._brought(number, session, session_id, done)

    def _left_out(self, number: int, session: Session, reason: str, explanation: str) -> Brought:
        problem = left_out(session, reason, explanation)
        return Brought(number=number, problem=problem, is_refused=True, is_incomplete=True)

    def _brought(self, number: int, session: Session, session_id: str, done: Continued) -> Brought:
        """Returns what became of a session."""
        lacks_some = self._request.stores_nothing and done.outcome in {ImportOutcome.CREATED, ImportOutcome.ADDED}
        problem = None
        if done.missing:
            text = f"the session is not as it was imported: {done.missing} messages from here on are not stored"
            problem = left_out(session, DIFFERS, text, done.place)
        elif lacks_some and self._request.verify:
            is_new = done.outcome is ImportOutcome.CREATED
            text = "the session is not here" if is_new else f"{done.added} messages from here on are not here"
            problem = left_out(session, MISSING, text, done.place)
        imported = ImportedSession(
            source_id=session.session_id[:500],
            session_id=session_id,
            message_count=done.messages,
            outcome=done.outcome,
            added_messages=done.added,
            missing_messages=done.missing,
        )
        is_incomplete = lacks_some or done.missing > 0
        return Brought(number=number, session=imported, problem=problem, is_incomplete=is_incomplete)

    async def _go_on(self, known: Identities, reading: Reading, first: list[Item], candidate: int) -> Continued:
        """Adds what came since to a session that is here. Raises as `Continuing.carry_out`, and _OfAnotherServer."""
        self._begin(known.session_id, candidate)
        continuing = Continuing(
            self._environment,
            known,
            self._principal.tenant,
            stores_nothing=self._request.stores_nothing,
        )
        try:
            return await continuing.carry_out(reading, first)
        except SessionMoving:
            raise _OfAnotherServer(shard_of(known.session_id), candidate) from None

    async def _store_new(self, source: Source, reading: Reading, number: int, first: list[Item], candidate: int) -> str:
        """Stores a session whole. Returns its id.

        Raises:
            QuotaExceeded: the tenant may not store it; nothing of it stays.
            SessionNotFound: it was deleted at once.
            _OfAnotherServer: this one may not write to a session of the id that is to be tried next.
        """
        every = enumerate(source.candidates(self._key, self._environment.new_id))
        for place, identities in itertools.islice(every, candidate, None):
            self._begin(identities.session_id, place)
            try:
                await self._store_as(identities, reading, first)
            except IdTaken:
                if reading.last is not first:
                    first = await reading.again(number)
                continue
            except SessionMoving:
                raise _OfAnotherServer(shard_of(identities.session_id), place) from None
            break
        return (await self._store.session(identities.session_id)).session_id

    def _begin(self, session_id: str, candidate: int) -> None:
        """Notes to which session it writes. Raises _OfAnotherServer."""
        servers = self._environment.servers
        if servers is not None and not (self._request.stores_nothing or servers.owns(session_id)):
            raise _OfAnotherServer(shard_of(session_id), candidate)
        self.session_id = session_id

    async def _store_as(self, identities: Identities, reading: Reading, batch: list[Item]) -> None:
        """Stores a session under some ids, or nothing of it. Raises IdTaken: something else has one of them."""
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
                self._note_position(reading.position)
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

    def _allowed(self, session: Session) -> Session:
        """Returns a session without a directory that its tenant may not have."""
        if not session.directory or is_allowed(self._environment, self._principal, session.directory):
            return session
        return msgspec.structs.replace(session, directory="")


def is_allowed(environment: Environment, principal: Principal, directory: str) -> bool:
    """Returns whether an imported session may have a directory."""
    settings = environment.settings
    roots = settings.roots(principal.tenant)
    return directory.startswith("/") and is_allowed_directory(directory, roots, settings.written_roots)


def left_out(session: Session, reason: str, explanation: str, place: str = "") -> ImportProblem:
    """Returns the problem that tells why something of a session is not here."""
    return ImportProblem(reason=reason, explanation=explanation, place=place, source_id=session.session_id)
