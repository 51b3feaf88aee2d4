"""Store, searching: the index is in step with the messages, and finds what a look at every text finds."""

import asyncio
import re
import sqlite3
import tempfile
import unicodedata
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fakes.domain_values import (
    NOW,
    adding,
    creating,
    later,
    make_answer,
    make_file,
    make_message,
    make_part,
    make_session,
    of_tenant,
    removing,
)
from tests.support.fakes.opened_store import OpenedStore, opened_store
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged
from turnwire.domain.conversation.messages import (
    Content,
    Message,
    MessageStatus,
    MessageType,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.errors import InvalidRequest, SearchTooCostly, SessionNotFound, StaleVersion, TooManySearches
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.domain.searching import words
from turnwire.domain.searching.content import MAX_SEARCHED_CHARACTERS
from turnwire.domain.searching.hits import Search, SearchHit, SearchOrder, SearchPage
from turnwire.domain.searching.queries import parse_query
from turnwire.ports.commit import (
    Commit,
    HideMessages,
    NewEvent,
    PublishSession,
    PutFile,
    PutMessage,
    PutSession,
    RemoveMessage,
    RequireHead,
    SessionState,
    ShowMessages,
)
from turnwire.storage.sql import housekeeping, searching
from turnwire.storage.sql import words as index
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.words import is_complete, renew_some
from turnwire.storage.sql.writer import Other
from turnwire.storage.sqlite import database

TOLD = NewEvent(ConversationChanged(ConversationChange.REVERTED, "anything"))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedStore]:
    """A store with an empty session."""
    async with opened_store(tmp_path) as running:
        await running.store.commit(creating())
        yield running


async def page(
    opened: OpenedStore,
    query: str,
    tenant: str = DEFAULT_TENANT,
    place: bytes = b"",
    size: int = 1000,
    **filters: object,
) -> SearchPage:
    """Returns a page of what a query finds, the newest first unless `order` says otherwise."""
    search = Search(**{"query": parse_query(query), "order": SearchOrder.NEWEST, **filters})
    return await opened.store.of(tenant).search(search, place, size)


async def hits(opened: OpenedStore, query: str, **filters: object) -> list[SearchHit]:
    """Returns all hits of a query. A page ends early when showing them takes long."""
    found, place = list[SearchHit](), b""
    while True:
        some = await page(opened, query, place=place, **filters)
        found += some.hits
        if not (place := some.next_place):
            return found


async def ids(opened: OpenedStore, query: str, **filters: object) -> list[str]:
    """Returns the messages of all hits of a query."""
    return [hit.message_id for hit in await hits(opened, query, **filters)]


async def settled(opened: OpenedStore) -> None:
    """Returns when all messages are in the index."""
    while not await opened.store._reading.run(is_complete):
        await asyncio.sleep(0.005)


def rows(opened: OpenedStore, query: str) -> list[tuple]:
    """Returns the rows of a query on a database."""
    with opened.database() as db:
        return db.rows(query)


def pieces(opened: OpenedStore) -> set[tuple]:
    """Returns the segments of the index."""
    return set(rows(opened, "SELECT DISTINCT segid FROM search_index_idx"))


def hiding(first: str = "", session_id: str = "ses_1") -> Commit:
    """Hides messages."""
    return Commit(session_id=session_id, at=NOW, changes=(HideMessages(first),), events=(TOLD,))


SHOWING = Commit(session_id="ses_1", at=NOW, changes=(ShowMessages(),), events=(TOLD,))


def changed(message: Message, *indexes: int) -> Commit:
    """Writes a stored message again, with some of its parts."""
    return Commit(session_id=message.session_id, at=NOW, changes=(PutMessage(message),))


async def test_a_message_is_found_as_soon_as_it_is_stored(opened: OpenedStore) -> None:
    """With its session, its type and its sender."""
    message = make_message("msg_1", "The summer trip", sender="ann", sender_name="Ann", type=MessageType.HOST)
    await opened.store.commit(adding(message))
    [hit] = await hits(opened, "TRIP")
    assert (hit.session_id, hit.session_title, hit.message_id, hit.part_index) == ("ses_1", "", "msg_1", 0)
    assert (hit.type, hit.created_at, hit.sender_name) == (MessageType.HOST, NOW, "Ann")
    assert [(piece.text, piece.is_match) for piece in hit.snippet] == [("The summer ", False), ("trip", True)]


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("content", "is_found"),
    [
        (Text("needle"), True),
        (Refusal("needle"), True),
        (Reasoning("needle"), False),
        (ToolResult(call_id="c", output="needle"), True),
        (ToolUse(name="needle", status=ToolStatus.SUCCESS, output="x"), True),
        (ToolUse(name="x", input_json='{"a": "needle"}', status=ToolStatus.SUCCESS, output="x"), True),
        (ToolUse(name="x", status=ToolStatus.SUCCESS, output="needle"), True),
        (ToolUse(name="x", status=ToolStatus.ERROR, error="needle"), True),
        (ToolUse(name="needle", status=ToolStatus.PENDING), False),
        (Text("x " * (MAX_SEARCHED_CHARACTERS // 2 - 4) + "needle"), True),
        (Text("x " * (MAX_SEARCHED_CHARACTERS // 2) + "needle"), False),
        (Text("needle " + "x" * 200_000), True),
    ],
    ids=repr,
)
async def test_what_of_a_part_is_searched(opened: OpenedStore, content: Content, is_found: bool) -> None:
    """Texts and answers of tools are, from the beginning of each part; reasoning and open calls are not."""
    await opened.store.commit(adding(make_answer("msg_1", content)))
    assert await ids(opened, "needle") == (["msg_1"] if is_found else [])
    await opened.store.commit(removing())
    assert index_is_empty(opened)


async def test_a_file_is_found_by_its_name(opened: OpenedStore) -> None:
    """Not by its content."""
    content = b"needle"
    file = make_file(content, "Plan-2026.pdf")
    await opened.store.commit(adding(make_message("msg_1", file), NOW, (PutFile(file.sha256, content),)))
    assert await ids(opened, "plan pdf") == ["msg_1"]
    assert await ids(opened, "needle") == []


@pytest.mark.sqlite
async def test_messages_of_one_transaction_are_written_to_the_index_together(opened: OpenedStore) -> None:
    """One piece of the index for all of them: FTS5 writes a piece of its own before each statement with a trigger."""
    before = pieces(opened)
    told = [adding(make_message(f"msg_{n}", f"word{n}", created_at=later(-n))) for n in range(8)]
    await asyncio.gather(*(opened.store.commit(one) for one in told))
    assert [await ids(opened, f"word{n}") for n in range(8)] == [[f"msg_{n}"] for n in range(8)]
    assert len(pieces(opened) - before) == 1


async def test_a_commit_that_fails_leaves_nothing_in_the_index(opened: OpenedStore) -> None:
    """The others of its transaction are found."""
    failing = Commit(session_id="ses_1", at=NOW, changes=(PutMessage(make_message("msg_2", "nowhere")),))
    failing = msgspec.structs.replace(failing, changes=(*failing.changes, RequireHead(99)))
    told = (adding(make_message("msg_1", "first")), failing, adding(make_message("msg_3", "third")))
    outcomes = await asyncio.gather(*(opened.store.commit(one) for one in told), return_exceptions=True)
    assert [isinstance(one, StaleVersion) for one in outcomes] == [False, True, False]
    assert [await ids(opened, word) for word in ("first", "nowhere", "third")] == [["msg_1"], [], ["msg_3"]]
    assert len(rows(opened, "SELECT id FROM search_entries")) == 2
    opened.assert_sound()


@pytest.mark.parametrize("further", [0, 40])
async def test_a_streaming_answer_is_found_when_it_is_complete(opened: OpenedStore, further: int) -> None:
    """And a call when it has its result: each part is indexed once; also beside many that are not searched."""
    call = ToolUse(name="look", input_json='{"where": "harbour"}')
    answer = make_answer("msg_1", "Ahoy", call, *[call] * further, status=MessageStatus.STREAMING)
    await opened.store.commit(adding(answer))
    assert await ids(opened, "ahoy") == []
    complete = msgspec.structs.replace(answer, status=MessageStatus.COMPLETE)
    await opened.store.commit(changed(complete))
    assert await ids(opened, "ahoy") == ["msg_1"]
    assert await ids(opened, "harbour") == []
    done = msgspec.structs.replace(call, status=ToolStatus.SUCCESS, output="ships")
    await opened.store.commit(
        changed(msgspec.structs.replace(complete, parts=(answer.parts[0], make_part(1, done), *answer.parts[2:])), 1)
    )
    assert [hit.part_index for hit in await hits(opened, "harbour ships")] == [1]
    assert rows(opened, "SELECT count(*) FROM search_entries") == [(2,)]


async def test_a_waiting_message_is_found_when_it_joins(opened: OpenedStore) -> None:
    """Until then it is no part of the conversation; when it is put back to wait it is none again."""
    waiting = make_message("msg_1", "patience", status=MessageStatus.QUEUED)
    await opened.store.commit(adding(waiting))
    assert await ids(opened, "patience") == []
    joined = msgspec.structs.replace(waiting, status=MessageStatus.COMPLETE)
    await opened.store.commit(changed(joined))
    assert await ids(opened, "patience") == ["msg_1"]
    await opened.store.commit(changed(waiting))
    assert await ids(opened, "patience") == []


@pytest.mark.parametrize("further", [1, 40])
async def test_a_part_that_is_rewritten_is_found_by_its_new_words(opened: OpenedStore, further: int) -> None:
    """And no longer by those that it had; also beside many other parts."""
    await opened.store.commit(adding(make_message("msg_1", "before", *["beside"] * further)))
    await opened.store.commit(changed(make_message("msg_1", "after", *["beside"] * further), 0))
    assert [sorted(set(await ids(opened, word))) for word in ("before", "after", "beside")] == [
        [],
        ["msg_1"],
        ["msg_1"],
    ]


async def test_hidden_messages_are_not_found_until_they_are_restored(opened: OpenedStore) -> None:
    """Neither by rank nor by time."""
    for number in range(4):
        await opened.store.commit(adding(make_message(f"msg_{number}", "sail"), later(number)))
    await opened.store.commit(hiding("msg_2"))
    for order in SearchOrder:
        assert sorted(await ids(opened, "sail", order=order)) == ["msg_0", "msg_1"]
    await opened.store.commit(SHOWING)
    assert len(await ids(opened, "sail")) == 4


def index_is_empty(opened: OpenedStore) -> bool:
    """Returns whether nothing of any message is left in the index, its words included."""
    with opened.database() as db:
        words = "search_index"
        if db.dialect.row_id == "rowid":  # SQLite shows them to those alone who ask for words
            db.run("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, search_index, row)")
            words = "temp.terms"
        return all(db.row(f"SELECT count(*) FROM {table}") == (0,) for table in ("search_entries", words))


@pytest.mark.slow
async def test_removed_words_leave_the_index(opened: OpenedStore) -> None:
    """In the commit that removes their message or their session."""
    await opened.store.commit(creating("ses_2"))
    for number in range(200):
        session_id = f"ses_{number % 2 + 1}"
        await opened.store.commit(adding(make_message(f"msg_{number}", f"word{number} 你好", session_id=session_id)))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_0"),)))
    assert await ids(opened, "word0") == []
    await opened.store.commit(removing("ses_1"))
    assert len(await ids(opened, "你好")) == 100
    await opened.store.commit(removing("ses_2"))
    assert await ids(opened, "你") == []
    assert index_is_empty(opened)


async def test_a_search_by_rank_prefers_more_and_rarer_words(opened: OpenedStore) -> None:
    """And less text beside them; equal ones come newest first."""
    for number in range(20):
        await opened.store.commit(adding(make_message(f"common_{number}", "the boat")))
    await opened.store.commit(adding(make_message("once", "the boat " + "and a lot of other words " * 6)))
    await opened.store.commit(adding(make_message("often", "boat harbour boat harbour")))
    await opened.store.commit(adding(make_message("rare", "the harbour")))
    found = await ids(opened, "boat OR harbour", order=SearchOrder.RANK)
    assert (found[0], found[-1]) == ("often", "once")
    assert found.index("rare") < found.index("common_19") < found.index("common_0")


async def test_a_rarer_word_weighs_more_than_many_of_a_common_one(opened: OpenedStore) -> None:
    """Among the hits."""
    for number in range(11):
        await opened.store.commit(adding(make_message(f"common_{number}", "the boat")))
    for number in range(9):
        await opened.store.commit(adding(make_message(f"rarer_{number}", "the harbour")))
    await opened.store.commit(adding(make_message("often", "boat " * 6)))
    found = await ids(opened, "boat OR harbour", order=SearchOrder.RANK)
    assert found[:10] == [*(f"rarer_{number}" for number in reversed(range(9))), "often"]


@pytest.mark.slow
async def test_the_order_by_rank_is_that_of_ones_own_messages(opened: OpenedStore) -> None:
    """Messages of another tenant change nothing of it."""
    for number in range(30):
        made = make_message(f"msg_{number}", "boat " * (number % 4) + "tide " * (number % 3) + "x " * (number % 7))
        await opened.store.commit(adding(made))
    before = await ids(opened, "boat OR tide", order=SearchOrder.RANK)
    theirs = make_session("ses_b", tenant="b")
    await opened.store.commit(Commit(tenant="b", session_id="ses_b", at=NOW, changes=(PutSession(theirs),)))
    for number in range(100):
        message = make_message(f"msg_b{number}", "boat and much else " * 9, session_id="ses_b")
        await opened.store.commit(of_tenant("b", adding(message)))
    assert await ids(opened, "boat OR tide", order=SearchOrder.RANK) == before


async def test_filters_leave_out_other_messages(opened: OpenedStore) -> None:
    """By session, type, sender and time of creation, whose end is not part of the range."""
    await opened.store.commit(creating("ses_2"))
    for number, (kind, session) in enumerate(
        [(MessageType.USER, "ses_1"), (MessageType.HOST, "ses_2"), (MessageType.SYSTEM, "ses_1")]
    ):
        made = make_message(
            f"msg_{number}", "sail", type=kind, session_id=session, sender=f"s {number}", created_at=later(number / 4)
        )
        await opened.store.commit(adding(made))
    assert await ids(opened, "sail", session_ids=("ses_1",)) == ["msg_2", "msg_0"]
    assert await ids(opened, "sail", session_ids=("ses_1", "ses_2")) == ["msg_2", "msg_1", "msg_0"]
    assert await ids(opened, "sail", types=(MessageType.USER, MessageType.HOST)) == ["msg_1", "msg_0"]
    assert await ids(opened, "sail", types=(MessageType.ASSISTANT,)) == []
    assert await ids(opened, "sail", senders=("s 0", "s 2")) == ["msg_2", "msg_0"]
    assert await ids(opened, "sail", senders=("s",)) == []
    assert await ids(opened, "sail", start=later(0.25)) == ["msg_2", "msg_1"]
    assert await ids(opened, "sail", end=later(0.25)) == ["msg_0"]
    assert await ids(opened, "sail", start=later(0.25), end=later(0.5), order=SearchOrder.RANK) == ["msg_1"]
    assert await ids(opened, "sail", order=SearchOrder.OLDEST) == ["msg_0", "msg_1", "msg_2"]
    with pytest.raises(SessionNotFound):
        await ids(opened, "sail", session_ids=("ses_1", "ses_3"))


@pytest.mark.slow
@pytest.mark.parametrize("order", list(SearchOrder))
async def test_pages_stay_in_order_while_messages_come_and_go(opened: OpenedStore, order: SearchOrder) -> None:
    """No hit twice, none that was there is missing."""
    for number in range(40):
        made = make_message(f"msg_{number}", "sail " * (number % 7 + 1), created_at=later(number * 10))
        await opened.store.commit(adding(made))
    whole = await ids(opened, "sail", order=order)
    found, place = [], b""
    for number in range(100):
        some = await page(opened, "sail", place=place, size=7, order=order)
        found += [hit.message_id for hit in some.hits]
        if not (place := some.next_place):
            break
        for offset in (-5, 5, 10_000):  # before, between and behind those that are there
            created = later(number * 10 + offset)
            await opened.store.commit(adding(make_message(f"new_{number}_{offset}", "sail sail", created_at=created)))
        await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage(whole[-1 - number]),)))
    assert len(found) == len(set(found))
    old = [message_id for message_id in found if not message_id.startswith("new")]
    assert old == [message_id for message_id in whole if message_id in set(old)]
    assert set(whole[:20]) <= set(old)
    assert number < 20


async def test_ranking_is_bounded_and_time_order_is_not(opened: OpenedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best of the newest; every hit by time."""
    monkeypatch.setattr(searching, "MAX_CANDIDATES", 20)
    monkeypatch.setattr(searching, "MAX_RANKED", 10)
    for number in range(30):
        made = make_message(f"msg_{number}", "sail " * (30 - number), created_at=later(number))
        await opened.store.commit(adding(made))
    found = await ids(opened, "sail", order=SearchOrder.RANK)
    assert len(found) == 10
    assert set(found) <= {f"msg_{number}" for number in range(10, 30)}
    assert len(await ids(opened, "sail")) == 30


@pytest.mark.parametrize("long", ["session_title", "sender_name"])
async def test_a_page_has_a_bounded_size(opened: OpenedStore, monkeypatch: pytest.MonkeyPatch, long: str) -> None:
    """Long titles and names of senders count too; what does not fit is on the next pages."""
    monkeypatch.setattr(searching, "MAX_PAGE_BYTES", 10_000)
    text = "x" * 2000
    session = make_session("ses_2", title=text if long == "session_title" else "")
    sender = text if long == "sender_name" else ""
    await opened.store.commit(Commit(session_id="ses_2", at=NOW, changes=(PutSession(session),)))
    for number in range(12):
        made = make_message(f"msg_{number}", "sail", session_id="ses_2", sender_name=sender)
        await opened.store.commit(adding(made))
    found, place = list[int](), b""
    while not found or place:
        got = await page(opened, "sail", place=place)
        found.append(len(got.hits))
        place = got.next_place
        assert {getattr(hit, long) for hit in got.hits} == {text}
    assert found == [4, 4, 4]


async def test_entries_of_one_second_keep_their_order(opened: OpenedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those for which the second has no room are filed behind it, and found by its time."""
    monkeypatch.setattr(index, "NUMBER_BITS", 2)
    monkeypatch.setattr(searching, "NUMBER_BITS", 2)
    for number in range(15):
        await opened.store.commit(adding(make_message(f"msg_{number:02}", "sail")))
    found = await ids(opened, "sail", order=SearchOrder.OLDEST, start=NOW, end=later(0.1))
    assert found == [f"msg_{number:02}" for number in range(15)]


@pytest.mark.parametrize("year", [1, 1969, 9999])
async def test_messages_of_any_time_are_found(opened: OpenedStore, year: int) -> None:
    """An import may have them."""
    await opened.store.commit(adding(make_message("msg_1", "sail", created_at=NOW.replace(year=year))))
    await opened.store.commit(adding(make_message("msg_2", "sail")))
    expected = ["msg_1", "msg_2"] if year < 2000 else ["msg_2", "msg_1"]
    assert await ids(opened, "sail", order=SearchOrder.OLDEST) == expected


async def test_tenants_find_their_own(opened: OpenedStore) -> None:
    """A word of another tenant is a word that is not there."""
    theirs = make_session("ses_b", tenant="b")
    await opened.store.commit(Commit(tenant="b", session_id="ses_b", at=NOW, changes=(PutSession(theirs),)))
    await opened.store.commit(adding(make_message("msg_a", "secret")))
    await opened.store.commit(of_tenant("b", adding(make_message("msg_b", "secret plan", session_id="ses_b"))))
    assert await ids(opened, "secret") == ["msg_a"]
    assert await ids(opened, "secret", tenant="b") == ["msg_b"]
    assert await ids(opened, "pl*") == []
    assert await ids(opened, "secret", tenant="c") == []
    with pytest.raises(SessionNotFound):
        await ids(opened, "secret", session_ids=("ses_b",))


@pytest.mark.slow
@pytest.mark.sqlite
async def test_a_search_reads_nothing_of_another_tenant(opened: OpenedStore) -> None:
    """A word that another tenant has as well takes the steps of one's own word, one that it has alone those of none."""
    theirs = make_session("ses_b", tenant="b")
    await opened.store.commit(Commit(tenant="b", session_id="ses_b", at=NOW, changes=(PutSession(theirs),)))
    for number in range(20):
        await opened.store.commit(adding(make_message(f"msg_{number}", "shared shadow")))
    for number in range(300):
        message = make_message(f"msg_b{number}", "shared theirs shallow", session_id="ses_b")
        await opened.store.commit(of_tenant("b", adding(message)))
    await cost(opened, "shared")  # FTS5 reads its own settings once
    assert await cost(opened, "shared") == await cost(opened, "shadow")
    assert await cost(opened, "theirs") == await cost(opened, "nobody")
    assert await cost(opened, "thei*") == await cost(opened, "nobo*")
    assert await cost(opened, "shared -theirs") == await cost(opened, "shared -nobody")
    assert await cost(opened, "shadow OR theirs") == await cost(opened, "shadow OR nobody")


async def cost(opened: OpenedStore, query: str) -> list[int]:
    """Returns how many steps a search takes, in each order."""

    def count(db: sqlite3.Connection, order: SearchOrder) -> int:
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        db.set_progress_handler(step, 1)
        searching.find(db, DEFAULT_TENANT, Search(query=parse_query(query), order=order), b"", 100)
        db.set_progress_handler(None, 0)
        return steps

    connection = opened.store._reads.searches._connection
    return [await connection.run(count, order) for order in SearchOrder]


async def test_a_session_that_is_stored_in_parts_is_found_once_it_is_all_there(opened: OpenedStore) -> None:
    """In the commit that says so; before, nobody finds it."""
    session = make_session("ses_b", tenant="b")
    parts = [PutMessage(make_message(f"msg_{number}", "sail", session_id="ses_b")) for number in range(2)]
    part = Commit(
        tenant="b", session_id="ses_b", state=SessionState.IMPORTING, at=NOW, changes=(PutSession(session), *parts)
    )
    await opened.store.commit(part)
    assert await ids(opened, "sail", tenant="b") == []
    await opened.store.commit(msgspec.structs.replace(part, changes=(PublishSession(2, NOW),)))
    assert sorted(await ids(opened, "sail", tenant="b")) == ["msg_0", "msg_1"]
    assert await ids(opened, "sail") == []
    assert (await page(opened, "sail", tenant="b")).is_complete


async def test_a_removed_text_that_cannot_be_read_lets_the_index_be_made_anew(opened: OpenedStore) -> None:
    """At the next start: its words cannot be taken out."""
    for number in range(3):
        await opened.store.commit(adding(make_message(f"msg_{number}", "sail")))
    damage = "UPDATE messages SET parts = ? WHERE message_id = 'msg_0'"
    await opened.store._writing.run(lambda db: db.run(damage, (b"{}",)))
    await opened.store.commit(Commit(session_id="ses_1", at=NOW, changes=(RemoveMessage("msg_0"),)))
    assert len(await ids(opened, "sail")) == 2
    await opened.store.aclose()
    async with opened_store(opened.path.parent) as again:
        await settled(again)
        assert len(await ids(again, "sail")) == 2
    assert_sound(opened)


@pytest.mark.slow
async def test_an_index_of_other_words_is_made_anew(
    opened: OpenedStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While the server runs, newest messages first; the answer says that it is not complete."""
    for number in range(100):
        await opened.store.commit(adding(make_message(f"msg_{number:03}", f"sail number{number}")))
    await opened.store.aclose()
    monkeypatch.setattr(index, "VERSION", "another")
    monkeypatch.setattr(housekeeping, "PAUSE_SECONDS", 1e6)
    async with opened_store(tmp_path) as again:
        while not (found := await ids(again, "sail")):
            await asyncio.sleep(0.005)
        assert (len(found), found[0]) == (index.STEP_MESSAGES, "msg_068")
        assert not (await page(again, "sail")).is_complete
        await again.store.commit(adding(make_message("msg_new", "sail"), later(9)))
        assert "msg_new" in await ids(again, "sail")
    monkeypatch.setattr(housekeeping, "PAUSE_SECONDS", 0.0)
    async with opened_store(tmp_path) as again:
        await settled(again)
        assert len(await ids(again, "sail")) == 101
        assert (await page(again, "sail")).is_complete
    assert_sound(opened)


@pytest.mark.slow
async def test_a_costly_search_is_ended(opened: OpenedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next one is answered."""
    for number in range(300):
        await opened.store.commit(adding(make_message(f"msg_{number}", "sail")))
    with monkeypatch.context() as patch:
        patch.setattr(database, "INSTRUCTIONS", 10)
        patch.setattr(opened.store._reads.searches, "_max_seconds", 0.0)
        with pytest.raises(SearchTooCostly):
            await ids(opened, "sail", order=SearchOrder.RANK)
    monkeypatch.setattr(searching, "SHOWING_SECONDS", 60.0)
    monkeypatch.setattr(opened.store._reads.searches, "_max_seconds", 60.0)
    assert len(await ids(opened, "sail")) == 300


async def test_searches_of_a_tenant_are_bounded(opened: OpenedStore) -> None:
    """One more is refused, another tenant's is not; who leaves makes room when the search has ended."""
    running = [asyncio.create_task(page(opened, "sail")) for _ in range(searching.MAX_OF_TENANT)]
    await asyncio.sleep(0)
    with pytest.raises(TooManySearches):
        await page(opened, "sail")
    await page(opened, "sail", tenant="b")
    await asyncio.gather(*running)
    running = [asyncio.create_task(page(opened, "sail")) for _ in range(searching.MAX_OF_TENANT)]
    await asyncio.sleep(0)
    for task in running:
        task.cancel()
    assert all(
        isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*running, return_exceptions=True)
    )
    await page(opened, "sail", tenant="b")
    assert (await page(opened, "sail")).hits == ()


async def test_a_place_of_another_order_is_refused(opened: OpenedStore) -> None:
    """That of ranked hits names many entries."""
    for number in range(9):
        await opened.store.commit(adding(make_message(f"msg_{number}", "sail")))
    ranked = await page(opened, "sail", size=2, order=SearchOrder.RANK)
    with pytest.raises(InvalidRequest):
        await page(opened, "sail", place=ranked.next_place)


VOCABULARY = (
    *("sail", "sailing", "Ünï", "uni", "Straße", "strasse", "x1", "北京", "京", "北京天安门"),
    *("東京タワー", "トウキョウ", "학교에서", "학교", "🎉", "שלום", "שָׁלוֹם", "सलाम", "हिन्दी", "สวัสดี"),
    *("e\u0301te", "été", "ＡＢＣ", "abc"),
)
SEPARATORS = (" ", ", ", "\n", "-", "_", "  ", "…", "\u200f ")
RUNS = re.compile("[぀-ヿ一-鿿가-힯฀-๿]")

texts = st.lists(st.tuples(st.sampled_from(VOCABULARY), st.sampled_from((*SEPARATORS, ""))), max_size=6).map(
    lambda pairs: "".join(word + separator for word, separator in pairs)
)


def folded(text: str) -> str:
    """Returns a text as it is compared, written down without the server's rules."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    plain = "".join(c for c in plain if not ("\u0300" <= c <= "\u036f" or "\u0591" <= c <= "\u05c7"))
    return unicodedata.normalize("NFC", plain)


def has(text: str, term: str, *, is_prefix: bool) -> bool:
    """Returns whether a term is in a text, by looking at every place of it."""
    pieces = [re.escape(piece) for piece in separated(term)]
    plain = " " + " ".join(separated(text)) + " "
    pattern = " ".join(pieces)
    before = "" if RUNS.search(separated(term)[0][0]) else r"(?<= )"
    last = separated(term)[-1]
    after = "" if is_prefix or RUNS.search(last[-1]) else r"(?= )"
    return re.search(before + pattern + after, plain) is not None


def separated(text: str) -> list[str]:
    """Returns the words of a text: of letters, or of a script without spaces, or one emoji."""
    found = re.findall(r"[぀-ヿ一-鿿가-힯฀-๿]+|🎉|(?:(?![぀-ヿ一-鿿가-힯฀-๿_])(?:\w|[\u0900-\u0963]))+", folded(text))
    return list(found)


@dataclass
class Model:
    """The contents of a store, as texts."""

    sessions: dict[str, list[str]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, list[list[str]]] = field(default_factory=dict)
    count: int = 0
    removed: int = 0

    def found(self, wanted: list[tuple[str, bool]], without: list[tuple[str, bool]]) -> set[str]:
        """Returns the messages that have all of the one and none of the other terms."""
        gone = {message for blocks in self.hidden.values() for block in blocks for message in block}
        return {
            message
            for messages in self.sessions.values()
            for message in messages
            if message not in gone
            and all(has(self.texts[message], term, is_prefix=prefix) for term, prefix in wanted)
            and not any(has(self.texts[message], term, is_prefix=prefix) for term, prefix in without)
        }


sessions = st.sampled_from(("ses_1", "ses_2"))
steps = st.one_of(
    st.tuples(st.just("add"), sessions, texts),
    st.tuples(st.just("add"), sessions, texts),
    st.tuples(st.just("add"), sessions, texts),
    st.tuples(st.just("rewrite"), sessions, texts),
    st.tuples(st.just("remove"), sessions, st.just("")),
    st.tuples(st.just("hide"), sessions, st.just("")),
    st.tuples(st.just("show"), sessions, st.just("")),
    st.tuples(st.just("delete"), sessions, st.just("")),
    st.tuples(st.just("restart"), sessions, st.just("")),
)
terms = st.tuples(texts.filter(lambda text: bool(separated(text))), st.booleans())


async def carry_out(opened: OpenedStore, model: Model, step: tuple[str, str, str]) -> None:
    """Does a step in the store and in the model."""
    name, place, text = step
    session = f"{place}_{model.removed}"  # an id is never given again
    here = model.sessions.get(session)
    shown = [m for m in here or [] if not any(m in block for block in model.hidden.get(session, []))]
    if here is None:
        await opened.store.commit(creating(session))
        model.sessions[session], model.hidden[session] = [], []
    elif name == "add":
        model.count += 1
        message = f"msg_{model.count}"
        created = later((model.count * 7919) % 100)
        await opened.store.commit(adding(make_message(message, text, session_id=session, created_at=created)))
        here.append(message)
        model.texts[message] = text
    elif name == "rewrite" and here:
        await opened.store.commit(changed(make_message(here[0], text, session_id=session), 0))
        model.texts[here[0]] = text
    elif name == "remove" and shown:
        await opened.store.commit(Commit(session_id=session, at=NOW, changes=(RemoveMessage(shown[-1]),)))
        here.remove(shown[-1])
    elif name == "hide" and shown:
        first = shown[len(shown) // 2]
        await opened.store.commit(hiding(first, session))
        model.hidden[session].append(shown[len(shown) // 2 :])
    elif name == "show" and model.hidden[session]:
        await opened.store.commit(msgspec.structs.replace(SHOWING, session_id=session))
        model.hidden[session].pop()
    elif name == "delete":
        await opened.store.commit(removing(session))
        del model.sessions[session], model.hidden[session]
        model.removed += 1


def written(term: str, *, is_prefix: bool) -> str:
    """Returns a term as a phrase of a query."""
    return f'"{term}"' + ("*" if is_prefix else "")


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    history=st.lists(steps, min_size=3, max_size=25),
    queries=st.lists(
        st.tuples(st.lists(terms, min_size=1, max_size=2), st.lists(terms, max_size=1)), min_size=1, max_size=12
    ),
)
async def test_a_search_finds_what_a_look_at_every_text_finds(
    history: list[tuple[str, str, str]], queries: list[tuple[list[tuple[str, bool]], list[tuple[str, bool]]]]
) -> None:
    """It holds after texts were added, rewritten, hidden, restored and removed, and over restarts, in any script."""
    with tempfile.TemporaryDirectory() as folder:
        model, at = Model(), 0
        while at < len(history):
            async with opened_store(Path(folder)) as opened:
                for step in history[at:]:
                    at += 1
                    if step[0] == "restart":
                        break
                    await carry_out(opened, model, step)
                for wanted, without in queries:
                    query = " ".join(written(term, is_prefix=prefix) for term, prefix in wanted)
                    query += "".join(" -" + written(term, is_prefix=prefix) for term, prefix in without)
                    expected = model.found(wanted, without)
                    assert set(await ids(opened, query)) == expected
                    assert set(await ids(opened, query, order=SearchOrder.RANK)) == expected
            assert_sound(opened)


def assert_sound(opened: OpenedStore) -> None:
    """Fails unless the index has the rows that have an entry, and no other, and FTS5 finds nothing wrong in it."""
    with opened.database() as db:
        indexed = "SELECT rowid FROM search_index ORDER BY 1"
        if db.dialect.row_id == "rowid":  # SQLite
            db.run("INSERT INTO search_index (search_index) VALUES ('integrity-check')")
            db.run("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, search_index, instance)")
            indexed = "SELECT DISTINCT doc FROM temp.terms ORDER BY 1"
        assert db.rows(indexed) == db.rows("SELECT id FROM search_entries ORDER BY 1")


def test_the_version_of_words_names_the_unicode_data() -> None:
    """Another Python divides some texts otherwise; the index is then made anew."""
    assert unicodedata.unidata_version in words.VERSION


async def test_messages_are_stored_while_the_index_is_made_anew(tmp_path: Path) -> None:
    """In one transaction with a part of it, which gives entries ids, too."""

    def begin_anew(db: Database, _: object) -> None:
        db.run(db.dialect.words.clear)
        db.run("DELETE FROM search_entries")
        db.run("UPDATE search_state SET below = (SELECT max(id) + 1 FROM messages)")

    async with opened_store(tmp_path) as opened:
        store = opened.store
        await store.commit(creating())
        await store.commit(adding(make_message("msg_1", "one")))
        await store._writer.carry_out(Other(begin_anew))
        await asyncio.gather(
            store.commit(adding(make_message("msg_2", "two"))),
            store._writer.carry_out(Other(lambda db, _: renew_some(db))),
            store.commit(adding(make_message("msg_3", "three"))),
        )
    assert_sound(opened)
