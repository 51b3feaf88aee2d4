"""Sessions: creating, listing, changing and deleting conversations."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.requests import NamedRequest, NamedRequests, Receipt, SessionChange, receipt_record
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.schedule import ArchiveSession, Changed, ChangeSettings
from turnwire.core.turns.session import SessionTurns
from turnwire.core.use_cases.choices import changed_session, check_settings
from turnwire.core.use_cases.use_case import UseCase
from turnwire.domain.conversation.events import SessionCreated, SessionView
from turnwire.domain.conversation.sessions import Session, SessionFilter
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.errors import StaleVersion
from turnwire.domain.principal import Principal
from turnwire.ports.commit import NewEvent, PutSession, Work
from turnwire.ports.pages import Page
from turnwire.ports.store import Spent

T = TypeVar("T")

_READS = 4
"""Maximum number of times that a session is read for one answer, however many short turns begin and end meanwhile."""


class SessionViews(Struct, frozen=True):
    """A page of sessions."""

    sessions: tuple[SessionView, ...]
    next_token: str
    """"" on the last page."""
    truncated: bool
    """Further sessions were left out because they would not fit into one answer."""


class Marked(Struct, frozen=True):
    """A session that was archived, or taken out of the archive."""

    sequence: int
    """The session's head just before the event; its head when nothing changed."""
    view: SessionView


class Sessions(UseCase):
    """The use cases about sessions. Every method may raise StorageError, and about one session SessionNotFound."""

    def __init__(self, environment: Environment, turns: Turns, requests: NamedRequests) -> None:
        """Takes what it shares with other use cases."""
        super().__init__(environment, turns, requests)
        self.before_removal: Callable[[str], Awaitable[None]] = _nothing
        """Ends all other work in a session before the session is removed."""

    async def create(self, principal: Principal, new: SessionChange) -> SessionView:
        """Creates an empty session.

        Idempotent when the request is named: a retry gets the present state of the session, and is not checked again.

        Raises:
            InvalidRequest: a setting is wrong, or the request's name was used for another one.
            QuotaExceeded: the tenant may not have more sessions, or not store more.
        """
        return await self._once(principal, new, lambda: self._create(principal, new))

    async def get(self, principal: Principal, session_id: str) -> SessionView:
        """Returns a session with its running turn and queue.

        All are of one moment: the session is read again when a turn has begun or ended meanwhile.
        """
        conversations = self._of(principal)
        for _ in range(_READS - 1):
            running = self._turns.live(session_id)
            session = await conversations.session(session_id)
            if self._turns.live(session_id) is running:
                return self._turns.view(session)
        return self._turns.view(await conversations.session(session_id))

    async def spent(self, principal: Principal, session_id: str) -> Spent:
        """Returns the usage of the ended turns of a session."""
        return await self._of(principal).spent(session_id)

    async def restorable(self, principal: Principal, session_id: str) -> tuple[str, ...]:
        """Returns the ids of the messages that would be restored now, in order: the first 1,000."""
        return await self._of(principal).restorable(session_id)

    async def list(self, principal: Principal, page: Page, wanted: SessionFilter) -> SessionViews:
        """Returns the sessions of the caller's tenant that pass a filter, in the filter's order; see
        `TenantStore.sessions`.

        A page without a size has those that fit into `CoreSettings.max_list_bytes`.

        Raises:
            InvalidRequest: the page token is not of this listing.
        """
        found = await self._of(principal).sessions(self._environment.settings.bounded(page), wanted)
        return SessionViews(tuple(map(self._turns.view, found.sessions)), found.next_token, found.truncated)

    async def update(self, principal: Principal, session_id: str, change: SessionChange) -> SessionView:
        """Changes settings, which count from the next turn on. A change that changes nothing stores nothing.

        Idempotent when the request is named: a retry gets the present state of the session, and is not checked again.

        Raises:
            InvalidRequest: a setting is wrong.
            StaleVersion: the session has another revision than expected.
            QuotaExceeded: the tenant may not store more.
        """
        return await self._once(principal, change, lambda: self._update(principal, session_id, change))

    async def mark_archived(
        self, principal: Principal, session_id: str, request: NamedRequest, *, is_archived: bool
    ) -> Marked:
        """Archives a session or takes it out of the archive. Stores nothing if it is already in that state.

        Idempotent when the request is named: a retry gets the first sequence and the present state of the session.

        Raises:
            InvalidRequest: the request's name was used for another one.
        """
        made = await self._requests.once(
            principal, request, lambda: self._mark(principal, session_id, request, is_archived=is_archived)
        )
        sequence = made.sequence if isinstance(made, Receipt) else made
        return Marked(sequence, await self.get(principal, session_id))

    async def _mark(self, principal: Principal, session_id: str, request: NamedRequest, *, is_archived: bool) -> int:
        session = await self._of(principal).session(session_id)
        record = receipt_record(principal, request, Receipt(session_id=session_id))
        if is_archived == (session.archived_at is not None) and not record.changes:
            return session.head_sequence
        with self._turns.held(principal.tenant, session_id) as owner:
            # alone, because the store adds its event after all others of the commit
            done = await asyncio.shield(owner.ask(ArchiveSession(is_archived, record), alone=True))
        return done.before_sequence

    async def _once(
        self, principal: Principal, change: SessionChange, carry_out: Callable[[], Coroutine[Any, Any, SessionView]]
    ) -> SessionView:
        """Carries a change out; a retry gets the present state of the session. Continues when it is cancelled."""
        answer = await self._requests.once(principal, change, carry_out)
        return await self.get(principal, answer.session_id) if isinstance(answer, Receipt) else answer

    async def _create(self, principal: Principal, new: SessionChange) -> SessionView:
        await check_settings(self._environment, new, principal.tenant)
        now = self._environment.clock()
        session_id = self._environment.new_id("ses")
        session = Session(session_id=session_id, tenant=principal.tenant, created_at=now, updated_at=now)
        session = changed_session(self._environment, session, new)
        work = Work((PutSession(session),), (NewEvent(SessionCreated(SessionView(session))),))
        work += receipt_record(principal, new, Receipt(session_id=session.session_id))
        work += self._environment.within_quotas(principal.tenant)
        committed = await asyncio.shield(self._environment.commit(principal.tenant, session_id, work, now))
        return SessionView(msgspec.structs.replace(session, head_sequence=committed.sequence))

    async def _update(self, principal: Principal, session_id: str, change: SessionChange) -> SessionView:
        session = await self._of(principal).session(session_id)
        await check_settings(self._environment, change, session.tenant, session.directory)
        record = receipt_record(principal, change, Receipt(session_id=session_id))

        async def attempt(owner: SessionTurns, version: int, session: Session) -> SessionView:
            if change.expected_revision not in (None, session.revision):
                revision = str(session.revision)
                raise StaleVersion(f"the session has revision {revision}", {"currentRevision": revision})
            changed = changed_session(self._environment, session, change)
            if changed == session:
                await asyncio.shield(owner.ask(ChangeSettings(version, None, record)))
                return self._turns.view(session)
            further = record + self._environment.within_quotas(session.tenant)
            done = await asyncio.shield(owner.ask(ChangeSettings(version, _revised(changed), further)))
            head = done.before_sequence + 1
            return self._turns.view(msgspec.structs.replace(done.reply, head_sequence=head))

        return await self._change(principal.tenant, session_id, attempt)

    async def _change(
        self, tenant: str, session_id: str, attempt: Callable[[SessionTurns, int, Session], Awaitable[T]]
    ) -> T:
        """Reads a session and attempts to change its settings; repeats that when others changed them meanwhile."""
        with self._turns.held(tenant, session_id) as owner:
            while True:
                version = owner.schedule.settings_version
                session = await self._environment.store.of(tenant).session(session_id)
                with contextlib.suppress(Changed):
                    return await attempt(owner, version, session)

    async def delete(self, principal: Principal, session_id: str) -> None:
        """Ends the running turn, then removes the session and all its data. Continues when it is cancelled."""
        await self._of(principal).session(session_id)
        await self._environment.detached.run(self._delete(principal.tenant, session_id))

    async def give_title(self, turn: Turn, title: str, spent: Work) -> bool:
        """Stores the title that a model made, unless the session has one by now, and in any case the usage of the call.

        Returns:
            Whether the session has this title now. Continues when it is cancelled.

        Raises:
            SessionNotFound: the session was deleted meanwhile; nothing is stored.
        """
        return await self._environment.detached.run(self._give_title(turn, title, spent))

    async def _give_title(self, turn: Turn, title: str, spent: Work) -> bool:
        async def attempt(owner: SessionTurns, version: int, session: Session) -> bool:
            titled = None if session.title else _revised(msgspec.structs.replace(session, title=title))
            await asyncio.shield(owner.ask(ChangeSettings(version, titled, spent)))
            return titled is not None

        return await self._change(turn.tenant, turn.session_id, attempt)

    async def _delete(self, tenant: str, session_id: str) -> None:
        with self._turns.held(tenant, session_id) as owner:
            await owner.delete(self.before_removal)


async def _nothing(_session_id: str) -> None:
    """Ends nothing."""


def _revised(changed: Session) -> Session:
    """Returns a session with the next revision; `ChangeSettings` sets the time of the change."""
    return msgspec.structs.replace(changed, revision=changed.revision + 1)
