"""Rules of OpenAI Responses: https://platform.openai.com/docs/api-reference/responses/create."""

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

MAX_ID_CHARS = 64
SEALED_REASONING = "reasoning.encrypted_content"


def check_responses(request: Body) -> list[str]:
    """Returns the rules that a request breaks."""
    return [
        *json_violations(request),
        *_settings(request),
        *_items(request),
        *_tool_pairs(request),
        *_reasoning(request),
    ]


def _settings(request: Body) -> Iterator[str]:
    if request.get("store") is not False:
        yield "store: is not false"
    if "previous_response_id" in request or "conversation" in request:
        yield "previous_response_id: nothing is stored that it could name"
    if "instructions" in request and is_blank(request["instructions"]):
        yield "instructions: is blank"
    tools = request.get("tools", [])
    yield from name_violations("tools", [tool.get("name") for tool in tools])
    for index, tool in enumerate(tools):
        yield from schema_violations(f"tools[{index}]", tool.get("parameters"))
    if not request.get("input"):
        yield "input: is empty"


def _items(request: Body) -> Iterator[str]:
    for index, item in enumerate(request.get("input") or ()):
        place = f"input[{index}]"
        kind = item.get("type", "message")
        if kind == "message":
            yield from _message(place, item)
        elif kind == "function_call":
            if not isinstance(item.get("name"), str) or not NAME.fullmatch(item["name"]):
                yield f"{place}: the name {item.get('name')!r} is not [A-Za-z0-9_-]{{1,64}}"
            if not is_object_text(item.get("arguments")):
                yield f"{place}: the arguments are no JSON object"
        elif kind == "function_call_output":
            yield from _output(place, item.get("output"))
        elif kind == "item_reference":
            yield f"{place}: refers to an item that is stored nowhere"


def _message(place: str, item: Body) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        yield f"{place}: unknown role {role!r}"
    if isinstance(content, str) or not content:
        if is_blank(content):
            yield f"{place}: blank content"
        return
    for index, entry in enumerate(content):
        yield from _entry(f"{place}.content[{index}]", role, entry)


def _output(place: str, output: object) -> Iterator[str]:
    """Yields what is wrong with the output of a function: text, or a list of what the user may say too."""
    if not isinstance(output, list):
        if is_blank(output):
            yield f"{place}: a blank output"
        return
    if not output:
        yield f"{place}: an empty output"
    for index, entry in enumerate(output):
        yield from _entry(f"{place}.output[{index}]", "user", entry)


def _entry(place: str, role: object, entry: Body) -> Iterator[str]:
    kind = entry.get("type")
    if role == "assistant":
        if kind not in ("output_text", "refusal"):
            yield f"{place}: {kind!r} in a message of role assistant"
        elif is_blank(entry.get("text", entry.get("refusal"))):
            yield f"{place}: a blank text"
        return
    if kind == "input_text":
        if is_blank(entry.get("text")):
            yield f"{place}: a blank text"
    elif kind in ("input_image", "input_file"):
        url = entry.get("image_url" if kind == "input_image" else "file_data")
        violation = data_url_violation(url)
        if violation:
            yield f"{place}: the file {violation}"
        elif str(url).startswith("data:image/") is not (kind == "input_image"):
            yield f"{place}: {kind} of another media type"
        if kind == "input_file" and is_blank(entry.get("filename")):
            yield f"{place}: a file without its name"
    else:
        yield f"{place}: {kind!r} in a message of role {role}"


def _tool_pairs(request: Body) -> Iterator[str]:
    """Yields calls without exactly one output behind them before anyone speaks, outputs without a call, and bad ids."""
    waiting, seen = list[object](), set[object]()
    for index, item in enumerate(request.get("input") or ()):
        place, kind, call_id = f"input[{index}]", item.get("type", "message"), item.get("call_id")
        if kind == "function_call":
            if not isinstance(call_id, str) or not 1 <= len(call_id) <= MAX_ID_CHARS:
                yield f"{place}: the call_id is not 1 to {MAX_ID_CHARS} characters"
            if call_id in seen:
                yield f"{place}: the call_id {call_id!r} is taken"
            seen.add(call_id)
            waiting.append(call_id)
        elif kind == "function_call_output":
            if call_id in waiting:
                waiting.remove(call_id)
            else:
                yield f"{place}: an output without its call {call_id!r}"
        elif waiting and kind == "message" and item.get("role") != "assistant":
            yield f"{place}: stands before the outputs of {waiting}"
    if waiting:
        yield f"input: no outputs of {waiting}"


def _reasoning(request: Body) -> Iterator[str]:
    """Yields reasoning items that are not sealed, or not directly before another item of the model."""
    items = request.get("input") or []
    ids = [item.get("id") for item in items if item.get("id")]
    yield from (f"input: the item id {i!r} occurs twice" for i in sorted(set(ids)) if ids.count(i) > 1)
    for index, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        place = f"input[{index}]"
        if SEALED_REASONING not in request.get("include", ()):
            yield f"{place}: reasoning is sent back, but not asked for in include"
        if not item.get("encrypted_content"):
            yield f"{place}: reasoning without its sealed content is looked up where nothing is stored"
        follower = items[index + 1] if index + 1 < len(items) else {"role": "user"}
        kind = follower.get("type", "message")
        models_own = follower.get("role") == "assistant" if kind == "message" else not kind.endswith("output")
        if kind == "reasoning" or not models_own:
            yield f"{place}: reasoning without the item that followed it"
