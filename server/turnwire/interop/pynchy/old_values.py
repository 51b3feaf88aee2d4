"""What a message of Turnwire keeps of its row: it tells all seven old columns, whatever values SQLite had in them."""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from turnwire.domain.conversation.messages import Message, Reasoning, Text, ToolResult
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.text import join_surrogates
from turnwire.interop.pynchy.legacy_file import OLD_COLUMNS

SYSTEM = "pynchy"
"""`Origin.system` of what comes from such a file, and the key of what `metadata_json` keeps."""

MAX_KEPT_CHARS = 48 * 1024
"""JSON that a message or a session keeps beside its text; metadata of a message has at most 64 KiB."""


class Around(msgspec.Struct, frozen=True):
    """What a text had before and behind it in its row."""

    before: str
    after: str


def as_json(value: Any) -> Any:
    """Returns a value of SQLite as JSON that `from_json` reads back: null, a number, text, or an object for others."""
    match value:
        case bytes():
            return {"blob": base64.b64encode(value).decode()}
        case str() if not _is_valid(value):
            return {"text": base64.b64encode(value.encode(errors="surrogateescape")).decode()}
        case float() if not math.isfinite(value):
            return {"real": str(value)}
        case Around(before, after):
            return {"around": [before, after]}
        case _:
            return value


def from_json(kept: Any, text: str = "") -> Any:
    """Returns the value of SQLite that `as_json` was given; `text` is what stands inside of `Around`."""
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


def within_bound(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns the JSON of values by name, and the names of those that would be too long together."""
    kept, dropped, left = dict[str, Any](), list[str](), MAX_KEPT_CHARS
    for name, value in values.items():
        found = as_json(value)
        chars = len(json.dumps(found))
        if chars > left:
            dropped.append(name)
        else:
            kept[name], left = found, left - chars
    return kept, dropped


def old_row(session: Session, message: Message) -> tuple[Any, ...]:
    """Returns the old columns of the row that a message was made of.

    Raises:
        ValueError: the message was made of no row.
    """
    derived = derived_columns(session, message)
    metadata = json.loads(message.metadata_json or "{}")
    kept = metadata.get(SYSTEM) if isinstance(metadata, dict) else None
    if not isinstance(kept, dict):
        raise ValueError(f"message {message.message_id} was made of no row of pynchy")
    text = text_of(message)
    chat = kept_of(session).get("jid", derived["chat_jid"])
    named = {**derived, "chat_jid": from_json(chat), "timestamp": None, "is_from_me": None}
    return tuple(from_json(kept[name], text) if name in kept else named[name] for name in OLD_COLUMNS)


def derived_columns(session: Session, message: Message) -> dict[str, str]:
    """Returns the columns that a message tells without what it keeps."""
    return {
        "id": message.origin.message_id if message.origin else "",
        "chat_jid": session.origin.session_id if session.origin else "",
        "sender": message.sender,
        "sender_name": message.sender_name,
        "content": text_of(message),
    }


def kept_of(session: Session) -> dict[str, Any]:
    """Returns what a session keeps of its chat; {} when it comes from no such file."""
    metadata = json.loads(session.metadata_json or "{}")
    kept = metadata.get(SYSTEM) if isinstance(metadata, dict) else None
    return kept if isinstance(kept, dict) else {}


def text_of(message: Message) -> str:
    """Returns the text of a message that was made of a row, of whatever type."""
    match [part.content for part in message.parts]:
        case [Text(text) | Reasoning(text)]:
            return text
        case [ToolResult(output=output)]:
            return output
        case _:
            return ""


def valid_text(value: str) -> str:
    """Returns text that can be stored: what is no valid text in it becomes U+FFFD."""
    return value if _is_valid(value) else join_surrogates(value)


def _is_valid(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
