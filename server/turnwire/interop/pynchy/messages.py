"""A row as a message of Turnwire: its type and text, and beside them what the row has besides."""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from turnwire.domain.conversation.messages import (
    Content,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    Origin,
    Part,
    Reasoning,
    Text,
    ToolResult,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import StorageCorrupt
from turnwire.interop.pynchy.decoration import plain_text
from turnwire.interop.pynchy.legacy_file import OLD_COLUMNS, Row
from turnwire.interop.pynchy.migration import Rules
from turnwire.interop.pynchy.old_values import SYSTEM, Around, as_json, derived_columns, valid_text, within_bound

MAX_NAME_CHARS = 1024
"""Of a title and of a sender, as everywhere; the rest is kept beside it."""

_FENCES = ("", "\n```", "```")
"""What may stand behind a text in its row."""


def message_of(row: Row, rules: Rules, session: Session, at: datetime) -> tuple[Message, list[str]]:
    """Returns the message of a row, and the names of the columns that are too long to be kept exactly.

    Args:
        row: The row.
        rules: How it is classified when it has no type yet. One that has a type keeps it.
        session: The session that is made of its chat.
        at: When it was sent.

    Raises:
        StorageCorrupt: the row has a type that there is not.
    """
    type_, facts = _kind(row, rules)
    content = valid_text(row.content)
    sender, name = (valid_text(value)[:MAX_NAME_CHARS] if isinstance(value, str) else "" for value in row.old[2:4])
    text = plain_text(row.sender, content, rules.bot_names, sender_name=name)
    old_id = row.old[0]
    # rows without an id may be many in a chat
    message_id = stable_id("msg", session.session_id, as_json(old_id), row.rowid if old_id is None else 0)
    if "legacy_kind" in facts and type_ is MessageType.USER:
        type_ = MessageType.HOST
    message = Message(
        message_id=message_id,
        session_id=session.session_id,
        type=type_,
        status=MessageStatus.COMPLETE,
        created_at=at,
        updated_at=at,
        parts=(Part(part_id=stable_id("prt", message_id), index=0, content=_content(type_, facts, text)),),
        finish_reason=FinishReason.STOP if type_ is MessageType.ASSISTANT else None,
        sender=sender,
        sender_name=name,
        origin=Origin(
            system=SYSTEM, session_id=session.origin.session_id if session.origin else "", message_id=key_of(old_id)
        ),
    )
    kept, dropped = within_bound(_kept(row, facts, derived_columns(session, message), content))
    return msgspec.structs.replace(message, metadata_json=json_text({**_known(facts), SYSTEM: kept})), dropped


def is_conversation(message: Message) -> bool:
    """Returns whether a message was made of a row that people see, and not of a notice or a trace."""
    return "legacy_kind" not in json.loads(message.metadata_json)


def key_of(value: Any) -> str:
    """Returns an id of the file as text: text that is valid as it is, others as JSON, and a digest of a long one."""
    key = value if isinstance(value, str) and valid_text(value) == value else json_text(as_json(value))
    return key if len(key) <= MAX_NAME_CHARS else stable_id("row", key)


def stable_id(prefix: str, *parts: Any) -> str:
    """Returns the id of what is said by some JSON values, the same each time."""
    digest = hashlib.blake2b(json_text([SYSTEM, prefix, *parts]).encode(), digest_size=16)
    return f"{prefix}_{digest.hexdigest()}"


def json_text(value: Any) -> str:
    """Returns JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_FACTS = {"exit_code": int, "failed": bool, "legacy_kind": str}
"""What metadata of a row may say, and of which type it is."""

_MAX_FACT_CHARS = 100
_MAX_EXIT_CODE = 2**31 - 1
"""The contract's field has 32 bits."""


def _kind(row: Row, rules: Rules) -> tuple[MessageType, Mapping[str, Any]]:
    """Returns the type of a row and its facts, by the rules or as the program has stored them that typed it."""
    change = rules.change(row)
    if change is not None:
        return change.type, change.metadata
    try:
        return MessageType(row.message_type), _known(_facts(row.metadata))
    except ValueError:
        raise StorageCorrupt(
            f"message {key_of(row.old[0])!r} has the type {row.message_type!r}, which there is not"
        ) from None


def _facts(stored: Any) -> Mapping[str, Any]:
    try:
        facts = json.loads(stored) if isinstance(stored, str) else None
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts that are of the known types and short, as those of the rules are."""
    return {
        name: facts[name]
        for name, type_ in _FACTS.items()
        if isinstance(facts.get(name), type_) and len(str(facts[name])) <= _MAX_FACT_CHARS
    }


def _content(type_: MessageType, facts: Mapping[str, Any], text: str) -> Content:
    if "legacy_kind" in facts:
        return Text(text) if type_ is MessageType.HOST else Reasoning(text)
    if type_ is MessageType.TOOL_RESULT:
        code = facts.get("exit_code")
        return ToolResult(
            call_id="",
            output=text,
            is_error=bool(code or facts.get("failed")),
            # metadata keeps a number that no command can have given
            exit_code=code if code is not None and abs(code) <= _MAX_EXIT_CODE else None,
        )
    return Text(text)


def _kept(row: Row, facts: Mapping[str, Any], derived: Mapping[str, str], content: str) -> dict[str, Any]:
    """Returns what a message does not tell of its row."""
    values = dict(zip(OLD_COLUMNS, row.old, strict=True))
    del values["chat_jid"]  # the session tells it
    if values["content"] == content != derived["content"]:
        values["content"] = _around(content, derived["content"])
    kept = {name: value for name, value in values.items() if name not in derived or derived[name] != value}
    if row.metadata is not None and _facts(row.metadata) != facts:
        kept["metadata"] = row.metadata
    return kept


def _around(content: str, text: str) -> Around | str:
    for after in _FENCES:
        if content.endswith(text + after):
            return Around(content[: len(content) - len(text) - len(after)], after)
    return content
