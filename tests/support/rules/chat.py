"""Rules of OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat/create."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

from tests.support.rules.json_values import (
    NAME,
    data_url_violation,
    is_blank,
    is_object_text,
    json_violations,
    name_violations,
    schema_violations,
)

Body = dict[str, Any]

MAX_ID_CHARS = 40
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")
_FIELDS = {
    "system": {"role", "content"},
    "developer": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "refusal", "reasoning_content", "reasoning_details"},
    "tool": {"role", "content", "tool_call_id"},
}


def check_chat(request: Body, *, mistral: bool = False, deepseek: bool = False) -> list[str]:
    """Returns the rules that a request breaks.

    Args:
        request: The JSON body.
        mistral: The ids must be Mistral's, exactly 9 letters and digits, and its order of speakers is kept:
            https://github.com/mistralai/mistral-common, `validator.py`.
        deepseek: Calls must have their reasoning: https://api-docs.deepseek.com/guides/thinking_mode.
    """
    return [
        *json_violations(request),
        *_tools(request),
        *_messages(request),
        *_tool_pairs(request),
        *_ids(request, mistral),
        *(_strict_order(request) if mistral else ()),
        *(_reasoning_of_calls(request) if deepseek else ()),
    ]


def _tools(request: Body) -> Iterator[str]:
    functions = [tool.get("function") or {} for tool in request.get("tools", [])]
    yield from name_violations("tools", [function.get("name") for function in functions])
    for index, function in enumerate(functions):
        yield from schema_violations(f"tools[{index}]", function.get("parameters"))


def _messages(request: Body) -> Iterator[str]:
    messages = request.get("messages") or []
    if all(message.get("role") in ("system", "developer") for message in messages):
        yield "messages: nobody has said anything"
    for index, message in enumerate(messages):
        place, role = f"messages[{index}]", message.get("role")
        if role not in _FIELDS:
            yield f"{place}: unknown role {role!r}"
            continue
        unknown = set(message) - _FIELDS[role]
        if unknown:
            yield f"{place}: unknown fields {sorted(unknown)}"
        yield from _content(place, role, message)


def _content(place: str, role: str, message: Body) -> Iterator[str]:
    content, calls = message.get("content"), message.get("tool_calls")
    if calls is not None and not calls:
        yield f"{place}: tool_calls is empty"
    if content is None:
        if not calls:
            yield f"{place}: no content"
    elif isinstance(content, str):
        if is_blank(content):
            yield f"{place}: blank content"
    elif role in ("assistant", "tool") or not content:
        yield f"{place}: content is no text"
    else:
        for index, entry in enumerate(content):
            yield from _entry(f"{place}.content[{index}]", role, entry)
    for field in ("reasoning_content", "refusal"):
        if field in message and not message[field]:
            yield f"{place}: {field} is empty"


def _entry(place: str, role: str, entry: Body) -> Iterator[str]:
    kind = entry.get("type")
    if kind == "text":
        if is_blank(entry.get("text")):
            yield f"{place}: a blank text"
        return
    if role != "user" or kind not in ("image_url", "file"):
        yield f"{place}: {kind!r} in a message of role {role}"
        return
    url = entry["image_url"].get("url") if kind == "image_url" else entry["file"].get("file_data")
    violation = data_url_violation(url)
    if violation:
        yield f"{place}: the file {violation}"
    elif str(url).startswith("data:image/") is not (kind == "image_url"):
        yield f"{place}: {kind} of another media type"
    if kind == "file" and is_blank(entry["file"].get("filename")):
        yield f"{place}: a file without its name"


def _tool_pairs(request: Body) -> Iterator[str]:
    """Yields calls that are not answered directly behind them, and answers without a call."""
    waiting: list[str] = []
    for index, message in enumerate(request.get("messages", [])):
        place = f"messages[{index}]"
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if call_id in waiting:
                waiting.remove(call_id)
            else:
                yield f"{place}: an answer without its call {call_id!r}"
            continue
        if waiting:
            yield f"{place}: stands before the answers to {waiting}"
        waiting = [call.get("id") for call in message.get("tool_calls") or ()]
    if waiting:
        yield f"messages: no answers to {waiting}"


def _ids(request: Body, mistral: bool) -> Iterator[str]:
    seen = set[str]()
    for index, message in enumerate(request.get("messages", [])):
        for number, call in enumerate(message.get("tool_calls") or ()):
            place = f"messages[{index}].tool_calls[{number}]"
            call_id, function = call.get("id"), call.get("function") or {}
            if not isinstance(call_id, str) or not 1 <= len(call_id) <= MAX_ID_CHARS:
                yield f"{place}: the id is not 1 to {MAX_ID_CHARS} characters"
            elif mistral and not _MISTRAL_ID.fullmatch(call_id):
                yield f"{place}: the id is not 9 letters and digits"
            elif call_id in seen:
                yield f"{place}: the id {call_id!r} is taken"
            seen.add(str(call_id))
            if call.get("type") != "function":
                yield f"{place}: is no function"
            if not isinstance(function.get("name"), str) or not NAME.fullmatch(function["name"]):
                yield f"{place}: the name {function.get('name')!r} is not [A-Za-z0-9_-]{{1,64}}"
            if not is_object_text(function.get("arguments")):
                yield f"{place}: the arguments are no JSON object"


_BEFORE = {
    "system": {"system", "user"},
    "user": {"system", "user", "assistant"},
    "assistant": {"system", "user", "assistant", "tool"},
    "tool": {"assistant", "tool"},
}
"""Roles that may stand directly before each role."""


def _strict_order(request: Body) -> Iterator[str]:
    roles = [str(message.get("role")) for message in request.get("messages", [])]
    for index, (before, role) in enumerate(itertools.pairwise(roles), start=1):
        if before not in _BEFORE.get(role, ()):
            yield f"messages[{index}]: unexpected role {role!r} after role {before!r}"
    if roles and roles[-1] not in ("user", "tool"):
        yield f"messages: the last one is of role {roles[-1]}"


def _reasoning_of_calls(request: Body) -> Iterator[str]:
    for index, message in enumerate(request.get("messages", [])):
        if message.get("tool_calls") and not ({"reasoning_content", "reasoning_details"} & message.keys()):
            yield f"messages[{index}]: calls without reasoning_content"
