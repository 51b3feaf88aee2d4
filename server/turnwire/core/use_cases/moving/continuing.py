"""Sessions that are here already: what an archive has of them since is added, as a whole or not at all."""

import asyncio
import contextlib

from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.quotas.reservations import Reservations
from turnwire.core.use_cases.moving.comparing import Comparison
from turnwire.core.use_cases.moving.identities import Identities
from turnwire.core.use_cases.moving.parts import SessionInParts, changes_of, first_words_in
from turnwire.core.use_cases.moving.progress import ImportOutcome
from turnwire.core.use_cases.moving.reading import Item, Reading, end_of
from turnwire.core.use_cases.moving.validation import size_of
from turnwire.core.work import Work
from turnwire.domain.archive.records import ArchivedFile, ArchivedSession, ArchivedTurn, ImportProblem
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.errors import IdTaken, StaleVersion
from turnwire.ports.commit import NewEvent, NoteFirstWords, PutTurn, RequireHead
from turnwire.ports.pages import Page

_UNFINISHED = frozenset(TurnStatus) - {TurnStatus.ENDED}


class Continued(Struct, frozen=True, kw_only=True):
    """What became of a session that is here."""

    outcome: ImportOutcome
    messages: int
    """How many the archive has."""
    added: int = 0
    missing: int = 0
    place: str = ""
    """The first message that is added or missing, by its id in the archive."""


class Continuing:
    """One session that is here, while it is compared and gets what came since. Used by one task."""

    def __init__(
        self,
        environment: Environment,
        reservations: Reservations,
        identities: Identities,
        tenant: str,
        *,
        stores_nothing: bool,
    ) -> None:
        """Takes the ids that the session has here, whose it is, and whether to tell alone what would be stored."""
        self._environment = environment
        self._store = environment.store.of(tenant)
        self._reservations = reservations
        self._identities = identities
        self._tenant = tenant
        self._stores_nothing = stores_nothing
        self._measures = bool(environment.settings.quotas_of(tenant).max_stored_bytes)
        self._parts: SessionInParts | None = None
        self._available = set[str]()
        self._added_bytes = 0
        self._gone_on: tuple[PutTurn, ...] = ()  # the newest turn that is here, as the archive has it
        self._first_words: tuple[NoteFirstWords, ...] = ()  # of what is new: a session without words takes them

    async def carry_out(self, reading: Reading, batch: list[Item]) -> Continued:
        """Compares the session that begins in a batch, and adds what is not here.

        Raises:
            QuotaExceeded: there is no room for it.
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
        if self._measures:
            self._added_bytes += sum(size_of(one) for one in wanted if not isinstance(one, ImportProblem))
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
        with self._reservations.reserve(self._tenant, copied_bytes=self._added_bytes) as reserved:
            updated_at = max(begun.updated_at, session.updated_at)
            joining = self._parts.join(comparison.new_messages, work, updated_at)
            reserved.until(joining)
        try:
            await asyncio.shield(joining)
        except StaleVersion:
            return False
        self._parts = None
        return True
