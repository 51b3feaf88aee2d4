"""A row as a message of Turnwire: its type and text, and beside them what the row has besides.

What a message does not tell of its row stays in its metadata under `pynchy`, so that all seven old columns can be told
from an archive again, whatever values SQLite had in them.
"""

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from turnwire_adapters.importers import archive
from turnwire_adapters.importers.archive import MAX_NAME_CHARS, MAX_TEXT_BYTES, is_valid, json_text, valid_text
from turnwire_adapters.importers.problems import BadRow
from turnwire_adapters.importers.pynchy.file import OLD_COLUMNS, Row
from turnwire_adapters.importers.pynchy.migration import Rules
from turnwire_adapters.importers.pynchy.rows import TRACES, TYPES, plain_text

SYSTEM = "pynchy"
"""The origin of what comes from such a file, and the key of what metadata keeps."""

MAX_KEPT_CHARS = 48 * 1024
"""JSON that a message or a session keeps beside its text."""

_FENCES = ("", "\n```", "```")
"""Endings that a row may have after its text."""

_FACTS = {"exit_code": int, "failed": bool, "legacy_kind": str}
"""Keys that are kept of the metadata of a row, with their types."""

_MAX_FACT_CHARS = 100

_AUDIT = "security_audit"
"""A type that pynchy gives to the decisions of its policy, which are no conversation."""


@dataclass(frozen=True)
class _Around:
    """Surroundings of a text in its row: the parts before and after it."""

    before: str
    after: str


def message_of(row: Row, rules: Rules, session: Mapping[str, Any], at: datetime) -> tuple[archive.Json, list[str]]:
    """Returns the message of a row, and the names of the columns that are too long to be kept exactly.

    Args:
        row: The row.
        rules: How it is classified when it has no type yet. One that has a type keeps it.
        session: The session that is made of its chat.
        at: When it was sent.

    Raises:
        BadRow: the row has a type that there is not, or its text is too long for any server.
    """
    type_, facts = _kind(row, rules)
    content = valid_text(row.content)
    if len(content) * 4 > MAX_TEXT_BYTES and len(content.encode()) > MAX_TEXT_BYTES:
        raise BadRow(f"messages[{key_of(row.old[0])}].content", f"is longer than {MAX_TEXT_BYTES} bytes")
    sender, name = (valid_text(value)[:MAX_NAME_CHARS] if isinstance(value, str) else "" for value in row.old[2:4])
    text = plain_text(row.sender, content, rules.bot_names, sender_name=name)
    old_id, key = row.old[0], session["origin"]["session_id"]
    # rows without an id may be many in a chat
    message_id = stable_id("msg", session["session_id"], as_json(old_id), row.rowid if old_id is None else 0)
    derived = {"id": key_of(old_id), "chat_jid": key, "sender": sender, "sender_name": name, "content": text}
    kept, dropped = within_bound(_kept(row, facts, derived, content))
    further, lost = within_bound(row.further, MAX_KEPT_CHARS - len(json_text(kept)))
    if further:
        kept["columns"] = further
    made = archive.message(
        message_id,
        session["session_id"],
        type_,
        at,
        [_content(type_, facts, text)],
        finish_reason="stop" if type_ == "assistant" else None,
        sender=sender,
        sender_name=name,
        metadata_json=json_text({**_known(facts), SYSTEM: kept}),
        origin={"system": SYSTEM, "session_id": key, "message_id": key_of(old_id)},
    )
    return made, [*dropped, *lost]


def is_conversation(message: Mapping[str, Any]) -> bool:
    """Returns whether a message was made of a row that people see, and not of a notice or a trace."""
    return "legacy_kind" not in json.loads(message["metadata_json"])


def old_row(session: Mapping[str, Any], message: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns the old columns of the row that a message of an archive was made of."""
    kept = json.loads(message["metadata_json"])[SYSTEM]
    text = _text_of(message)
    derived = {
        "id": message["origin"].get("message_id", ""),
        "sender": message.get("sender", ""),
        "sender_name": message.get("sender_name", ""),
        "content": text,
        "timestamp": None,
        "is_from_me": None,
    }
    chat = json.loads(session["metadata_json"])[SYSTEM].get("jid", session["origin"]["session_id"])
    named = {**derived, "chat_jid": from_json(chat)}
    return tuple(from_json(kept[name], text) if name in kept else named[name] for name in OLD_COLUMNS)


def key_of(value: Any) -> str:
    """Returns an id of the file as text: text that is valid as it is, others as JSON, and a digest of a long one."""
    key = value if isinstance(value, str) and is_valid(value) else json_text(as_json(value))
    return key if len(key) <= MAX_NAME_CHARS else stable_id("row", key)


def stable_id(prefix: str, *parts: Any) -> str:
    """Returns the id of what is said by some JSON values of a file of pynchy, the same each time."""
    return archive.stable_id(SYSTEM, prefix, *parts)


def as_json(value: Any) -> Any:
    """Returns a value of SQLite as JSON that `from_json` reads back: null, a number, text, or an object for others."""
    match value:
        case bytes():
            return {"blob": base64.b64encode(value).decode()}
        case str() if not is_valid(value):
            return {"text": base64.b64encode(value.encode(errors="surrogateescape")).decode()}
        case float() if not math.isfinite(value):
            return {"real": str(value)}
        case _Around(before, after):
            return {"around": [before, after]}
        case _:
            return value


def from_json(kept: Any, text: str = "") -> Any:
    """Returns the value of SQLite that `as_json` was given; `text` is what stands inside of what was around it."""
    match kept:
        case {"blob": str(encoded)}:
            return base64.b64decode(encoded)
        case {"text": str(encoded)}:
            return base64.b64decode(encoded).decode(errors="surrogateescape")
        case {"real": str(number)}:
            return float(number)
        case {"around": [str(before), str(after)]}:
            return f"{before}{text}{after}"
        case _:
            return kept


def within_bound(values: Mapping[str, Any], most: int = MAX_KEPT_CHARS) -> tuple[dict[str, Any], list[str]]:
    """Returns the JSON of values by name, and the names of those that would be too long together."""
    kept, dropped, left = dict[str, Any](), list[str](), most
    for name, value in values.items():
        found = as_json(value)
        chars = len(json.dumps(found))
        if chars > left:
            dropped.append(name)
        else:
            kept[name], left = found, left - chars
    return kept, dropped


def _kind(row: Row, rules: Rules) -> tuple[str, Mapping[str, Any]]:
    """Returns the type of a row and its facts: as a program has stored them, else by the rules."""
    change = rules.change(row)
    if change is not None:
        return _shown_as(change.type, change.facts)
    type_, facts = "user" if row.message_type in (None, "") else row.message_type, _known(row.facts)
    if type_ == _AUDIT:
        return "host", {**facts, "legacy_kind": _AUDIT}
    if type_ not in TYPES:
        raise BadRow(f"messages[{key_of(row.old[0])}].message_type", f"is {type_!r}, which is no type of a message")
    if "legacy_kind" not in facts and _is_trace(row, type_):
        facts["legacy_kind"] = row.sender
    return _shown_as(type_, facts)


def _is_trace(row: Row, type_: str) -> bool:
    """Returns whether a row that its program has typed is a trace all the same.

    The program types traces as messages of the assistant, and notices as those of the system, which are JSON; texts of
    the system that are none are said to the model.
    """
    if row.sender == "system":
        return type_ == "system" and row.content.startswith("{")
    return row.sender in TRACES and type_ != "user"


def _shown_as(type_: str, facts: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Returns the type of a message: a hidden text is of the host, which no model is sent even once it is shown."""
    is_hidden_text = "legacy_kind" in facts and type_ in ("user", "system")
    return "host" if is_hidden_text else type_, facts


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts that are of the known types and short, as those of the rules are."""
    return {
        name: facts[name]
        for name, type_ in _FACTS.items()
        if isinstance(facts.get(name), type_) and len(str(facts[name])) <= _MAX_FACT_CHARS
    }


def _content(type_: str, facts: Mapping[str, Any], text: str) -> archive.Json:
    if "legacy_kind" in facts:
        return {"type": "text" if type_ == "host" else "reasoning", "text": text}
    if type_ != "tool_result":
        return {"type": "text", "text": text}
    code = facts.get("exit_code")
    result = {"type": "tool_result", "call_id": "", "output": text, "is_error": bool(code or facts.get("failed"))}
    # metadata keeps a number that no command can have given: a code has 32 bits
    return {**result, "exit_code": code} if code is not None and abs(code) < 2**31 else result


def _text_of(message: Mapping[str, Any]) -> str:
    content = message["parts"][0]["content"]
    text: str = content.get("output", "") if content["type"] == "tool_result" else content.get("text", "")
    return text


def _kept(row: Row, facts: Mapping[str, Any], derived: Mapping[str, str], content: str) -> dict[str, Any]:
    """Returns what a message does not tell of its row."""
    values = dict(zip(OLD_COLUMNS, row.old, strict=True))
    del values["chat_jid"]  # the session tells it
    if values["content"] == content != derived["content"]:
        values["content"] = _around(content, derived["content"])
    kept = {name: value for name, value in values.items() if name not in derived or derived[name] != value}
    if row.metadata is not None and row.facts != facts:
        kept["metadata"] = row.metadata
    return kept


def _around(content: str, text: str) -> _Around | str:
    for after in _FENCES:
        if content.endswith(text + after):
            return _Around(content[: len(content) - len(text) - len(after)], after)
    return content
