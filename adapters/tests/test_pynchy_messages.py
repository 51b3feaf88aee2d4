"""Rows of pynchy as messages."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from turnwire_adapters.importers.problems import BadRow
from turnwire_adapters.importers.pynchy.file import Row
from turnwire_adapters.importers.pynchy.messages import (
    MAX_KEPT_CHARS,
    is_conversation,
    key_of,
    message_of,
    old_row,
    stable_id,
)
from turnwire_adapters.importers.pynchy.migration import Rules

AT = datetime(2026, 1, 1, tzinfo=UTC)
SESSION = {
    "session_id": "ses_1",
    "origin": {"system": "pynchy", "session_id": "chat@g.us"},
    "metadata_json": '{"pynchy":{}}',
}
RULES = Rules(bot_names=frozenset({"Pynchy"}))


def _row(by: Any, said: Any, *, type_: str = "user", metadata: Any = None, **other: Any) -> Row:
    values = {"id": "m1", "chat_jid": "chat@g.us", "sender": by, "sender_name": by, "content": said,
              "timestamp": "2026-01-01T00:00:00.000Z", "is_from_me": 0, **other}  # fmt: skip
    return Row(rowid=7, old=tuple(values.values()), message_type=type_, metadata=metadata)


@pytest.mark.parametrize(
    ("sender", "content", "type_", "part"),
    [
        ("491511@s.whatsapp.net", "✅ done", "user", {"type": "text", "text": "✅ done"}),
        ("491511@s.whatsapp.net", "", "user", {"type": "text", "text": ""}),
        (None, "who?", "user", {"type": "text", "text": "who?"}),
        ("bot", "Pynchy: hi", "assistant", {"type": "text", "text": "hi"}),
        ("host", "[host] note", "host", {"type": "text", "text": "note"}),
        ("command_output", "✅ Command output (exit 0):\n```\na\n```b\n```\n```", "tool_result",
         {"type": "tool_result", "call_id": "", "output": "a\n```b\n```", "is_error": False, "exit_code": 0}),
        ("command_output", "❌ Command output (exit 3):\n```\nno\n```", "tool_result",
         {"type": "tool_result", "call_id": "", "output": "no", "is_error": True, "exit_code": 3}),
        ("command_output", f"❌ Command output (exit {2**31}):\n```\nno\n```", "tool_result",
         {"type": "tool_result", "call_id": "", "output": "no", "is_error": True}),
        ("command_output", "❌ Command output:\n```\nno\n```", "tool_result",
         {"type": "tool_result", "call_id": "", "output": "no", "is_error": True}),
    ],
)  # fmt: skip
def test_a_row_is_a_message_of_its_type(sender: str | None, content: str, type_: str, part: object) -> None:
    """Without decoration, which it keeps beside the text."""
    row = _row(sender, content)
    message, dropped = message_of(row, RULES, SESSION, AT)
    assert (message["type"], message["parts"][0]["content"], dropped) == (type_, part, [])
    assert message.get("finish_reason") == ("stop" if type_ == "assistant" else None)
    assert is_conversation(message)
    assert (message.get("sender", ""), message.get("sender_name", "")) == (sender or "", sender or "")
    assert message["origin"] == {"system": "pynchy", "session_id": "chat@g.us", "message_id": "m1"}
    assert old_row(SESSION, message) == row.old


@pytest.mark.parametrize("kind", ["system", "thinking", "tool_use", "tool_result", "result_meta"])
def test_traces_and_notices_are_of_the_host(kind: str) -> None:
    """No model is ever sent them; they keep their text, JSON or not, and their kind."""
    row = _row(kind, '{"cut in the mid')
    message, _ = message_of(row, RULES, SESSION, AT)
    assert (message["type"], message["parts"][0]["content"]) == ("host", {"type": "text", "text": '{"cut in the mid'})
    assert json.loads(message["metadata_json"])["legacy_kind"] == kind
    assert not is_conversation(message)
    assert old_row(SESSION, message) == row.old


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("thinking", "assistant"),
        ("tool_use", "assistant"),
        ("tool_result", "tool_result"),
        ("result_meta", "assistant"),
    ],
)
@pytest.mark.parametrize("is_migrated", [False, True])
def test_reclassified_traces_are_reasoning_without_a_seal(kind: str, type_: str, is_migrated: bool) -> None:
    """They get their true type; no model is sent that either. A file that was migrated so says the same."""
    stored = {"type_": type_, "metadata": json.dumps({"legacy_kind": kind})} if is_migrated else {}
    rules = RULES if is_migrated else Rules(reclassify=True)
    row = _row(kind, "[]", **stored)
    message, _ = message_of(row, rules, SESSION, AT)
    assert (message["type"], message["parts"][0]["content"]) == (type_, {"type": "reasoning", "text": "[]"})
    assert "provider_state" not in message["parts"][0]
    assert not is_conversation(message)
    assert old_row(SESSION, message) == row.old


def test_reclassified_notices_are_system_messages() -> None:
    """Which are shown and sent."""
    message, _ = message_of(_row("system", "[system] compacted"), Rules(reclassify=True), SESSION, AT)
    assert (message["type"], message["parts"][0]["content"]) == ("system", {"type": "text", "text": "compacted"})
    assert is_conversation(message)


def test_the_type_of_another_program_stays() -> None:
    """With all of its metadata."""
    message, _ = message_of(_row("x", "hi", type_="system", metadata='{"theirs": 1}'), RULES, SESSION, AT)
    assert message["type"] == "system"
    assert json.loads(message["metadata_json"])["pynchy"]["metadata"] == '{"theirs": 1}'
    odd = json.dumps({"exit_code": "x" * 200, "legacy_kind": ["x"]})
    message, _ = message_of(_row("x", "hi", type_="system", metadata=odd), RULES, SESSION, AT)
    assert list(json.loads(message["metadata_json"])) == ["pynchy"]
    assert json.loads(message["metadata_json"])["pynchy"]["metadata"] == odd
    with pytest.raises(BadRow, match=r"messages\[m1\].message_type: is 'robot'"):
        message_of(_row("x", "hi", type_="robot", metadata="{}"), RULES, SESSION, AT)


@pytest.mark.parametrize("value", [None, b"\x00\xff", 7, 1.5, float("inf"), "", "half \udcff", "x" * 2_000])
@pytest.mark.parametrize("column", ["id", "sender", "sender_name", "content", "timestamp", "is_from_me"])
def test_every_value_of_sqlite_is_kept(column: str, value: Any) -> None:
    """Whatever the column, its type included; what is shown is valid text of a bounded length."""
    row = _row("host", "[host] x", **{column: value})
    message, dropped = message_of(row, RULES, SESSION, AT)
    assert dropped == []
    assert list(map(repr, old_row(SESSION, message))) == list(map(repr, row.old))
    json.dumps(message, ensure_ascii=False).encode()
    assert max(len(message.get("sender", "")), len(message.get("sender_name", ""))) <= 1024
    assert len(message["parts"]) == 1


def test_a_value_that_is_too_long_is_named() -> None:
    """It is not kept exactly."""
    _, dropped = message_of(_row("x", "hi", timestamp="9" * MAX_KEPT_CHARS), RULES, SESSION, AT)
    assert dropped == ["timestamp"]


def test_ids_follow_from_the_row() -> None:
    """The same each time; another one in another chat, and for each row without an id."""
    first, again = (message_of(_row("x", text), RULES, SESSION, AT)[0] for text in ("a", "b"))
    other = {**SESSION, "session_id": "ses_2"}
    elsewhere, _ = message_of(_row("x", "a"), RULES, other, AT)
    assert first["message_id"] == again["message_id"] != elsewhere["message_id"]
    nameless = [replace(_row("x", "a", id=None), rowid=number) for number in (1, 2)]
    assert len({message_of(row, RULES, SESSION, AT)[0]["message_id"] for row in nameless}) == 2
    assert stable_id("msg", "a").startswith("msg_")
    assert len(stable_id("msg", "a")) == len("msg_") + 32
    assert (key_of("a"), key_of(None), key_of(b"a")) == ("a", "null", '{"blob":"YQ=="}')
    assert len(key_of("x" * 2_000)) < 1024
