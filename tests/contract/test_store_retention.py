"""Old events go, a few at a time: by age and by count, and never those of a turn that runs."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, adding, creating, make_message, make_turn, removing
from tests.support.fakes.opened_store import OpenedStore, events_in, opened_store
from turnwire.domain.conversation.events import QueueChanged, TurnStarted
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.errors import SessionNotFound
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, NewEvent, PutTurn
from turnwire.ports.pages import Bounds
from turnwire.storage.sql import retention
from turnwire.storage.sql.retention import Retention
from turnwire.storage.sql.writer import Other
from turnwire.storage.units import PRUNE_SLACK

DAY = timedelta(days=1)
START = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """An empty store whose own retention finds nothing to do."""
    async with opened_store(tmp_path) as running:
        yield running


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        """Returns the time."""
        return self.now

    def at(self, commit: Commit) -> Commit:
        """Returns a commit of now."""
        return msgspec.structs.replace(commit, at=self.now)


async def forget(opened: OpenedStore, work: Retention) -> int:
    """Carries steps out until nothing is left to do for now; returns how many did something."""
    steps = 0
    while await opened.store._writer.carry_out(Other(work.step, is_step=True)):
        steps += 1
    return steps


def telling(session_id: str, count: int = 1) -> Commit:
    """Returns a commit with events that have no subject."""
    return Commit(session_id=session_id, at=NOW, events=tuple(NewEvent(QueueChanged(())) for _ in range(count)))


async def kept(opened: OpenedStore, session_id: str) -> list[int]:
    """Returns the sequences of the events that a session has."""
    store = opened.store.of(DEFAULT_TENANT)
    page = await store.session_events(session_id, (await store.session_bounds(session_id)).earliest, None)
    return [event.sequence for event in events_in(page.frames)]


def counted_as_stored(opened: OpenedStore) -> None:
    """Checks that the account says what the sessions say."""
    with opened.database() as db:
        (stored,) = db.row("SELECT sum(stored_bytes) FROM sessions WHERE tenant = ?", (DEFAULT_TENANT,))
    assert opened.store.of(DEFAULT_TENANT).account(NOW).stored_bytes == stored


async def test_events_go_by_their_age(opened: OpenedStore) -> None:
    """Also in sessions where nothing happens any more; what is younger stays, and the bound is exact."""
    clock = Clock()
    work = Retention(10_000, 2 * DAY, clock)
    for session_id in ("ses_1", "ses_2"):
        await opened.store.commit(clock.at(creating(session_id)))
        await opened.store.commit(clock.at(telling(session_id, 5)))
    await forget(opened, work)
    clock.now += DAY
    await opened.store.commit(clock.at(telling("ses_1", 3)))
    await forget(opened, work)
    clock.now += DAY
    await forget(opened, work)
    assert await kept(opened, "ses_1") == list(range(1, 10))
    clock.now += SECOND
    await forget(opened, work)
    assert await kept(opened, "ses_1") == [7, 8, 9]
    assert await kept(opened, "ses_2") == []
    store = opened.store.of(DEFAULT_TENANT)
    assert await store.session_bounds("ses_1") == Bounds(6, 9)
    assert (await store.session_events("ses_1", 5, None)).earliest == 6
    assert len((await store.session_events("ses_1", 6, None)).frames) == 3
    assert (await store.log_bounds()).earliest == 12
    counted_as_stored(opened)


async def test_what_a_turn_has_told_stays_until_it_ends(opened: OpenedStore) -> None:
    """However old it is, and however many events the session has; then it goes as all else does."""
    clock = Clock()
    work = Retention(1, DAY, clock)
    turn = make_turn("trn_1", status=TurnStatus.RUNNING)
    await opened.store.commit(clock.at(creating()))
    await opened.store.commit(clock.at(telling("ses_1", 2)))
    started = (NewEvent(TurnStarted(turn), "trn_1"),)
    await opened.store.commit(clock.at(Commit(session_id="ses_1", at=NOW, changes=(PutTurn(turn),), events=started)))
    await opened.store.commit(clock.at(telling("ses_1", 300)))
    await forget(opened, work)
    clock.now += 2 * DAY
    await forget(opened, work)
    assert (await opened.store.of(DEFAULT_TENANT).session_bounds("ses_1")).earliest == 3
    assert (await kept(opened, "ses_1"))[0] == 4
    ended = make_turn("trn_1", status=TurnStatus.ENDED)
    await opened.store.commit(clock.at(Commit(session_id="ses_1", at=NOW, changes=(PutTurn(ended),))))
    for _ in range(5):  # a look at all of them drops a bounded number of each session
        await forget(opened, work)
    assert await kept(opened, "ses_1") == []
    counted_as_stored(opened)


async def test_a_deleted_session_is_forgotten_at_last(opened: OpenedStore) -> None:
    """A watch of all sessions from before then reads anew."""
    clock = Clock()
    work = Retention(10, DAY, clock)
    await opened.store.commit(clock.at(creating()))
    await opened.store.commit(clock.at(removing()))
    await forget(opened, work)
    last = (await opened.store.of(DEFAULT_TENANT).log_bounds()).head
    clock.now += 2 * DAY
    await forget(opened, work)
    assert await opened.store.of(DEFAULT_TENANT).log_bounds() == Bounds(last, last)
    await opened.store.commit(clock.at(creating("ses_2")))
    assert len((await opened.store.of(DEFAULT_TENANT).log_events(last, None)).frames) == 1


async def test_a_step_that_is_rolled_back_has_dropped_nothing(
    opened: OpenedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shares a transaction with commits, which is repeated when one of them fails: no watcher misses an event."""
    monkeypatch.setattr(retention, "STEP_EVENTS", 3)
    clock = Clock()
    work, store = Retention(10_000, DAY, clock), opened.store.of(DEFAULT_TENANT)
    for number in range(6):
        await opened.store.commit(clock.at(creating(f"ses_{number}")))
        await opened.store.commit(clock.at(telling(f"ses_{number}", 2)))
    await forget(opened, work)
    clock.now += 2 * DAY
    is_more = True
    while is_more:
        step = opened.store._writer.carry_out(Other(work.step, is_step=True))
        fails = opened.store.commit(clock.at(telling("ses_unknown")))
        is_more = await step
        with pytest.raises(SessionNotFound):
            await fails
    await forget(opened, Retention(10_000, 10 * DAY, clock))  # what was given up goes
    for number in range(6):
        bounds = await store.session_bounds(f"ses_{number}")
        assert await kept(opened, f"ses_{number}") == list(range(bounds.earliest + 1, 4))
    counted_as_stored(opened)
    await forget(opened, work)
    assert [await kept(opened, f"ses_{number}") for number in range(6)] == [[]] * 6


async def test_positions_go_on_behind_those_that_were_dropped(tmp_path: Path) -> None:
    """Also after a restart, when older ones are kept for a turn: a place in a watch of all sessions stays right."""
    clock = Clock()
    work, turn = Retention(10_000, DAY, clock), make_turn("trn_1", status=TurnStatus.RUNNING)
    async with opened_store(tmp_path) as opened:
        started = (NewEvent(TurnStarted(turn), "trn_1"),)
        await opened.store.commit(clock.at(creating()))
        await opened.store.commit(
            clock.at(Commit(session_id="ses_1", at=NOW, changes=(PutTurn(turn),), events=started))
        )
        await opened.store.commit(clock.at(creating("ses_2")))
        await forget(opened, work)
        clock.now += 2 * DAY
        await forget(opened, work)
        assert (await kept(opened, "ses_1"), await kept(opened, "ses_2")) == ([2], [])
        assert (await opened.store.of(DEFAULT_TENANT).log_bounds()).head == 3
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(clock.at(telling("ses_1")))
        assert opened.sequences() == [("ses_1", 3, 4)]


async def test_a_clock_that_was_wrong_for_a_while_drops_nothing_young(opened: OpenedStore) -> None:
    """Events are kept from when the clock was behind, and go with their age when it was ahead."""
    clock = Clock()
    work = Retention(10_000, 30 * DAY, clock)
    await opened.store.commit(clock.at(creating()))
    await forget(opened, work)
    clock.now = START - 100 * DAY
    await opened.store.commit(clock.at(telling("ses_1", 3)))
    await forget(opened, work)
    clock.now = START + DAY
    await opened.store.commit(clock.at(telling("ses_1", 3)))
    await forget(opened, work)
    assert await kept(opened, "ses_1") == list(range(1, 8))
    clock.now = START + 29 * DAY
    await opened.store.commit(clock.at(telling("ses_1")))
    await forget(opened, work)
    assert len(await kept(opened, "ses_1")) == 8
    clock.now = START + 32 * DAY
    await forget(opened, work)
    assert await kept(opened, "ses_1") == [8]


async def test_a_lower_count_holds_for_idle_sessions(opened: OpenedStore) -> None:
    """A step drops few events, so that nobody feels it."""
    await opened.store.commit(creating())
    await opened.store.commit(telling("ses_1", 999))
    work = Retention(100, 90 * DAY, Clock())
    assert await forget(opened, work) > 900 / retention.MAX_PRUNED
    assert 901 - PRUNE_SLACK <= (await kept(opened, "ses_1"))[0] <= 901
    counted_as_stored(opened)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(8))
async def test_a_replay_gets_all_or_a_resync(opened: OpenedStore, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader has each event behind its place, or hears that some were dropped between its pages."""
    chance = random.Random(seed)
    monkeypatch.setattr(retention, "STEP_EVENTS", 3)
    monkeypatch.setattr(retention, "MAX_PRUNED", 3)
    clock = Clock()
    work = Retention(10_000, DAY, clock)
    store = opened.store.of(DEFAULT_TENANT)
    for number in range(3):
        await opened.store.commit(clock.at(creating(f"ses_{number}")))
    for number in range(12):
        await opened.store.commit(clock.at(telling(f"ses_{chance.randrange(3)}", chance.randint(1, 8))))
        await opened.store.commit(
            clock.at(adding(make_message(f"msg_{number}", "text", session_id=f"ses_{number % 3}")))
        )
        clock.now += timedelta(hours=1)
        await opened.store._writer.carry_out(Other(work.step))
    place = chance.randrange(5)
    seen, start = list[int](), place
    while True:
        page = await store.session_events("ses_0", place, None)
        if page.earliest > place:  # as `core.watches.join` does
            seen, start, place = [], page.earliest, page.earliest
            continue
        seen += [event.sequence for event in events_in(page.frames[:2])]
        if page.last == place:
            break
        place = seen[-1]
        clock.now += timedelta(hours=3)
        for _ in range(chance.randrange(4)):
            await opened.store._writer.carry_out(Other(work.step))
        if chance.random() < 0.3:
            await opened.store.commit(clock.at(telling("ses_0")))
    head = (await store.session_bounds("ses_0")).head
    assert seen == list(range(start + 1, head + 1))
    counted_as_stored(opened)
