"""Sessions: creating, listing, changing and deleting conversations."""

import asyncio

import msgspec
from msgspec import UNSET, Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.inputs import SessionChange
from turnwire.core.turns.registry import Turns
from turnwire.core.uncancelled import Uncancelled
from turnwire.core.use_cases.choices import check_agent, check_directory, check_schemas
from turnwire.core.work import Work
from turnwire.domain.conversation.events import SessionCreated, SessionDeleted, SessionUpdated, SessionView
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import StaleVersion
from turnwire.domain.principal import Principal
from turnwire.ports.commit import NewEvent, PutSession, RemoveSession
from turnwire.ports.store import Page, Spent


class SessionViews(Struct, frozen=True):
    """A page of sessions."""

    sessions: tuple[SessionView, ...]
    next_token: str
    """"" on the last page."""
    truncated: bool
    """Further sessions were left out because they would not fit into one answer."""


class Sessions:
    """The use cases about sessions. Every method may raise StorageError, and about one session SessionNotFound."""

    def __init__(self, environment: Environment, turns: Turns) -> None:
        """Takes the ports and who runs the turns."""
        self._environment = environment
        self._turns = turns
        self._uncancelled = Uncancelled()
        self._changing = asyncio.Lock()  # from reading settings to storing the changed ones; held for one commit

    async def create(self, principal: Principal, settings: SessionChange) -> SessionView:
        """Creates an empty session. Raises InvalidRequest when a setting is wrong."""
        await check_schemas(() if settings.tools is UNSET else settings.tools)
        now = self._environment.clock()
        session = Session(session_id=self._environment.new_id("ses"), created_at=now, updated_at=now)
        session = self._changed(session, settings)
        work = Work((PutSession(session),), (NewEvent(SessionCreated(SessionView(session))),))
        committed = await self._environment.commit(session.session_id, work, now)
        return SessionView(msgspec.structs.replace(session, head_sequence=committed.sequence))

    async def get(self, principal: Principal, session_id: str) -> SessionView:
        """Returns a session with its running turn and queue."""
        return self._turns.view(await self._environment.store.session(session_id))

    async def spent(self, principal: Principal, session_id: str) -> Spent:
        """Returns what the ended turns of a session have used."""
        return await self._environment.store.spent(session_id)

    async def list(self, principal: Principal, page: Page) -> SessionViews:
        """Returns sessions, most recently updated first.

        A page without size has those that fit into `CoreSettings.max_list_bytes`.

        Raises:
            InvalidRequest: the page token is not of this listing.
        """
        found = await self._environment.store.sessions(self._environment.settings.bounded(page))
        return SessionViews(tuple(map(self._turns.view, found.sessions)), found.next_token, found.truncated)

    async def update(self, principal: Principal, session_id: str, change: SessionChange) -> SessionView:
        """Changes settings; they count from the next turn on. A change that changes nothing stores nothing.

        Raises:
            InvalidRequest: a setting is wrong.
            StaleVersion: the session has another revision than expected.
        """
        await check_schemas(() if change.tools is UNSET else change.tools, "tools.tools")
        return await self._uncancelled.run(self._update_alone(session_id, change))

    async def _update_alone(self, session_id: str, change: SessionChange) -> SessionView:
        async with self._changing:
            return await self._update(session_id, change)

    async def delete(self, principal: Principal, session_id: str) -> None:
        """Ends the running turn, then removes the session with all that belongs to it. Goes on when it is cancelled."""
        await self._environment.store.session(session_id)
        await self._uncancelled.run(self._delete(session_id))

    async def aclose(self) -> None:
        """Waits for changes and deletions whose callers are gone. Idempotent."""
        await self._uncancelled.settle()

    async def _delete(self, session_id: str) -> None:
        self._turns.refuse_messages(session_id)
        try:
            await self._turns.end_turns(session_id)
            work = Work((RemoveSession(),), (NewEvent(SessionDeleted()),))
            await self._environment.commit(session_id, work, self._environment.clock())
        finally:
            self._turns.accept_messages(session_id)

    async def _update(self, session_id: str, change: SessionChange) -> SessionView:
        session = await self._environment.store.session(session_id)
        if change.expected_revision not in (None, session.revision):
            raise StaleVersion(
                f"the session has revision {session.revision}", {"currentVersion": str(session.revision)}
            )
        changed = self._changed(session, change)
        if changed == session:
            return self._turns.view(session)
        now = self._environment.clock()
        changed = msgspec.structs.replace(changed, revision=session.revision + 1, updated_at=now)
        event = NewEvent(SessionUpdated(self._turns.view(changed)))
        committed = await self._environment.commit(session_id, Work((PutSession(changed),), (event,)), now)
        return self._turns.view(msgspec.structs.replace(changed, head_sequence=committed.sequence))

    def _changed(self, session: Session, change: SessionChange) -> Session:
        fields: dict[str, object] = {}
        if change.title is not UNSET:
            fields["title"] = change.title
        if change.directory is not UNSET:
            fields["directory"] = check_directory(change.directory)
        if change.model is not UNSET:
            if change.model is not None:
                self._environment.providers.check(change.model)
            fields["model"] = change.model
        if change.agent is not UNSET:
            fields["agent"] = check_agent(self._environment.settings, change.agent)
        for name in ("tools", "compaction", "budget"):
            if (value := getattr(change, name)) is not UNSET:
                fields[name] = value
        return msgspec.structs.replace(session, **fields)
