"""Store, tenants: each finds its own, at the cost of what there is of its own."""

import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.domain_values import (
    NOW,
    adding,
    later,
    make_file,
    make_message,
    make_permission,
    make_session,
    make_turn,
    of_tenant,
    removing,
)
from tests.support.fakes.opened_store import OpenedStore, events_in, opened_store
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.events import MessageRemoved, QueueChanged, SessionCreated, SessionView
from turnwire.domain.conversation.sessions import SessionFilter, SessionOrder
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.errors import InvalidRequest, SessionNotFound
from turnwire.ports.commit import Commit, NewEvent, PutFile, PutPermission, PutSession, PutTurn, RemoveMessage
from turnwire.ports.pages import Page, PermissionPage
from turnwire.ports.store import TenantStore
from turnwire.storage.sql import asking, files, log, sessions, turns
from turnwire.storage.sql.sessions import StepLimits, step
from turnwire.storage.units import PRUNE_SLACK

BYTES = b"the same bytes"
FILE = make_file(BYTES)


def _creating(tenant: str, session_id: str, seconds: float = 0) -> Commit:
    session = make_session(session_id, tenant=tenant, title="The same title")
    event = NewEvent(SessionCreated(SessionView(session)))
    return Commit(
        tenant=tenant, session_id=session_id, at=later(seconds), changes=(PutSession(session),), events=(event,)
    )


def _happening(tenant: str, session_id: str, times: int = 1) -> Commit:
    return Commit(tenant=tenant, session_id=session_id, at=NOW, events=(NewEvent(QueueChanged(())),) * times)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with a session of each of two tenants, with a message, a file, a turn and a permission request."""
    async with opened_store(tmp_path, retained_events=10) as running:
        for name in ("a", "b"):
            session_id = f"ses_{name}"
            await running.store.commit(_creating(name, session_id))
            message = make_message(f"msg_{name}", FILE, session_id=session_id)
            turn = PutTurn(make_turn(f"trn_{name}", session_id, tenant=name))
            permission = PutPermission(make_permission(f"per_{name}", session_id))
            file = PutFile(FILE.sha256, BYTES)
            await running.store.commit(of_tenant(name, adding(message, NOW, (file,), turn, permission)))
        yield running


Read = Callable[[TenantStore, str], Coroutine[Any, Any, object]]

READS: dict[str, Read] = {
    "session": lambda store, it: store.session(it),
    "cached_session": lambda store, it: store.cached_session(it),
    "message": lambda store, it: store.message(it, "msg_a"),
    "message_of_call": lambda store, it: store.message_of_call(it, "prt_0"),
    "messages": lambda store, it: store.messages(it, Page()),
    "history": lambda store, it: store.history(it),
    "caller_sizes": lambda store, it: store.caller_sizes(it, frozenset({"prt_0"}), frozenset()),
    "callers": lambda store, it: store.callers(it, ["msg_a"]),
    "question_bytes": lambda store, it: store.question_bytes(it, "msg_a"),
    "history_bytes": lambda store, it: store.history_bytes(it),
    "display": lambda store, it: store.display(it, Page()),
    "turn": lambda store, it: store.turn(it, "trn_a"),
    "turns": lambda store, it: store.turns(it, Page(), frozenset(TurnStatus)),
    "spent": lambda store, it: store.spent(it),
    "restorable": lambda store, it: store.restorable(it),
    "open_permissions": lambda store, it: store.open_permissions(it, Page()),
    "open_questions": lambda store, it: store.open_questions(it, Page()),
    "session_file": lambda store, it: store.session_file(it, FILE.sha256),
    "session_bounds": lambda store, it: store.session_bounds(it),
}


@pytest.mark.parametrize("name", READS)
async def test_the_session_of_another_tenant_is_not_found(opened: OpenedStore, name: str) -> None:
    """Not even after its owner has read it; the error is that of an unknown session."""
    await opened.store.of("a").cached_session("ses_a")
    for session_id in ("ses_a", "ses_unknown"):
        with pytest.raises(SessionNotFound) as caught:
            await READS[name](opened.store.of("b"), session_id)
        assert caught.value.metadata == SessionNotFound(session_id).metadata
        assert caught.value.message == SessionNotFound(session_id).message


async def test_what_has_no_error_for_a_missing_session_is_empty(opened: OpenedStore) -> None:
    """Events, and what was allowed."""
    other = opened.store.of("b")
    assert (await other.session_events("ses_a", 0, None)).frames == ()
    assert await other.always_allowed("ses_a") == frozenset()


async def test_lists_have_what_is_ones_own(opened: OpenedStore) -> None:
    """Sessions, open permission requests, the log and its bounds."""
    for name in ("a", "b"):
        store = opened.store.of(name)
        assert [session.session_id for session in (await store.sessions(Page())).sessions] == [f"ses_{name}"]
        found = (await store.open_permissions(None, Page())).permissions
        assert [asked.permission_id for asked in found] == [f"per_{name}"]
        page = await store.log_events(0, None)
        assert {event.session_id for event in events_in(page.frames)} == {f"ses_{name}"}
        assert page.last <= (await store.log_bounds()).head <= 4  # an hour of the log may end behind its own events
    assert (await opened.store.of("c").log_bounds()).earliest == 0
    assert await opened.store.of("c").open_permissions(None, Page()) == PermissionPage((), "")


async def test_a_page_token_is_of_one_tenant(opened: OpenedStore) -> None:
    """It continues the list of its tenant; there it names no number that counts rows."""
    await opened.store.commit(_creating("a", "ses_a2", 1))
    token = (await opened.store.of("a").sessions(Page(size=1))).next_token
    rest = await opened.store.of("a").sessions(Page(size=9, token=token))
    assert [session.session_id for session in rest.sessions] == ["ses_a"]
    with pytest.raises(InvalidRequest, match="page_token"):
        await opened.store.of("b").sessions(Page(size=1, token=token))


async def test_equal_bytes_are_two_files(opened: OpenedStore) -> None:
    """One tenant's go with its session, and the other's stay; a tenant that sent none has none."""
    assert await opened.store.of("c").files([FILE.sha256]) == {}
    await opened.store.commit(of_tenant("a", removing("ses_a")))
    await opened.store.removals()
    assert await opened.store.of("a").files([FILE.sha256]) == {}
    assert await opened.store.of("b").files([FILE.sha256]) == {FILE.sha256: BYTES}
    assert await opened.store.of("b").session_file("ses_b", FILE.sha256) == BYTES


async def test_the_moment_of_a_tenant_is_that_of_its_newest_event(tmp_path: Path) -> None:
    """Others do not move it: tokens that change would show that they do something. A start moves it, once."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(_creating("a", "ses_a"))
        first = opened.store.moment("a")
        await opened.store.commit(_creating("b", "ses_b"))
        assert opened.store.moment("a") == await opened.store.moment_after_reads("a", "ses_a") == first
        assert opened.store.moment("b").position == first.position + 1
    async with opened_store(tmp_path) as opened:
        begun = opened.store.moment("a")
        await opened.store.commit(_happening("b", "ses_b"))
        assert opened.store.moment("a") == begun
        await opened.store.commit(_happening("a", "ses_a"))
        assert opened.store.moment("a").position == begun.position + 2


async def test_a_deleted_session_is_reported_to_its_tenant(opened: OpenedStore) -> None:
    """Its last event stays in the log of that tenant alone."""
    before = {name: (await opened.store.of(name).log_bounds()).head for name in ("a", "b")}
    await opened.store.commit(of_tenant("a", removing("ses_a")))
    await opened.store.removals()
    [event] = events_in((await opened.store.of("a").log_events(before["a"], None)).frames)
    assert (event.session_id, event.WhichOneof("kind")) == ("ses_a", "session_deleted")
    assert (await opened.store.of("b").log_events(before["b"], None)).frames == ()
    assert (await opened.store.of("b").log_bounds()).head <= 5  # an hour may end behind its own events


async def test_a_pruned_session_is_reported_to_its_tenant(opened: OpenedStore) -> None:
    """Others are not told that it lost events, nor that it exists."""
    await opened.store.commit(_happening("a", "ses_a", PRUNE_SLACK + 20))
    [lost] = (await opened.store.of("a").log_events(0, None)).pruned
    assert lost.session_id == "ses_a"
    assert (await opened.store.of("b").log_events(0, None)).pruned == ()


async def test_a_replay_has_no_message_of_another_session(opened: OpenedStore) -> None:
    """The id of a message that was removed may be one of an imported session, of the same tenant or of another."""
    store, gone = opened.store.of("a"), NewEvent(MessageRemoved("msg_waits"))
    await opened.store.commit(of_tenant("a", adding(make_message("msg_waits", "of a", session_id="ses_a"))))
    taking_back = Commit(session_id="ses_a", at=NOW, changes=(RemoveMessage("msg_waits"),), events=(gone,))
    await opened.store.commit(of_tenant("a", taking_back))
    before = (await store.session_events("ses_a", 0, None)).frames
    await opened.store.commit(of_tenant("b", adding(make_message("msg_waits", "secret of b", session_id="ses_b"))))
    after = (await store.session_events("ses_a", 0, None)).frames
    assert after == before
    assert b"secret of b" not in b"".join((await store.log_events(0, None)).frames)
    assert b"secret of b" in b"".join((await opened.store.of("b").log_events(0, None)).frames)


@pytest.mark.slow
async def test_any_history_gives_each_tenant_its_own_log(tmp_path: Path) -> None:
    """Each of three tenants reads its own events in order, and no others."""
    chance = random.Random(7)
    sessions: dict[str, list[str]] = {name: [] for name in "abc"}
    expected: dict[str, list[tuple[str, str]]] = {name: [] for name in "abc"}
    async with opened_store(tmp_path) as opened:
        for number in range(300):
            tenant = chance.choice("abc")
            own = sessions[tenant]
            if not own or chance.random() < 0.1:
                own.append(f"ses_{number}")
                commit, kind = _creating(tenant, own[-1]), "session_created"
            elif chance.random() < 0.1:
                commit, kind = of_tenant(tenant, removing(own.pop(chance.randrange(len(own))))), "session_deleted"
                expected[tenant] = [one for one in expected[tenant] if one[0] != commit.session_id]
            else:
                commit, kind = _happening(tenant, chance.choice(own)), "queue_changed"
            await opened.store.commit(commit)
            expected[tenant].append((commit.session_id, kind))
        for tenant, wanted in expected.items():
            store, found, after = opened.store.of(tenant), [], 0
            while (page := await store.log_events(after, None)).last > after:
                after = page.last
                found += [(event.session_id, event.WhichOneof("kind")) for event in events_in(page.frames)]
            assert found == wanted
            listed = {session.session_id for session in (await store.sessions(Page())).sessions}
            assert listed == set(sessions[tenant])


STATEMENTS: dict[str, Callable[[sqlite3.Connection], object]] = {
    "sessions_by_update": lambda db: step(db, "a", SessionFilter(), None, StepLimits(1, None)),
    "sessions_by_creation": lambda db: step(
        db, "a", SessionFilter(order=SessionOrder.CREATED), None, StepLimits(1, None)
    ),
    "sessions_by_title": lambda db: step(db, "a", SessionFilter(order=SessionOrder.TITLE), None, StepLimits(1, None)),
    "sessions_of_tenants": lambda db: sessions.session(db, "a", "ses_a"),
    "permissions_open": lambda db: asking.open_permissions(db, "a", None, Page(size=9)),
    "questions_open": lambda db: asking.open_questions(db, "a", None, Page(size=9)),
    "sessions_pruned": lambda db: log.log_events(db, "a", 5, codec=ProtoCodec(), kinds=None),
    "events_of_tenants": lambda db: log.log_events(db, "a", 5, codec=ProtoCodec(), kinds=None),
    "sqlite_autoindex_files": lambda db: files.files(db, "a", [FILE.sha256]),
    "turns_spent": lambda db: turns.spent(db, "a", "ses_a"),
    "open_calls_of_tenants": lambda db: asking.open_calls(db, "a", "", frozenset({"look"}), Page(size=9)),
}


@pytest.mark.sqlite
@pytest.mark.parametrize("index", STATEMENTS)
async def test_no_list_reads_what_is_anothers(opened: OpenedStore, index: str) -> None:
    """Each is read by an index that begins with the tenant or its session, and sorted by it too."""
    with opened.database() as db:
        statements: list[str] = []
        db.set_trace_callback(statements.append)
        STATEMENTS[index](db)
        db.set_trace_callback(None)
        plans = [
            " ".join(row[3] for row in db.rows(f"EXPLAIN QUERY PLAN {statement}"))
            for statement in statements
            if statement.strip().startswith("SELECT")
        ]
    [plan] = [plan for plan in plans if index in plan]
    assert f"({'session' if index == 'turns_spent' else 'tenant'}=?" in plan
    walks = ("TEMP B-TREE", *(f"SCAN {table}" for table in ("events", "sessions", "turns", "open_calls")))
    assert not any(walk in plan for plan in plans for walk in walks)
