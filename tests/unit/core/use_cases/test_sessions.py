"""Changes of settings: of several at the same time, none is lost."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.fakes.core import FakeStore, make_environment
from tests.support.fakes.domain_values import NOW, make_session, make_turn
from tests.support.fakes.loop import begun, settled
from tests.support.fakes.turns import send
from turnwire.core.actor import Now
from turnwire.core.intake.requests import NamedRequest, NamedRequests
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.schedule import ChangeSettings, Schedule
from turnwire.core.use_cases.sessions import Sessions
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.principal import BUILT_IN
from turnwire.ports.commit import Commit, Committed, MarkArchived, PutSession, Work


class Stored(FakeStore):
    """Sessions as they were stored last. A test decides when each read of one, and each commit, ends."""

    def __init__(self) -> None:
        super().__init__(automatic=False, sessions_by_id={one: make_session(one) for one in ("ses_1", "ses_2")})
        self.reads = list[asyncio.Future[None]]()
        self.followers.append(self._keep)

    async def session(self, session_id: str) -> Session:
        """Returns what was stored when the read began."""
        found = await super().session(session_id)
        self.reads.append(asyncio.get_running_loop().create_future())
        await self.reads[-1]
        return found

    async def answer_reads(self) -> None:
        """Ends all reads, those too that begin meanwhile."""
        while waiting := [read for read in self.reads if not read.done()]:
            for read in waiting:
                read.set_result(None)
            await settled()

    async def end_commits(self) -> None:
        """Ends all commits, and what follows from them."""
        while waiting := [storing for storing in self.futures if not storing.done()]:
            for storing in waiting:
                storing.set_result(Committed(0, 1))
            await settled()
            await self.answer_reads()

    def _keep(self, commit: Commit, _: Committed) -> None:
        for change in commit.changes:
            if isinstance(change, PutSession):
                self.sessions_by_id[commit.session_id] = change.session


def _sessions() -> tuple[Stored, Sessions, Turns]:
    environment = make_environment(store := Stored())
    turns = Turns(environment)
    requests = NamedRequests(environment.store, environment.detached)
    return store, Sessions(environment, turns, requests), turns


def _title(sessions: Sessions, session_id: str, title: str) -> "asyncio.Task[bool]":
    return asyncio.create_task(sessions.give_title(make_turn(session_id=session_id), title, Work()))


def test_a_change_of_settings_has_the_moment_of_its_commit() -> None:
    """However much earlier the settings were read; so the answer is the session as a retry reads it."""
    change, now = ChangeSettings(0, make_session(), Work()), Now(NOW + timedelta(seconds=1), 0.0)
    decision = change.decide(Schedule(), now)
    [put] = decision.work.changes
    assert put.session == decision.reply
    assert decision.reply.updated_at == now.at


@pytest.mark.slow
async def test_a_change_beside_a_message_tells_the_turn_that_runs() -> None:
    """Its event is decided behind the message: the view in it is of that moment."""
    store, sessions, turns = _sessions()
    titled = _title(sessions, "ses_1", "a")
    await settled()
    sending = send(turns, "a")
    await store.answer_reads()
    store.futures[0].set_result(Committed(0, 1))
    await settled()
    [event] = [event for commit in store.commits[1:] for event in commit.events if hasattr(event.kind, "view")]
    assert event.kind.view.active_turn_id == "trn_a"
    await store.end_commits()
    assert await titled
    await sending
    store.automatic = True
    await turns.aclose()


@pytest.mark.slow
async def test_the_event_of_an_archived_session_comes_behind_no_later_one() -> None:
    """The store adds it at the end of its commit, and the caller is told the place before it."""
    store, sessions, turns = _sessions()
    first = asyncio.create_task(turns.change_idle("default", "ses_1", Work((PutSession(make_session()),))))
    archiving = await begun(sessions.mark_archived(BUILT_IN, "ses_1", NamedRequest(), is_archived=True))
    await store.answer_reads()
    sending = send(turns, "a")
    await settled()
    store.futures[0].set_result(Committed(0, 1))
    await settled()
    assert (store.commits[1].changes, store.commits[1].events) == ((MarkArchived(True),), ())
    store.automatic = True
    store.futures[1].set_result(Committed(4, 5))
    await settled()
    await store.answer_reads()
    assert (await archiving).sequence == 4
    await asyncio.gather(first, sending)
    await turns.aclose()


async def test_whoever_reads_keeps_the_owner() -> None:
    """Else a change that is read for by one owner, and made by another, would be lost."""
    store, sessions, turns = _sessions()
    first = _title(sessions, "ses_1", "a")
    await settled()
    changing = await begun(turns.change_idle("default", "ses_1", Work((PutSession(make_session(title="b")),))))
    with turns.held("default", "ses_1") as owner:
        store.futures[0].set_result(Committed(0, 1))
        await changing
        with turns.held("default", "ses_1") as again:
            assert again is owner
    await store.answer_reads()
    await store.end_commits()
    await first
    assert turns._owners == {}
