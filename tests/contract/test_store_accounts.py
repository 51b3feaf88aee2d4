"""Store: what tenants have stored and used."""

import asyncio
import heapq
import random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.support.fakes.domain_values import (
    NOW,
    adding,
    creating,
    make_answer,
    make_file,
    make_message,
    make_part,
    make_permission,
    make_session,
    make_turn,
    of_tenant,
    removing,
)
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.accounts import Account, Spending, UsageDimension, UsagePage, UsageQuery, UsageRow
from turnwire.domain.conversation.events import SessionUpdated, SessionView
from turnwire.domain.conversation.messages import Text, ToolStatus, ToolUse
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.domain.errors import InvalidRequest, QuotaExceeded, StorageError
from turnwire.domain.money import Consumption, Usage
from turnwire.ports.commit import (
    AddSpending,
    Change,
    Commit,
    Committed,
    NewEvent,
    PutFile,
    PutMessage,
    PutPermission,
    PutSession,
    PutTurn,
    RemoveMessage,
    RequireQuota,
    SessionState,
)
from turnwire.ports.pages import Page
from turnwire.storage.sql import usage as reading
from turnwire.storage.sql.columns import stored_bytes
from turnwire.storage.units import PRUNE_SLACK

PLOT = make_file(b"plot", "plot.png")
STORED_PLOT = PutFile(PLOT.sha256, b"plot")
LARGE = "x" * 65_536
_WITH_BODY = ("turns", "permissions")
DAY = (datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with the sessions ses_1 and ses_2 of the tenant default, and ses_3 of another one."""
    async with opened_store(tmp_path) as running:
        await asyncio.gather(*(running.store.commit(creating(f"ses_{n}")) for n in (1, 2)))
        other = PutSession(make_session("ses_3", tenant="other"))
        await running.store.commit(Commit(tenant="other", session_id="ses_3", at=NOW, changes=(other,)))
        yield running


def _stored(opened: OpenedStore, tenant: str = "default") -> int:
    """Returns what the account says, which must be what the file has."""
    told = opened.store.of(tenant).account(NOW).stored_bytes
    owned = "JOIN sessions ON sessions.id = session WHERE sessions.tenant = ?"
    with opened.database() as db:
        length = db.dialect.byte_length
        queries = (
            f"SELECT sum({length('body')}) FROM sessions WHERE tenant = ?",
            *(f"SELECT sum({length(f'{t}.body')}) FROM {t} {owned}" for t in _WITH_BODY),
            f"SELECT sum({length('settings')}) FROM turns {owned}",
            f"SELECT sum({stored_bytes(db.dialect)}) FROM messages {owned}",
            "SELECT sum(length(facts)) FROM events JOIN sessions USING (session_id) WHERE sessions.tenant = ?",
            "SELECT sum(length(content)) FROM files WHERE tenant = ?",
        )
        assert told == sum(db.row(query, (tenant,))[0] or 0 for query in queries)
    return told


def _spending(**fields: object) -> Spending:
    defaults = {
        "tenant": "default",
        "subject": "",
        "session_id": "ses_1",
        "provider_id": "mine",
        "model_id": "m",
        "at": NOW,
        "steps": 1,
    }
    return Spending(**{**defaults, **fields})


async def _spend(opened: OpenedStore, *spent: Spending) -> None:
    changes = tuple(map(AddSpending, spent))
    first = spent[0]
    await opened.store.commit(Commit(tenant=first.tenant, session_id=first.session_id, at=NOW, changes=changes))


async def _used(opened: OpenedStore, *group_by: UsageDimension, tenant: str = "default") -> tuple[UsageRow, ...]:
    query = UsageQuery(periods=(DAY,), group_by=frozenset(group_by))
    return (await opened.store.of(tenant).usage(query, Page(size=100))).rows


async def test_messages_count_as_they_are_stored(opened: OpenedStore) -> None:
    """New ones, changed ones and removed ones, in bytes and not in characters."""
    before = _stored(opened)
    message = make_message("msg_1", "ä", "b")
    await opened.store.commit(adding(message))
    first = _stored(opened)
    longer = msgspec.structs.replace(message, parts=(message.parts[0], make_part(1, Text("b" * 1001))))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutMessage(longer),)))
    assert _stored(opened) == first + 1000 + 2  # the length of a text takes up to five bytes
    described = msgspec.structs.replace(longer, metadata_json='{"a": 1}')
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutMessage(described),)))
    full = _stored(opened)
    assert full > first + 1000
    other = adding(make_message("msg_2", "x", session_id="ses_2"))
    await opened.store.commit(other)
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_1"),)))
    assert before < _stored(opened) < full - 1000
    for session_id in ("ses_1", "ses_2"):
        await opened.store.commit(removing(session_id))
        await opened.store.removals()
    assert _stored(opened) == 0


@pytest.mark.parametrize(
    "changes",
    [
        lambda text: (PutSession(make_session(system=text, revision=2)),),
        lambda text: (PutTurn(make_turn(system=text)),),
        lambda text: (PutTurn(make_turn(tools=(ToolDefinition(name="t", description=text, input_schema_json="{}"),))),),
        lambda text: (PutMessage(make_message("msg_1", "hello", metadata_json=text)),),
        lambda text: (PutMessage(make_message("msg_1", text)),),
        lambda text: (PutPermission(make_permission(title=text)),),
    ],
    ids=["session", "system", "tools", "metadata", "part", "permission"],
)
async def test_all_that_is_handed_in_counts(opened: OpenedStore, changes: Callable[[str], tuple[Change, ...]]) -> None:
    """Also when it is no text of a message."""
    before = _stored(opened)
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=changes(LARGE)))
    assert before + len(LARGE) <= _stored(opened) < before + len(LARGE) + 2_000


async def test_a_turn_counts_as_it_is_stored_last(opened: OpenedStore) -> None:
    """Longer, shorter, and not at all when its commit fails, as that of another session's turn does."""
    for turn in (make_turn(), make_turn(user_message_id="msg_" + "x" * 100), make_turn()):
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(PutTurn(turn),)))
        _stored(opened)
    before = _stored(opened)
    with pytest.raises(StorageError):
        await opened.store.commit(Commit(session_id="ses_2", at=NOW, changes=(PutTurn(make_turn(session_id="ses_2")),)))
    assert _stored(opened) == before


async def test_events_count_until_they_are_dropped(tmp_path: Path) -> None:
    """The session's former state is still in the log. A message that was removed is not."""
    async with opened_store(tmp_path, retained_events=1) as opened:
        await opened.store.commit(creating())
        await opened.store.commit(adding(make_message("msg_1", LARGE)))
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_1"),)))
        large = SessionUpdated(SessionView(make_session(title=LARGE)))
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, events=(NewEvent(large),)))
        assert len(LARGE) < _stored(opened) < 2.1 * len(LARGE)
        title = SessionUpdated(SessionView(make_session(title="t")))
        retitled = Commit(session_id="ses_1", at=NOW, events=(NewEvent(title),) * (PRUNE_SLACK + 1))
        await opened.store.commit(retitled)
        assert 0 < _stored(opened) < 2_000


async def test_a_file_counts_once_for_each_tenant(opened: OpenedStore) -> None:
    """However many messages and results of tools refer to it; it is given back with the last one."""
    call = ToolUse(name="draw", input_json="{}", status=ToolStatus.SUCCESS, output="drawn", files=(PLOT,))
    counts = list[int]()
    for message in (
        make_message("msg_1", PLOT),
        make_message("msg_2", PLOT, session_id="ses_2"),
        make_answer("msg_3", call, session_id="ses_2"),
        make_message("msg_4", PLOT, session_id="ses_3"),
    ):
        tenant = "other" if message.session_id == "ses_3" else "default"
        await opened.store.commit(of_tenant(tenant, adding(message, NOW, (STORED_PLOT,))))
        counts.append(_stored(opened))
    assert counts[0] < counts[1] < counts[2] == counts[3]
    assert _stored(opened, "other") > len(b"plot")
    for session_id in ("ses_1", "ses_2"):
        await opened.store.commit(removing(session_id))
        await opened.store.removals()
    assert _stored(opened) == 0
    await opened.store.commit(of_tenant("other", removing("ses_3")))
    await opened.store.removals()
    assert _stored(opened, "other") == 0


async def test_accounts_are_the_same_after_a_start(tmp_path: Path) -> None:
    """Sessions, bytes, and what was used this day and this month."""
    async with opened_store(tmp_path) as opened:
        await opened.store.commit(creating())
        await opened.store.commit(adding(make_message("msg_1", PLOT, "text"), NOW, (STORED_PLOT,)))
        used = Usage(input_tokens=1, cache_read_tokens=2, cache_write_tokens=3, output_tokens=4, reasoning_tokens=5)
        days = [NOW, NOW - timedelta(days=1), NOW - timedelta(days=2), NOW - timedelta(days=90)]
        await _spend(opened, *(_spending(at=at, usage=used, cost_pico_usd=7) for at in days))
        before = opened.store.of("default").account(NOW)
        assert before == Account(1, _stored(opened), Consumption(15, 7), Consumption(30, 14))
    async with opened_store(tmp_path) as opened:
        assert opened.store.of("default").account(NOW) == before
        assert opened.store.of("default").account(NOW - timedelta(days=5)).month == Consumption(15, 7)
        assert opened.store.of("unknown").account(NOW) == Account()


async def test_only_what_is_stored_counts(opened: OpenedStore) -> None:
    """A commit that fails beside others, and one that is tried again, change an account once or not at all."""
    before = opened.store.of("default").account(NOW)
    foreign = adding(make_message("msg_1", "stolen", session_id="ses_2"))
    good = adding(make_message("msg_1", PLOT), NOW, (STORED_PLOT,), AddSpending(_spending(cost_pico_usd=5)))
    bad = msgspec.structs.replace(foreign, changes=(AddSpending(_spending(cost_pico_usd=100)), *foreign.changes))
    outcomes = await asyncio.gather(*map(opened.store.commit, (good, bad)), return_exceptions=True)
    assert isinstance(outcomes[1], StorageError)
    after = opened.store.of("default").account(NOW)
    assert after.day.cost_pico_usd == before.day.cost_pico_usd + 5
    assert [row.cost_pico_usd for row in await _used(opened)] == [5]
    _stored(opened)


async def test_commits_of_one_transaction_do_not_share_what_is_left(opened: OpenedStore) -> None:
    """The first has it, the others fail alone, with what the tenant has by then."""
    room = _stored(opened) + 3_000

    def append(number: int, session_id: str = "ses_1", tenant: str = "default") -> "asyncio.Future[Committed]":
        message = make_message(f"msg_{number}", "x" * 1_000, session_id=session_id)
        changes = (PutMessage(message), RequireQuota(0, room))
        return opened.store.commit(Commit(tenant=tenant, session_id=session_id, at=NOW, changes=changes))

    outcomes = await asyncio.gather(*map(append, range(4)), append(4, "ses_3", "other"), return_exceptions=True)
    assert [isinstance(one, QuotaExceeded) for one in outcomes] == [False, False, True, True, False]
    refused = outcomes[2]
    assert isinstance(refused, QuotaExceeded)
    assert refused.metadata == {"quota": "stored_bytes", "limit": str(room), "used": str(_stored(opened))}
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_0"),)))
    await append(5)


async def test_sessions_are_counted_where_they_are_created(opened: OpenedStore) -> None:
    """Two at once do not share the last place; a tenant with more than it may have changes what it has."""

    def create(session_id: str) -> "asyncio.Future[Committed]":
        changes = (PutSession(make_session(session_id)), RequireQuota(3, 0))
        return opened.store.commit(Commit(session_id=session_id, at=NOW, changes=changes))

    outcomes = await asyncio.gather(create("ses_4"), create("ses_5"), return_exceptions=True)
    assert [isinstance(one, QuotaExceeded) for one in outcomes] == [False, True]
    renamed = PutSession(make_session("ses_1", revision=2))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(renamed, RequireQuota(1, 1 << 30))))
    less = (RemoveMessage("msg_1"), RequireQuota(1, 1))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=less))


async def test_an_import_is_refused_before_it_is_published(opened: OpenedStore) -> None:
    """All that is stored of it counts, as it will once it is published."""
    room = _stored(opened) + 3_000
    part = Commit(session_id="ses_9", state=SessionState.IMPORTING, at=NOW)

    def append(*changes: Change, text: str = "") -> "asyncio.Future[Committed]":
        message = PutMessage(make_message(f"msg_{len(text)}", text, session_id="ses_9"))
        return opened.store.commit(msgspec.structs.replace(part, changes=(*changes, message, RequireQuota(0, room))))

    await append(PutSession(make_session("ses_9")), text="x" * 1_000)
    with pytest.raises(QuotaExceeded):
        await append(text="x" * 2_000)
    await append(text="x" * 10)


async def test_usage_is_summed_exactly(opened: OpenedStore) -> None:
    """Bucket by bucket, to the trillionth of a dollar; what nobody knows stays unknown, and is counted."""
    most = Usage(input_tokens=1, cache_read_tokens=2, output_tokens=4, reasoning_tokens=5, reported_output_tokens=4)
    await _spend(opened, _spending(usage=most, cost_pico_usd=1))
    await _spend(
        opened,
        _spending(usage=Usage(output_tokens=10), steps_without_price=1, estimated_steps=1),
        _spending(steps=0, turns=1),
    )
    [row] = await _used(opened)
    assert row == UsageRow(
        start=DAY[0],
        usage=Usage(
            input_tokens=1, cache_read_tokens=2, output_tokens=14, reasoning_tokens=5, reported_output_tokens=14
        ),
        cost_pico_usd=1,
        steps=2,
        steps_without_price=1,
        turns=1,
        estimated_steps=1,
    )
    assert await _used(opened, tenant="other") == ()


async def test_usage_stays_when_its_session_is_removed(opened: OpenedStore) -> None:
    """It was paid."""
    await _spend(opened, _spending(cost_pico_usd=1))
    await opened.store.commit(removing())
    await opened.store.removals()
    assert [row.session_id for row in await _used(opened, UsageDimension.SESSION)] == ["ses_1"]
    assert opened.store.of("default").account(NOW).day.cost_pico_usd == 1


async def test_usage_is_grouped_and_comes_in_pages(opened: OpenedStore) -> None:
    """By each dimension; a page goes on where the one before ended."""
    for subject in ("ann", "bob"):
        for model in ("a", "b"):
            spent = _spending(subject=subject, model_id=model, cost_pico_usd=1)
            await _spend(opened, spent, msgspec.structs.replace(spent, at=NOW + timedelta(days=1)))
    assert [(row.subject, row.cost_pico_usd) for row in await _used(opened, UsageDimension.SUBJECT)] == [
        ("ann", 2),
        ("bob", 2),
    ]
    assert [(row.provider_id, row.model_id) for row in await _used(opened, UsageDimension.MODEL)] == [
        ("mine", "a"),
        ("mine", "b"),
    ]
    tomorrow = (DAY[1], DAY[1] + timedelta(days=1))
    by_all = UsageQuery(periods=(DAY, tomorrow), group_by=frozenset({UsageDimension.MODEL, UsageDimension.SUBJECT}))
    token, pages = "", list[UsagePage]()
    while not pages or token:
        pages.append(await opened.store.of("default").usage(by_all, Page(size=3, token=token)))
        token = pages[-1].next_token
    rows = [row for page in pages for row in page.rows]
    assert [len(page.rows) for page in pages] == [3, 3, 2]
    assert [(row.start, row.model_id, row.subject) for row in rows] == [
        (day, model, subject) for day in (DAY[0], tomorrow[0]) for model in ("a", "b") for subject in ("ann", "bob")
    ]
    with pytest.raises(InvalidRequest):
        await opened.store.of("other").usage(by_all, Page(size=3, token=pages[0].next_token))


async def test_a_page_of_usage_keeps_no_more_groups_than_it_shows(
    opened: OpenedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, and however few rows are read at a time; each sum is that of all rows."""
    monkeypatch.setattr(reading, "MAX_ROWS", 7)
    drawn = random.Random(1)
    expected, spent = dict[tuple[str, str], int](), list[Spending]()
    for number in range(120):
        session, subject = f"ses_{drawn.randrange(20)}", drawn.choice(("ann", "bob", ""))
        expected[session, subject] = expected.get((session, subject), 0) + number
        at = NOW - timedelta(minutes=drawn.randrange(600))
        spent.append(_spending(session_id=session, subject=subject, cost_pico_usd=number, at=at))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=tuple(map(AddSpending, spent))))
    kept, whole = list[int](), heapq.nsmallest
    monkeypatch.setattr(reading.heapq, "nsmallest", lambda most, of: (kept.append(len(of)), whole(most, of))[1])
    group_by = frozenset({UsageDimension.SESSION, UsageDimension.SUBJECT})
    query = UsageQuery(periods=((DAY[0] - timedelta(days=1), DAY[1]),), group_by=group_by)
    token, rows = "", list[UsageRow]()
    while not rows or token:
        page = await opened.store.of("default").usage(query, Page(size=4, token=token))
        rows, token = [*rows, *page.rows], page.next_token
    told = {(row.session_id, row.subject): row.cost_pico_usd for row in rows}
    assert list(told.items()) == sorted(expected.items())
    assert len(rows) == len(told)
    assert max(kept) <= 4 + 1 + 7


async def test_a_period_begins_and_ends_at_a_quarter_of_an_hour(opened: OpenedStore) -> None:
    """Its end does not belong to it: the days of every time zone are exact."""
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    for minutes in (-1, 0, 14, 15):
        await _spend(opened, _spending(at=noon + timedelta(minutes=minutes), cost_pico_usd=1))
    query = UsageQuery(periods=((noon, noon + timedelta(minutes=15)),))
    [row] = (await opened.store.of("default").usage(query, Page(size=1))).rows
    assert (row.start, row.cost_pico_usd) == (noon, 2)
