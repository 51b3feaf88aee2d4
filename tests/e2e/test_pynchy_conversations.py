"""The chats of a pynchy file as sessions, whatever is in the file."""

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opencode.message.message_pb2 import ExplainContextRequest
from tests.support.clients.conversation import messages_of
from tests.support.fakes.domain_values import NOW, creating, put
from tests.support.fakes.opened_store import opened_store
from tests.support.fakes.pynchy_file import (
    ADA,
    BOT_NAME,
    CLEARED_AT,
    FAMILY,
    NOWHERE,
    TERMINAL,
    WORK,
    make_old_file,
    many_rows,
    old_rows,
    read_as_before,
    write_as_before,
)
from tests.support.servers.running import connect, running_server
from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, ImportProblem, Record, SessionEnd
from turnwire.domain.conversation.messages import Message, MessageType, Text, ToolResult
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import StorageCorrupt
from turnwire.interop.pynchy.conversations import records
from turnwire.interop.pynchy.legacy_file import opened, private_copy
from turnwire.interop.pynchy.migration import Rules, migrate
from turnwire.interop.pynchy.old_values import old_row

RULES = Rules(bot_names=frozenset({BOT_NAME}))


def read(path: Path, rules: Rules = RULES) -> list[Record | ImportProblem]:
    """Returns the records of a file."""
    with private_copy(path) as db:
        return list(records(db, rules))


def by_chat(found: list[Record | ImportProblem]) -> dict[str, tuple[Session, list[ArchivedMessage]]]:
    """Returns each session with its messages, by the name of its chat; each ends as it should."""
    sessions: dict[str, tuple[Session, list[ArchivedMessage]]] = {}
    for record in found:
        match record:
            case ArchivedSession(session):
                assert session.origin is not None
                messages: list[ArchivedMessage] = []
                sessions[session.origin.session_id] = (session, messages)
            case ArchivedMessage():
                messages.append(record)
            case SessionEnd(count):
                assert count == len(messages)
    return sessions


def rows_of(found: list[Record | ImportProblem]) -> list[tuple[Any, ...]]:
    """Returns the old columns of the rows that the messages were made of."""
    return [old_row(session, record.message) for session, messages in by_chat(found).values() for record in messages]


def by_text(rows: list[tuple[Any, ...]]) -> list[str]:
    """Returns rows of any types in an order in which they compare."""
    return sorted(map(repr, rows))


def text(message: Message) -> str:
    """Returns the text of a message."""
    content = message.parts[0].content
    assert isinstance(content, Text | ToolResult)
    return content.text if isinstance(content, Text) else content.output


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with everything that can be in one."""
    return make_old_file(tmp_path / "messages.db")


def test_chats_become_sessions(path: Path) -> None:
    """With the chat's name, or its id where it has none; messages of a chat that is not there are in one of its own."""
    before, found = path.read_bytes(), by_chat(read(path))
    assert {jid: session.title for jid, (session, _) in found.items()} == {
        FAMILY: "Family", WORK: "Ada", TERMINAL: TERMINAL, NOWHERE: NOWHERE,
    }  # fmt: skip
    kept = {jid: json.loads(session.metadata_json)["pynchy"] for jid, (session, _) in found.items()}
    assert kept[FAMILY]["cleared_at"] == CLEARED_AT.isoformat()
    assert kept[NOWHERE] == {"chat": "missing"}
    assert sum(len(messages) for _, messages in found.values()) == len(old_rows()) == 404
    assert path.read_bytes() == before


@pytest.mark.parametrize("reclassify", [False, True])
def test_nothing_of_a_row_is_lost(path: Path, reclassify: bool) -> None:
    """All seven columns of each can be told from its message, with their types."""
    found = read(path, Rules(bot_names=RULES.bot_names, reclassify=reclassify))
    assert by_text(rows_of(found)) == by_text(read_as_before(path))
    assert not [record for record in found if isinstance(record, ImportProblem)]


def test_messages_have_the_types_of_the_rules(path: Path) -> None:
    """Notices and traces are of the host, and hidden."""
    messages = [record for _, chat in by_chat(read(path)).values() for record in chat]
    assert Counter(record.message.type.value for record in messages) == {
        "assistant": 96, "host": 103, "tool_result": 7, "user": 198,
    }  # fmt: skip
    kinds = [(json.loads(r.message.metadata_json).get("legacy_kind"), r) for r in messages]
    traces = [record for kind, record in kinds if kind is not None]
    assert len(traces) == 8
    assert all(record.hidden and record.message.type is MessageType.HOST for record in traces)
    assert {record.message.sender for record in traces} == {
        "system", "thinking", "tool_use", "tool_result", "result_meta",
    }  # fmt: skip


def test_messages_before_a_clear_are_hidden(path: Path) -> None:
    """Those of that chat alone, up to that moment; a message without a time is one of them."""
    found = by_chat(read(path))
    for jid, (_, messages) in found.items():
        for record in messages:
            trace = "legacy_kind" in json.loads(record.message.metadata_json)
            cleared = jid == FAMILY and record.message.created_at <= CLEARED_AT
            assert record.hidden == (trace or cleared), record
    _, family = found[FAMILY]
    assert [text(record.message) for record in family[:1]] == ["no time"]
    assert [text(record.message) for record in family[-1:]] == ["no name"]
    assert 10 < sum(record.hidden for record in family) < 100


def test_one_id_in_two_chats_is_two_messages(path: Path) -> None:
    """Each in its session, with an id of its own."""
    found = [record.message for _, chat in by_chat(read(path)).values() for record in chat]
    same = [message for message in found if message.origin and message.origin.message_id == "msg-1000"]
    assert {(text(message), message.type.value) for message in same} == {("one id", "user"), ("two chats", "assistant")}
    assert len({message.message_id for message in found}) == 404


def test_order_is_that_of_time_in_both_formats(tmp_path: Path) -> None:
    """Whatever the offset; equal times in the order of writing."""
    times = [
        ("e", "2026-01-01T10:00:00+00:00"), ("a", "2026-01-01T10:30:00+02:00"), ("c", "2026-01-01T09:59:59.500Z"),
        ("f", "2026-01-01T10:00:00.000Z"), ("b", "2026-01-01T09:59:59+00:00"), ("d", "2026-01-01T09:59:59.500Z"),
    ]  # fmt: skip
    rows = [(name, FAMILY, ADA, ADA, name, at, 0) for name, at in times]
    path = make_old_file(tmp_path / "messages.db", rows)
    _, messages = by_chat(read(path))[FAMILY]
    assert "".join(text(record.message) for record in messages) == "abcdef"
    assert str(messages[0].message.created_at) == "2026-01-01 08:30:00+00:00"


def test_equal_files_give_equal_records(path: Path, tmp_path: Path) -> None:
    """So a second import finds what the first has stored."""
    assert read(path) == read(make_old_file(tmp_path / "again.db"))


def _migrated(path: Path) -> None:
    with opened(path, writable=True) as db:
        migrate(db, RULES)


class _Stop(Exception):
    """Ends a migration."""


def _half(path: Path) -> None:
    def stop(_done: int, _all: int) -> None:
        raise _Stop

    with opened(path, writable=True) as db, pytest.raises(_Stop):
        migrate(db, RULES, stop, batch_rows=50)


def _with_a_log(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")


@pytest.mark.parametrize("change", [_migrated, _half, _with_a_log])
def test_a_migrated_file_gives_the_same(path: Path, change: Callable[[Path], None]) -> None:
    """Or one that is half migrated, or has a log."""
    before = read(path)
    change(path)
    assert read(path) == before


def test_a_file_without_messages_gives_its_chats(tmp_path: Path) -> None:
    """As empty sessions."""
    found = by_chat(read(make_old_file(tmp_path / "messages.db", [])))
    assert {jid: len(messages) for jid, (_, messages) in found.items()} == {FAMILY: 0, WORK: 0, TERMINAL: 0}


def test_values_of_all_types_are_kept(path: Path) -> None:
    """In every column, chats included: what SQLite takes, a file may have."""
    odd = "INSERT INTO messages SELECT v, v, v, v, v, v, v FROM (SELECT {} AS v)"
    values = ("NULL", "NULL", "x'ff00'", "CAST(x'ff41' AS TEXT)", "7", "1.5", "9e999", "''", "char(0)")
    with closing(sqlite3.connect(path)) as db:
        for value in values:
            db.execute(odd.format(value))
        db.execute("INSERT INTO chats VALUES (x'ff00', x'01', 5, 'yesterday')")
        db.commit()
        columns = "id, chat_jid, sender, sender_name, content, timestamp, is_from_me"
        db.text_factory = lambda stored: stored.decode(errors="surrogateescape")
        before = db.execute(f"SELECT {columns} FROM messages").fetchall()
    found = read(path)
    assert by_text(rows_of(found)) == by_text(before)
    [problem] = [record for record in found if isinstance(record, ImportProblem)]
    assert (problem.reason, problem.place) == ("TIME_UNKNOWN", "chats.cleared_at")


def test_a_program_that_writes_waits_for_the_copy_alone(tmp_path: Path) -> None:
    """While the messages are read, it writes; what is read is of one moment."""
    path = make_old_file(tmp_path / "messages.db", many_rows(3_000))
    with private_copy(path) as db:
        found: Iterator[Record | ImportProblem] = records(db, RULES)
        first = next(found)
        writer = threading.Thread(target=write_as_before, args=(path, ("new", FAMILY, ADA, ADA, "hi", "2026", 0)))
        writer.start()
        writer.join()
        assert any(row[0] == "new" for row in read_as_before(path))
        rows = rows_of([first, *found])
    assert len(rows) == 3_000
    assert "new" not in {row[0] for row in rows}


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """Before anything is given."""
    path = make_old_file(tmp_path / "messages.db", many_rows(2_000))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 // 4096 * 4096)
    with pytest.raises(StorageCorrupt, match="damaged"), private_copy(path) as db:
        next(iter(records(db, RULES)))


@pytest.mark.parametrize("reclassify", [False, True])
async def test_no_model_is_sent_what_is_no_conversation(path: Path, tmp_path: Path, reclassify: bool) -> None:
    """Traces, messages of the host, and notices that are not reclassified: not even where all of them are shown."""
    found = by_chat(read(path, Rules(bot_names=RULES.bot_names, reclassify=reclassify)))
    async with opened_store(tmp_path) as opened:
        for session, messages in found.values():
            shown = [put(record.message) for record in messages]
            await opened.store.commit(creating(session.session_id, NOW, *shown))
    sent, listed = "", 0
    async with running_server(tmp_path) as server, connect(server.address) as client:
        for session, _ in found.values():
            request = ExplainContextRequest(session_id=session.session_id)
            sent += (await client.messages.ExplainContext(request)).request_json
            listed += len(await messages_of(client, session.session_id))
    assert listed == 404
    assert ("Context was compacted" in sent) == reclassify
    for trace in ("What does she want?", "cut in the mid", "tool_name", "not JSON at all", "tool_use_id", "num_turns"):
        assert trace not in sent
    assert "as old rows start" in sent  # of the assistant
    for words in ("note 3", "⚠️", "the last one"):
        assert words not in sent
    assert "And number 0?" in sent
    assert "not found" in sent  # the output of a command
