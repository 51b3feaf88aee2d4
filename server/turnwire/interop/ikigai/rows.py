"""Stored rows: a kind, and text in `content` or JSON in `data_json`. Both spellings of the keys of a call are read."""

import json
from collections.abc import Iterable, Mapping

from turnwire.interop.forms import Json, a_text, an_object, kind_of, refuse, text_of
from turnwire.interop.ikigai import blocks
from turnwire.interop.ikigai.blocks import Block, Draft

NOT_CONVERSATION = frozenset({"system", "clear", "mark", "rewind"})
"""Kinds that give no message. A system row belongs to the system prompt: `SessionSettings.system`."""

_CONVERSATION = frozenset({"user", "assistant", "tool_call", "tool_result", "tool"})


def drafts_of(rows: Iterable[Mapping[str, object]]) -> list[Draft]:
    """Returns the messages of a conversation in the order of its rows; all of them, or an error and none.

    Raises:
        InvalidRequest: as `draft_of`; the place begins with `rows[n]`, n from 0.
    """
    found = (draft_of(row, f"rows[{index}]") for index, row in enumerate(rows))
    return [draft for draft in found if draft is not None]


def draft_of(row: object, place: str = "row") -> Draft | None:
    """Returns the message of a row; None for kinds that are not conversation.

    Args:
        row: `{"kind", "content"?, "data_json"?, "provider_metadata"?}`; `data_json` is JSON text, the last an object.
        place: Names the row in errors.

    Raises:
        InvalidRequest: an unknown kind, a text message without content, no or malformed `data_json`, a missing key, an
            id or another text that is not text. Names the place.
    """
    given = an_object(row, place)
    kind = text_of(given, "kind", place)
    if kind in NOT_CONVERSATION:
        return None
    if kind not in _CONVERSATION:
        refuse(f"{place}.kind", f"{kind!r} is unknown")
    metadata = given.get("provider_metadata")
    if metadata is not None:
        metadata = an_object(metadata, f"{place}.provider_metadata")
        _check_json(metadata, f"{place}.provider_metadata")
    match kind:
        case "user" | "assistant":
            if given.get("content") is None:
                refuse(f"{place}.content", f"is missing in a message of kind {kind}")
            words = blocks.text(a_text(given["content"], f"{place}.content"))
            make = blocks.user_message if kind == "user" else blocks.assistant_message
            return make(words, provider_metadata=metadata)
        case "tool_call":
            return blocks.assistant_message(*_call(_data(given, place), place), provider_metadata=metadata)
        case _:
            return blocks.tool_message(_result(_data(given, place), place), provider_metadata=metadata)


def _data(row: Json, place: str) -> Json:
    at = f"{place}.data_json"
    if row.get("data_json") is None:
        refuse(at, f"is missing in a message of kind {row['kind']}")
    try:
        return an_object(json.loads(a_text(row["data_json"], at)), at)
    except (ValueError, RecursionError) as error:  # also a number of too many digits
        refuse(at, f"is not JSON: {error}")


def _check_json(value: object, place: str) -> None:
    """Refuses what cannot be stored as JSON."""
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        refuse(place, f"is not JSON: {error}")
    a_text(written, place)


def _call(data: Json, place: str) -> list[Block]:
    """Returns the blocks of a call in the order in which a model made them: thinking comes first."""
    at = f"{place}.data_json"
    found = []
    if data.get("thinking") is not None:
        thought, where = an_object(data["thinking"], f"{at}.thinking"), f"{at}.thinking"
        signature = thought.get("signature")
        sealed = "" if signature is None else a_text(signature, f"{where}.signature")
        found.append(blocks.thinking(text_of(thought, "text", where), sealed))
    if data.get("redacted_thinking") is not None:
        where = f"{at}.redacted_thinking"
        found.append(blocks.redacted_thinking(text_of(an_object(data["redacted_thinking"], where), "data", where)))
    call_id = text_of(data, "tool_call_id", at)
    name, arguments = _either(data, "tool_name", "name", at), _either(data, "tool_args", "arguments", at)
    return [*found, blocks.tool_call(call_id, name, arguments)]


def _result(data: Json, place: str) -> Block:
    at = f"{place}.data_json"
    success = data.get("success")
    if success is not None and not isinstance(success, bool):
        refuse(f"{at}.success", f"must be true or false, not {kind_of(success)}")
    failed = success is False
    return blocks.tool_result(text_of(data, "tool_call_id", at), text_of(data, "output", at), failed)


def _either(data: Json, key: str, other: str, place: str) -> str:
    """Returns the text at one of two keys. Of both the first one counts."""
    return text_of(data, other if key not in data and other in data else key, place)
