"""Store: lists of sessions have those that pass, in order, page by page, however they are filtered."""

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, adding, later, make_message, make_session, removing
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.events import SessionUpdated, SessionView
from turnwire.domain.conversation.sessions import Session, SessionFilter, SessionOrder, begun, first_words_of
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.text import folded
from turnwire.ports.commit import Change, Commit, MarkArchived, NewEvent, NoteFirstWords, PutSession
from turnwire.ports.pages import Page
from turnwire.storage.sql import sessions as lists

LONG = "plan " * 30
TITLES = ("", "Plans", "plans of ÉTÉ", "straße", "Zoo", "plan%_", f"{LONG}b", f"{LONG}a")
DIRECTORIES = ("", "/a", "/b")


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """An empty store."""
    async with opened_store(tmp_path) as store:
        yield store


async def _fill(opened: OpenedStore, count: int, chance: random.Random) -> dict[str, Session]:
    """Stores, changes, archives and removes sessions, and returns those that are left."""
    kept: dict[str, Session] = {}
    for number in range(count):
        session_id = f"ses_{chance.randrange(10**9)}"
        session = make_session(
            session_id,
            title=chance.choice(TITLES),
            directory=chance.choice(DIRECTORIES),
            labels={key: chance.choice("xy") for key in chance.sample(("k", "team/name", "z"), chance.randrange(4))},
            created_at=later(chance.randrange(50)),
        )
        at = later(100 + chance.randrange(50))
        changes: list[Change] = [PutSession(session)]
        if chance.random() < 0.4:
            changes.append(MarkArchived(True))
        if words := chance.choice(TITLES):
            changes.append(NoteFirstWords("msg_1", words))
        await opened.store.commit(Commit(session_id=session_id, at=at, changes=tuple(changes)))
        if chance.random() < 0.3:
            session = msgspec.structs.replace(session, title=chance.choice(TITLES), labels={"k": "x"}, revision=2)
            at = later(200 + number)
            await opened.store.commit(Commit(session_id=session_id, at=at, changes=(PutSession(session),)))
        if chance.random() < 0.1:
            await opened.store.commit(removing(session_id))
            continue
        archived_at = later(100) if MarkArchived(True) in changes else None
        kept[session_id] = begun(msgspec.structs.replace(session, updated_at=at, archived_at=archived_at), words)
    return kept


def _expected(sessions: dict[str, Session], wanted: SessionFilter) -> list[str]:
    """Returns what a list must have, made without any index."""
    found = [
        session
        for session in sessions.values()
        if (wanted.archived is None or wanted.archived == (session.archived_at is not None))
        and (wanted.directory is None or wanted.directory == session.directory)
        and wanted.labels.items() <= session.labels.items()
        and (wanted.updated_since is None or session.updated_at >= wanted.updated_since)
        and folded(wanted.title_text) in folded(session.shown_title)
    ]
    if wanted.order is SessionOrder.TITLE:
        return [one.session_id for one in sorted(found, key=lambda one: (folded(one.shown_title), one.session_id))]
    field = "updated_at" if wanted.order is SessionOrder.UPDATED else "created_at"
    found.sort(key=lambda one: (getattr(one, field), one.session_id), reverse=True)
    return [one.session_id for one in found]


async def _listed(opened: OpenedStore, wanted: SessionFilter, size: int | None) -> list[str]:
    found: list[str] = []
    token = ""
    while True:
        page = await opened.store.of("default").sessions(Page(size=size, token=token), wanted)
        assert size is None or len(page.sessions) <= size
        found += [session.session_id for session in page.sessions]
        token = page.next_token
        if not token:
            return found


@pytest.mark.slow
@pytest.mark.parametrize(("step", "step_bytes"), [(3, 2**20), (2000, 2**20), (2000, 600)])
async def test_lists_have_what_passes_in_order(
    opened: OpenedStore, monkeypatch: pytest.MonkeyPatch, step: int, step_bytes: int
) -> None:
    """Every filter with every order gives what a walk over all sessions gives, in pages of any size."""
    monkeypatch.setattr(lists, "STEP_SESSIONS", step)
    monkeypatch.setattr(lists, "STEP_BYTES", step_bytes)
    chance = random.Random(7)
    sessions = await _fill(opened, 80, chance)
    await opened.store.commit(
        Commit(
            tenant="other",
            session_id="ses_other",
            at=NOW,
            changes=(PutSession(make_session("ses_other", tenant="other")),),
        )
    )
    for order in SessionOrder:
        for archived in (None, False, True):
            for labels in ({}, {"k": "x"}, {"k": "x", "z": "y"}, {"none": "x"}):
                wanted = SessionFilter(
                    order=order,
                    archived=archived,
                    labels=labels,
                    directory=chance.choice((None, *DIRECTORIES, "/c")),
                    updated_since=chance.choice((None, later(120))),
                    title_text=chance.choice(("", "PLAN", "été", "STRASSE", "%_")),
                )
                for one in (wanted, SessionFilter(order=order, archived=archived, labels=labels)):
                    expected = _expected(sessions, one)
                    assert await _listed(opened, one, chance.choice((1, 2, 7))) == expected
                    assert await _listed(opened, one, None) == expected


@pytest.mark.slow
async def test_a_page_looks_at_a_bounded_number_of_sessions(
    opened: OpenedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that few titles have gives short pages with a next one; a label of few is found at once."""
    monkeypatch.setattr(lists, "STEP_SESSIONS", 4)
    for number in range(100):
        session = make_session(f"ses_{number:03}", title="rare" if number == 0 else "", labels={"n": str(number)})
        commit = Commit(session_id=session.session_id, at=later(number), changes=(PutSession(session),))
        await opened.store.commit(commit)
    page = await opened.store.of("default").sessions(Page(size=10), SessionFilter(title_text="rare"))
    assert (page.sessions, bool(page.next_token)) == ((), True)
    assert await _listed(opened, SessionFilter(title_text="rare"), 10) == ["ses_000"]
    labelled = await opened.store.of("default").sessions(Page(size=10), SessionFilter(labels={"n": "0"}))
    assert ([one.session_id for one in labelled.sessions], labelled.next_token) == (["ses_000"], "")


async def test_a_step_reads_a_bounded_number_of_bytes(opened: OpenedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools are read to be left out: a page of sessions that have many is short, and has a next one."""
    monkeypatch.setattr(lists, "STEP_BYTES", 10_000)
    tools = (ToolDefinition("look", "x" * 6_000, "{}"),)
    for number in range(30):
        session = make_session(f"ses_{number:02}", tools=tools)
        commit = Commit(session_id=session.session_id, at=later(number), changes=(PutSession(session),))
        await opened.store.commit(commit)
    page = await opened.store.of("default").sessions(Page(size=100))
    assert (len(page.sessions), bool(page.next_token)) == (2 * lists.MAX_STEPS, True)
    assert await _listed(opened, SessionFilter(), 100) == [f"ses_{number:02}" for number in reversed(range(30))]
    assert len(await _listed(opened, SessionFilter(), None)) == 30


@pytest.mark.sqlite
@pytest.mark.parametrize("order", SessionOrder)
@pytest.mark.parametrize("archived", [None, False, True])
async def test_an_order_is_read_from_its_index(opened: OpenedStore, order: SessionOrder, archived: bool | None) -> None:
    """No list sorts what it does not answer, and none reads sessions that come before its page."""
    statements: list[str] = []
    with opened.database() as db:
        db.set_trace_callback(statements.append)
        place: lists.Place = ("m" if order is SessionOrder.TITLE else 5, "ses_1")
        lists.step(db, "a", SessionFilter(order=order, archived=archived), place, lists.StepLimits(10, None))
        db.set_trace_callback(None)
        plan = " ".join(
            row[3]
            for statement in statements
            if statement.startswith("SELECT")
            for row in db.rows(f"EXPLAIN QUERY PLAN {statement}")
        )
    index = lists.ORDERS[order].index_name
    assert f"COVERING INDEX {index} (tenant=? AND archived=? AND ({lists.ORDERS[order].column}" in plan
    assert "TEMP B-TREE" not in plan
    assert "SCAN sessions" not in plan


async def test_a_token_belongs_to_the_filter_and_the_order(opened: OpenedStore) -> None:
    """It is refused with any other one."""
    await _fill(opened, 20, random.Random(1))
    store = opened.store.of("default")
    first = SessionFilter(archived=False, labels={})
    token = (await store.sessions(Page(size=1), first)).next_token
    assert (await store.sessions(Page(size=2, token=token), first)).sessions
    for other in (
        SessionFilter(),
        SessionFilter(archived=True),
        SessionFilter(archived=False, title_text="x"),
        SessionFilter(archived=False, order=SessionOrder.TITLE),
        SessionFilter(archived=False, updated_since=NOW - timedelta(days=1)),
    ):
        with pytest.raises(InvalidRequest, match="page_token"):
            await store.sessions(Page(size=1, token=token), other)


async def test_a_mark_is_told_once_and_survives_settings(opened: OpenedStore) -> None:
    """Marking a session as it is does nothing; a change of settings neither unarchives nor tells a wrong state."""
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutSession(make_session()),)))
    for seconds, is_archived in ((1, True), (2, True), (3, False), (4, False), (5, True)):
        mark = MarkArchived(is_archived, "trn_1", (), 3)
        await opened.store.commit(Commit(session_id="ses_1", at=later(seconds), changes=(mark,)))
    told = [(stored.event.kind.view.session.archived_at, stored.event.sequence) for stored in opened.published]  # type: ignore[union-attr]
    assert told == [(later(1), 1), (None, 2), (later(5), 3)]
    assert {stored.event.kind.view.active_turn_id for stored in opened.published} == {"trn_1"}  # type: ignore[union-attr]
    titled = make_session(title="Mine", revision=2)
    event = NewEvent(SessionUpdated(SessionView(titled)))
    await opened.store.commit(Commit(session_id="ses_1", at=later(6), changes=(PutSession(titled),), events=(event,)))
    assert opened.published[-1].event.kind.view.session.archived_at == later(5)  # type: ignore[union-attr]
    stored = await opened.store.of("default").session("ses_1")
    assert (stored.title, stored.archived_at, stored.revision) == ("Mine", later(5), 2)


async def test_first_words_are_noted_once_and_survive_settings(opened: OpenedStore) -> None:
    """A second note does nothing; a change of settings neither loses them nor tells a session without them."""
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutSession(make_session()),)))
    store = opened.store.of("default")
    assert (await store.cached_session("ses_1")).shown_title == ""
    for number, words in enumerate(("Plans", "More"), 1):
        message = make_message(f"msg_{number}", words)
        await opened.store.commit(adding(message, NOW, (), NoteFirstWords(message.message_id, words)))
    told = [stored.event.kind.session_title for stored in opened.published]  # type: ignore[union-attr]
    assert told == ["Plans", ""]
    session = await store.cached_session("ses_1")
    assert (session.title, session.shown_title) == ("", "Plans")
    for title, revision, shown in (("Mine", 2, "Mine"), ("", 3, "Plans")):
        changed = make_session(title=title, revision=revision)
        event = NewEvent(SessionUpdated(SessionView(changed)))
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutSession(changed),), events=(event,)))
        assert opened.published[-1].event.kind.view.session.shown_title == shown  # type: ignore[union-attr]
        assert (await store.session("ses_1")).shown_title == shown
        assert await _listed(opened, SessionFilter(title_text=shown), 10) == ["ses_1"]


async def test_words_of_a_titled_session_are_noted_without_being_told(opened: OpenedStore) -> None:
    """They are the title as soon as the one that was set is unset; a new session may have them from the start."""
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutSession(make_session(title="Mine")),)))
    copy = begun(make_session("ses_2"), "Copied")
    await opened.store.commit(Commit(session_id="ses_2", at=NOW, changes=(PutSession(copy),)))
    message = make_message("msg_1", "Words")
    await opened.store.commit(adding(message, NOW, (), NoteFirstWords("msg_1", "Words")))
    assert [stored.event.kind.session_title for stored in opened.published] == [""]  # type: ignore[union-attr]
    store = opened.store.of("default")
    assert (await store.session("ses_1")).shown_title == "Mine"
    assert first_words_of(await store.session("ses_1")) == "Words"
    assert (await store.session("ses_2")).shown_title == "Copied"
    with opened.database() as db:
        assert db.row("SELECT count(*) FROM sessions WHERE body LIKE '%first_words%'") == (0,)
