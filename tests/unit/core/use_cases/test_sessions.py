"""Who waits for whom when settings of sessions are changed."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from tests.support.fakes.loop import settled
from turnwire.core.detached import DetachedTasks
from turnwire.core.use_cases.sessions import Sessions
from turnwire.domain.conversation.events import SessionView
from turnwire.domain.conversation.sessions import Session
from turnwire.ports.commit import PutSession, Work

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Stored:
    """Sessions whose commits end when the test says so."""

    def __init__(self) -> None:
        """Has two sessions without titles."""
        self.sessions = {one: Session(session_id=one, created_at=NOW, updated_at=NOW) for one in "ab"}
        self.storing = list[asyncio.Future[None]]()
        store = SimpleNamespace(of=lambda _tenant: SimpleNamespace(session=self._session))
        environment: Any = SimpleNamespace(
            store=store, clock=lambda: NOW, commit=self._commit, detached=DetachedTasks()
        )
        turns: Any = SimpleNamespace(view=SessionView)
        unused: Any = None
        self.use_cases = Sessions(environment, turns, unused, unused)

    def title(self, session_id: str, title: str) -> "asyncio.Task[bool]":
        """Begins to give a session a title."""
        turn: Any = SimpleNamespace(tenant="default", session_id=session_id)
        return asyncio.create_task(self.use_cases.give_title(turn, title, Work()))

    async def _session(self, session_id: str) -> Session:
        return self.sessions[session_id]

    async def _commit(self, _tenant: str, session_id: str, work: Work, _at: datetime) -> None:
        self.storing.append(asyncio.get_running_loop().create_future())
        await self.storing[-1]
        [put] = work.changes
        assert isinstance(put, PutSession)
        self.sessions[session_id] = put.session


async def test_changes_of_a_session_do_not_wait_for_those_of_another() -> None:
    """One of which somebody changes thousands of times at once holds up nobody else's."""
    stored = Stored()
    first, second = stored.title("a", "first"), stored.title("a", "second")
    other = stored.title("b", "other")
    await settled()
    assert len(stored.storing) == 2
    stored.storing[1].set_result(None)
    assert await other
    stored.storing[0].set_result(None)
    assert (await first, await second) == (True, False)
    assert [stored.sessions[one].title for one in "ab"] == ["first", "other"]
