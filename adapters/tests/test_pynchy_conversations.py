"""The chats of a pynchy file as sessions, whatever is in the file."""

import json
import math
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.tests.pynchy_file import (
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
from turnwire_adapters.importers.archive import MessageRecord, Record, SessionRecord
from turnwire_adapters.importers.problems import FileError, Problem
from turnwire_adapters.importers.pynchy.conversations import instant, records
from turnwire_adapters.importers.pynchy.file import Row
from turnwire_adapters.importers.pynchy.messages import as_json, from_json, old_row
from turnwire_adapters.importers.pynchy.migration import Rules, migrate
from turnwire_adapters.importers.pynchy.rows import Classification
from turnwire_adapters.importers.sqlite_file import opened, private_copy

Json = dict[str, Any]
COLUMNS = "id, chat_jid, sender, sender_name, content, timestamp, is_from_me"
RULES = Rules(bot_names=frozenset({BOT_NAME}))


def read(path: Path, rules: Rules = RULES) -> list[Record]:
    """Returns the records of a file."""
    with private_copy(path) as db:
        return list(records(db, rules))


def by_chat(found: list[Record]) -> dict[str, tuple[Json, list[MessageRecord]]]:
    """Returns each session with its messages, by the name of its chat."""
    sessions: dict[str, tuple[Json, list[MessageRecord]]] = {}
    for record in found:
        match record:
            case SessionRecord(session):
                messages: list[MessageRecord] = []
                sessions[session["origin"]["session_id"]] = (session, messages)
            case MessageRecord():
                messages.append(record)
    return sessions


def rows_of(found: list[Record]) -> list[tuple[Any, ...]]:
    """Returns the old columns of the rows that the messages were made of."""
    return [old_row(session, record.message) for session, messages in by_chat(found).values() for record in messages]


def by_text(rows: list[tuple[Any, ...]]) -> list[str]:
    """Returns rows of any types in an order in which they compare."""
    return sorted(map(repr, rows))


def text(message: Json) -> str:
    """Returns the text of a message."""
    content = message["parts"][0]["content"]
    found: str = content["output"] if content["type"] == "tool_result" else content["text"]
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with everything that can be in one."""
    return make_old_file(tmp_path / "messages.db")


def test_chats_become_sessions(path: Path) -> None:
    """With the chat's name, or its id where it has none; messages of a chat that is not there are in one of its own."""
    before, found = path.read_bytes(), by_chat(read(path))
    assert {jid: session["title"] for jid, (session, _) in found.items()} == {
        FAMILY: "Family", WORK: "Ada", TERMINAL: TERMINAL, NOWHERE: NOWHERE,
    }  # fmt: skip
    kept = {jid: json.loads(session["metadata_json"])["pynchy"] for jid, (session, _) in found.items()}
    assert kept[FAMILY]["cleared_at"] == CLEARED_AT.isoformat()
    assert kept[NOWHERE] == {"chat": "missing"}
    assert sum(len(messages) for _, messages in found.values()) == len(old_rows()) == 404
    assert path.read_bytes() == before


@pytest.mark.parametrize("reclassify", [False, True])
def test_nothing_of_a_row_is_lost(path: Path, reclassify: bool) -> None:
    """All seven columns of each can be told from its message, with their types."""
    found = read(path, Rules(bot_names=RULES.bot_names, reclassify=reclassify))
    assert by_text(rows_of(found)) == by_text(read_as_before(path))
    assert not [record for record in found if isinstance(record, Problem)]


def test_messages_have_the_types_of_the_rules(path: Path) -> None:
    """Notices and traces are of the host, and hidden."""
    messages = [record for _, chat in by_chat(read(path)).values() for record in chat]
    assert Counter(record.message["type"] for record in messages) == {
        "assistant": 96, "host": 103, "tool_result": 7, "user": 198,
    }  # fmt: skip
    kinds = [(json.loads(r.message["metadata_json"]).get("legacy_kind"), r) for r in messages]
    traces = [record for kind, record in kinds if kind is not None]
    assert len(traces) == 8
    assert all(record.hidden and record.message["type"] == "host" for record in traces)
    assert {record.message["sender"] for record in traces} == {
        "system", "thinking", "tool_use", "tool_result", "result_meta",
    }  # fmt: skip


def test_messages_before_a_clear_are_hidden(path: Path) -> None:
    """Those of that chat alone, up to that moment; a message without a time is one of them."""
    found = by_chat(read(path))
    for jid, (_, messages) in found.items():
        for record in messages:
            trace = "legacy_kind" in json.loads(record.message["metadata_json"])
            cleared = jid == FAMILY and datetime.fromisoformat(record.message["created_at"]) <= CLEARED_AT
            assert record.hidden == (trace or cleared), record
    _, family = found[FAMILY]
    assert [text(record.message) for record in family[:1]] == ["no time"]
    assert [text(record.message) for record in family[-1:]] == ["no name"]
    assert 10 < sum(record.hidden for record in family) < 100


def test_one_id_in_two_chats_is_two_messages(path: Path) -> None:
    """Each in its session, with an id of its own."""
    found = [record.message for _, chat in by_chat(read(path)).values() for record in chat]
    same = [message for message in found if message["origin"]["message_id"] == "msg-1000"]
    assert {(text(message), message["type"]) for message in same} == {("one id", "user"), ("two chats", "assistant")}
    assert len({message["message_id"] for message in found}) == 404


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
    assert messages[0].message["created_at"] == "2026-01-01T08:30:00+00:00"


def test_equal_files_give_equal_records(path: Path, tmp_path: Path) -> None:
    """A second import finds what the first has stored."""
    assert read(path) == read(make_old_file(tmp_path / "again.db"))


def _migrated(path: Path) -> None:
    with opened(path, writable=True) as db:
        migrate(db, RULES)


class _Stop(Exception):
    """Ends a migration."""


def _half(path: Path) -> None:
    class Stopping(Rules):
        def change(self, row: Row) -> Classification | None:
            if row.rowid == 130:
                raise _Stop
            return super().change(row)

    with opened(path, writable=True) as db, pytest.raises(_Stop):
        migrate(db, Stopping(bot_names=RULES.bot_names), batch_rows=50)


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
    [problem] = [record for record in found if isinstance(record, Problem)]
    assert (problem.reason, problem.place) == ("TIME_UNKNOWN", "chats.cleared_at")


def test_a_program_that_writes_waits_for_the_copy_alone(tmp_path: Path) -> None:
    """While the messages are read, it writes; what is read is of one moment."""
    path = make_old_file(tmp_path / "messages.db", many_rows(3_000))
    with private_copy(path) as db:
        found: Iterator[Record] = records(db, RULES)
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
    with pytest.raises(FileError, match="damaged"), private_copy(path) as db:
        next(iter(records(db, RULES)))


TODAY = """
CREATE TABLE chats (jid TEXT PRIMARY KEY, name TEXT, last_message_time TEXT, cleared_at TEXT, pinned INTEGER);
CREATE TABLE messages (id TEXT, chat_jid TEXT, sender TEXT, sender_name TEXT, content TEXT, timestamp TEXT,
    is_from_me INTEGER, message_type TEXT DEFAULT 'user', metadata TEXT, thread TEXT, PRIMARY KEY (id, chat_jid));
INSERT INTO chats VALUES ('c', 'Talk', NULL, NULL, 1);
INSERT INTO messages VALUES
    ('1', 'c', 'ada', 'Ada', 'hello', '2026-01-01T00:00:01', 0, 'user', NULL, 't1'),
    ('2', 'c', 'bot', 'bot', 'Hi.', '2026-01-01T00:00:02', 1, 'assistant', NULL, NULL),
    ('3', 'c', 'thinking', 'thinking', '{"thinking":"hm"}', '2026-01-01T00:00:03', 1, 'assistant', NULL, NULL),
    ('4', 'c', 'system', 'system', '{"subtype":"init"}', '2026-01-01T00:00:04', 1, 'system', NULL, NULL),
    ('5', 'c', 'system', 'System', 'Take the second.', '2026-01-01T00:00:05', 0, 'system', NULL, NULL),
    ('6', 'c', 'security', 'security', '{}', '2026-01-01T00:00:06', 1, 'security_audit', '{"decision":"deny"}', NULL),
    ('7', 'c', 'command_output', 'command', '❌ Command output (exit 3):
```
no
```', '2026-01-01T00:00:07', 1, 'tool_result', '{"exit_code":3}', NULL),
    ('8', 'c', 'ada', 'Ada', 'untyped', '2026-01-01T00:00:08', 0, NULL, NULL, NULL),
    ('9', 'c', 'host', 'host', 'note', '2026-01-01T00:00:09', 1, 'host', '{"severity":"error"}', NULL);
"""


def test_todays_files_are_read(tmp_path: Path) -> None:
    """Stored types win; traces and decisions of the policy are hidden; unknown columns are kept."""
    path = tmp_path / "messages.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(TODAY)
        before = db.execute(f"SELECT {COLUMNS} FROM messages").fetchall()
    found = read(path)
    session, messages = by_chat(found)["c"]
    assert [(r.message["type"], r.hidden, text(r.message)) for r in messages] == [
        ("user", False, "hello"),
        ("assistant", False, "Hi."),
        ("assistant", True, '{"thinking":"hm"}'),
        ("host", True, '{"subtype":"init"}'),
        ("system", False, "Take the second."),
        ("host", True, "{}"),
        ("tool_result", False, "no"),
        ("user", False, "untyped"),
        ("host", False, "note"),
    ]
    assert messages[6].message["parts"][0]["content"]["exit_code"] == 3
    kept = [json.loads(r.message["metadata_json"])["pynchy"] for r in messages]
    assert kept[0]["columns"] == {"thread": "t1"}
    assert (kept[5]["metadata"], kept[8]["metadata"]) == ('{"decision":"deny"}', '{"severity":"error"}')
    assert json.loads(session["metadata_json"])["pynchy"]["pinned"] == 1
    assert by_text(rows_of(found)) == by_text(before)


def test_files_of_the_planned_schema_are_read(tmp_path: Path) -> None:
    """Content is JSON there, a text or blocks, and nothing says who wrote."""
    path = tmp_path / "messages.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "CREATE TABLE messages (id TEXT, chat_jid TEXT, message_type TEXT NOT NULL, sender TEXT, sender_name TEXT,"
            " content JSON, metadata JSON, timestamp TEXT, PRIMARY KEY (id, chat_jid));"
        )
        contents = (
            '"as JSON"',
            '[{"type":"text","text":"two "},{"type":"text","text":"blocks"}]',
            "not JSON",
            '{"a":1}',
        )
        for number, content in enumerate((*contents, "007")):
            values = (f"{number}", "c", "user", "ada", None, content, None, f"2026-01-01T00:00:0{number}")
            db.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        db.commit()
    _, messages = by_chat(read(path))["c"]
    assert [text(record.message) for record in messages] == ["as JSON", "two blocks", "not JSON", '{"a":1}', "7"]


@pytest.mark.parametrize(
    ("stored", "microseconds"),
    [
        (b"1970-01-01T00:00:01.000Z", 1_000_000),
        (b"1970-01-01T00:00:01+00:00", 1_000_000),
        (b"1970-01-01T02:00:01.5+02:00", 1_500_000),
        (b"1970-01-01 00:00:01", 1_000_000),
        (b"not a time", math.inf),
        (b"", math.inf),
        (b"\xff", math.inf),
        (b"0001-01-01T00:00:00+14:00", -62135647200 * 1_000_000),
        (None, None),
    ],
)
def test_both_formats_name_one_moment(stored: bytes | None, microseconds: float | None) -> None:
    """An offset counts, none is UTC; what is no time sorts last."""
    assert instant(stored) == microseconds


@pytest.mark.parametrize("value", [None, 0, -(2**63), 1.0, float("-inf"), "", "日本", "\udc80", b"", b"\xff"])
def test_values_come_back(value: Any) -> None:
    """With their types, by way of JSON text."""
    found = from_json(json.loads(json.dumps(as_json(value), allow_nan=False)))
    assert (found, type(found)) == (value, type(value))
