"""Each odd row that a file of pynchy can have, by name; and messages of its five types on a real server."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from adapters.tests.commands import report
from adapters.tests.pynchy_file import (
    CLEARED_AT,
    FAMILY,
    NOWHERE,
    WORK,
    make_old_file,
    old_rows,
    read_as_before,
    typed_rows,
)
from turnwire_adapters.importers.pynchy.rows import plain_text

FENCED = "✅ Command output (exit 0):\n```\na\n```py\nb\n```\nc\n```"

EDGES: dict[str, tuple[str | None, str, str, Any, str]] = {
    "phone number": ("49151@s.whatsapp.net", "hi", "user", None, "hi"),
    "terminal": ("tui-user", "hi", "user", None, "hi"),
    "deploy": ("deploy", "hi", "user", None, "hi"),
    "empty text": ("tui-user", "", "user", None, ""),
    "unknown sender": ("someone-new", "hi", "user", None, "hi"),
    "NULL sender": (None, "hi", "user", None, "hi"),
    "bot": ("bot", "hi", "assistant", None, "hi"),
    "bot of an old row": ("bot", "Pynchy: hi", "assistant", None, "hi"),
    "name of the bot": ("Pynchy", "hi", "assistant", None, "hi"),
    "host": ("host", "hi", "host", None, "hi"),
    "host of an old row": ("host", "[host] hi", "host", None, "hi"),
    "output": (
        "command_output",
        "✅ Command output (exit 0):\n```\na\n```",
        "tool_result",
        {"exit_code": 0},
        "a",
    ),
    "output that failed": (
        "command_output",
        "❌ Command output (exit 2):\n```\na\n```",
        "tool_result",
        {"exit_code": 2},
        "a",
    ),
    "output without exit code": (
        "command_output",
        "❌ Command output:\n```\na\n```",
        "tool_result",
        {"failed": True},
        "a",
    ),
    "fences inside output": (
        "command_output",
        FENCED,
        "tool_result",
        {"exit_code": 0},
        "a\n```py\nb\n```\nc",
    ),
    "human whose text starts with a tick": ("49151@s.whatsapp.net", FENCED, "user", None, FENCED),
    "human who writes like the host": ("49151@s.whatsapp.net", "[host] hi", "user", None, "[host] hi"),
    "old notice": ("system", "[system] hi", "user", {"legacy_kind": "system"}, "hi"),
    "newer notice": (
        "system",
        '{"subtype":"init","data":{}}',
        "user",
        {"legacy_kind": "system"},
        '{"subtype":"init","data":{}}',
    ),
    "thinking": ("thinking", '{"thinking":"hm"}', "user", {"legacy_kind": "thinking"}, '{"thinking":"hm"}'),
    "invalid JSON in a trace": ("tool_use", '{"tool_name": ', "user", {"legacy_kind": "tool_use"}, '{"tool_name": '),
    "tool result of a trace": (
        "tool_result",
        '{"content":"✅"}',
        "user",
        {"legacy_kind": "tool_result"},
        '{"content":"✅"}',
    ),
    "result meta": ("result_meta", "{}", "user", {"legacy_kind": "result_meta"}, "{}"),
}
"""By what they are: sender, stored text, type and metadata, and the text without decoration."""


def migrate(path: Path, *options: str) -> Any:
    """Runs the command, which has to succeed and to verify, and returns what it says."""
    return report("migrate", "pynchy", "--bot-name", "Pynchy", "--verify", *options, path)


@pytest.mark.parametrize("edge", EDGES)
def test_each_kind_of_row_is_what_it_is(tmp_path: Path, edge: str) -> None:
    """Its type and metadata are stored, its text is as it was, and an import takes off its decoration."""
    sender, content, type_, facts, plain = EDGES[edge]
    row = ("m1", FAMILY, sender, sender, content, "2026-02-02T00:00:00.000Z", 0)
    path = make_old_file(tmp_path / "messages.db", [row])
    migrate(path)
    assert typed_rows(path) == {(FAMILY, "m1"): (type_, facts)}
    assert read_as_before(path) == [row]
    assert plain_text(sender, content, frozenset({"Pynchy"})) == plain


def test_one_id_in_two_chats_is_two_messages(tmp_path: Path) -> None:
    """Each with its own type."""
    rows = [
        ("m1", chat, who, who, "hi", "2026-02-02T00:00:00.000Z", 0) for chat, who in ((FAMILY, "host"), (WORK, "bot"))
    ]
    path = make_old_file(tmp_path / "messages.db", rows)
    migrate(path)
    assert typed_rows(path) == {(FAMILY, "m1"): ("host", None), (WORK, "m1"): ("assistant", None)}


def test_both_formats_of_time_are_kept(tmp_path: Path) -> None:
    """Letter by letter, and so is a row without a time."""
    times = ["2026-02-02T00:00:00.000Z", "2026-02-02T00:00:00+00:00", None, "not a time"]
    rows = [(f"m{n}", FAMILY, "host", "host", "hi", time, 0) for n, time in enumerate(times)]
    path = make_old_file(tmp_path / "messages.db", rows)
    migrate(path)
    assert [row[5] for row in read_as_before(path)] == times


def test_messages_whose_chat_is_missing_are_kept(tmp_path: Path) -> None:
    """And typed; no chat is made for them."""
    path = make_old_file(tmp_path / "messages.db", [("m1", NOWHERE, "bot", None, "hi", None, 1)])
    migrate(path)
    assert typed_rows(path) == {(NOWHERE, "m1"): ("assistant", None)}
    with closing(sqlite3.connect(path)) as db:
        assert NOWHERE not in {jid for (jid,) in db.execute("SELECT jid FROM chats")}


def test_a_chat_that_was_cleared_in_the_middle_stays_so(tmp_path: Path) -> None:
    """Rows before and after are typed alike; the time of the clearing and the other tables do not change."""
    path = make_old_file(tmp_path / "messages.db")
    query = "SELECT jid, name, last_message_time, cleared_at FROM chats ORDER BY jid"
    with closing(sqlite3.connect(path)) as db:
        before = db.execute(query).fetchall()
    migrate(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute(query).fetchall() == before
    assert CLEARED_AT.isoformat() in {row[3] for row in before}
    typed = {message for (chat, message), (type_, _) in typed_rows(path).items() if chat == FAMILY and type_ == "host"}
    times = {row[5] < CLEARED_AT.isoformat() for row in old_rows() if row[1] == FAMILY and row[0] in typed and row[5]}
    assert times == {True, False}


def test_a_migrated_file_is_left_alone(tmp_path: Path) -> None:
    """Byte by byte."""
    path = make_old_file(tmp_path / "messages.db")
    migrate(path)
    before = path.read_bytes()
    assert migrate(path)["changed"] == 0
    assert path.read_bytes() == before
