"""Rules of Anthropic Messages: https://docs.anthropic.com/en/api/messages."""

from collections.abc import Iterator
from typing import Any

from tests.support.rules.json_values import (
    NAME,
    base64_violation,
    is_blank,
    json_violations,
    name_violations,
    schema_violations,
)

Body = dict[str, Any]

THINKING = ("thinking", "redacted_thinking")
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
MAX_BREAKPOINTS = 4
MARKABLE = ("text", "image", "document", "tool_use", "tool_result")
"""Blocks of messages that may end a cached prefix. Thinking may not."""
MIN_THINKING_BUDGET = 1024
MAX_IMAGE_CHARS = 5 * 2**20


def check_anthropic(request: Body, *, continues_pause: bool = False) -> list[str]:
    """Returns the rules that a request breaks.

    Args:
        request: The JSON body.
        continues_pause: The last answer ended with `pause_turn` and is sent back: only then may it be the last message.
    """
    return [
        *json_violations(request),
        *_settings(request),
        *_order(request, continues_pause),
        *_blocks(request),
        *_tool_pairs(request),
        *_hosted_pairs(request),
        *_thinking_turn(request),
        *_breakpoints(request),
    ]


def _settings(request: Body) -> Iterator[str]:
    limit = request.get("max_tokens")
    if not isinstance(limit, int) or limit < 1:
        yield "max_tokens: is required"
        limit = 1
    thinking = request.get("thinking") or {}
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens", 0)
        if not MIN_THINKING_BUDGET <= budget < limit:
            yield f"thinking: the budget is not from {MIN_THINKING_BUDGET} to below max_tokens"
    if thinking.get("type") in ("enabled", "adaptive"):
        yield from (f"{name}: not with thinking" for name in ("temperature", "top_k") if name in request)
    if {"temperature", "top_p"} <= request.keys():
        yield "top_p: not with a temperature"
    system = request.get("system")
    texts = [block.get("text") for block in system] if isinstance(system, list) else [system]
    if system is not None and (not texts or any(map(is_blank, texts))):
        yield "system: is blank"
    tools = request.get("tools", [])
    yield from name_violations("tools", [tool.get("name") for tool in tools])
    for index, tool in enumerate(tools):
        yield from schema_violations(f"tools[{index}]", tool.get("input_schema"))


def _messages(request: Body) -> list[tuple[str, str, list[Body]]]:
    """Returns place, role and blocks of each message."""
    found = []
    for index, message in enumerate(request.get("messages", [])):
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        found.append((f"messages[{index}]", message.get("role"), blocks))
    return found


def _order(request: Body, continues_pause: bool) -> Iterator[str]:
    messages = _messages(request)
    if not messages:
        yield "messages: is empty"
        return
    before = None
    for place, role, blocks in messages:
        if role not in ("user", "assistant"):
            yield f"{place}: unknown role {role!r}"
        if role == before:
            yield f"{place}: a second message of role {role} in a row"
        if not blocks:
            yield f"{place}: is empty"
        before = role
    if messages[0][1] != "user":
        yield "messages[0]: is not the user's"
    place, role, blocks = messages[-1]
    if role == "assistant":
        if not continues_pause:
            yield f"{place}: an assistant message is the last one"
        if blocks and blocks[-1].get("type") == "text" and str(blocks[-1].get("text"))[-1:].isspace():
            yield f"{place}: the final assistant text ends with white space"


def _blocks(request: Body) -> Iterator[str]:
    for place, role, blocks in _messages(request):
        for index, block in enumerate(blocks):
            yield from _block(f"{place}.content[{index}]", role, block)
        if role == "assistant" and blocks and blocks[-1].get("type") in THINKING:
            yield f"{place}: the last block is thinking"
        kinds = [block.get("type") for block in blocks]
        others = [index for index, kind in enumerate(kinds) if kind != "tool_result"]
        if "tool_result" in kinds[others[0] if others else len(kinds) :]:
            yield f"{place}: a tool_result stands behind another block"


def _block(place: str, role: str, block: Body) -> Iterator[str]:
    kind = block.get("type")
    own = {"user": ("image", "document", "tool_result"), "assistant": ("tool_use", *THINKING)}
    if any(kind in kinds and speaker != role for speaker, kinds in own.items()):
        yield f"{place}: {kind} in a message of role {role}"
    if kind == "text":
        if is_blank(block.get("text")):
            yield f"{place}: a blank text"
    elif kind == "thinking":
        if not block.get("signature") or not isinstance(block.get("thinking"), str):
            yield f"{place}: thinking without its signature"
    elif kind == "redacted_thinking":
        if not block.get("data"):
            yield f"{place}: redacted thinking without its data"
    elif kind in ("image", "document"):
        yield from _file(place, kind, block)
    elif kind == "tool_use":
        yield from _tool_use(place, block)
    elif kind == "tool_result":
        yield from _tool_result(place, block)
    elif role == "user" or not kind:
        yield f"{place}: unknown block {kind!r}"


def _tool_use(place: str, block: Body) -> Iterator[str]:
    for name in ("id", "name"):
        if not isinstance(block.get(name), str) or not NAME.fullmatch(block[name]):
            yield f"{place}: the {name} {block.get(name)!r} is not [A-Za-z0-9_-]{{1,64}}"
    if not isinstance(block.get("input"), dict):
        yield f"{place}: the input is no object"


def _tool_result(place: str, block: Body) -> Iterator[str]:
    content = block.get("content")
    if isinstance(content, str):
        if is_blank(content):
            yield f"{place}: a blank result"
        return
    if not content:
        yield f"{place}: an empty result"
    for index, inner in enumerate(content or ()):
        kind = inner.get("type")
        if kind not in ("text", "image", "document"):
            yield f"{place}.content[{index}]: {kind!r} in a result"
        elif kind != "text" and block.get("is_error"):
            yield f"{place}.content[{index}]: {kind} in the result of a call that failed"
        else:
            yield from _block(f"{place}.content[{index}]", "user", inner)


def _file(place: str, kind: str, block: Body) -> Iterator[str]:
    source = block.get("source") or {}
    if source.get("type") != "base64":
        yield f"{place}: the source is not base64"
    allowed = IMAGES if kind == "image" else ("application/pdf",)
    if source.get("media_type") not in allowed:
        yield f"{place}: media type {source.get('media_type')!r}"
    violation = base64_violation(source.get("media_type", ""), source.get("data"))
    if violation:
        yield f"{place}: the file {violation}"
    if kind == "image" and len(source.get("data") or "") > MAX_IMAGE_CHARS:
        yield f"{place}: the image exceeds {MAX_IMAGE_CHARS} characters of base64"
    if "title" in block and not 1 <= len(block["title"].strip()) <= len(block["title"]) <= 500:
        yield f"{place}: the title is not 1 to 500 characters"


def _tool_pairs(request: Body) -> Iterator[str]:
    messages = _messages(request)
    seen = set[str]()
    for index, (place, role, blocks) in enumerate(messages):
        if role == "assistant":
            calls = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
            for call_id in calls:
                if call_id in seen:
                    yield f"{place}: the tool_use id {call_id!r} is taken"
                seen.add(call_id)
            answered = _results(messages[index + 1][2]) if index + 1 < len(messages) else []
            yield from (f"{place}: {c!r} has no result in the next message" for c in calls if c not in answered)
        else:
            before = messages[index - 1][2] if index else []
            calls = [block.get("id") for block in before if block.get("type") == "tool_use"]
            results = _results(blocks)
            yield from (f"{place}: result without its call {c!r}" for c in results if c not in calls)
            yield from (f"{place}: a second result for {c!r}" for c in set(results) if results.count(c) > 1)


def _breakpoints(request: Body) -> Iterator[str]:
    """Yields cache marks that are too many, or stand where the API refuses or ignores them."""
    system = request.get("system")
    marked = [("tool", tool) for tool in request.get("tools", []) if "cache_control" in tool]
    marked += [("text", block) for block in system if "cache_control" in block] if isinstance(system, list) else []
    for place, _, blocks in _messages(request):
        for index, block in enumerate(blocks):
            if "cache_control" not in block:
                continue
            marked.append((str(block.get("type")), block))
            if block.get("type") not in MARKABLE:
                yield f"{place}.content[{index}]: a cache mark on {block.get('type')!r}"
    for kind, block in marked:
        if block["cache_control"] != {"type": "ephemeral"}:
            yield f"cache_control: {block['cache_control']!r}"
        if kind == "text" and is_blank(block.get("text")):
            yield "cache_control: on a blank text"
    if len(marked) > MAX_BREAKPOINTS:
        yield f"cache_control: more than {MAX_BREAKPOINTS}"
    if _count_keys(request, "cache_control") > len(marked):
        yield "cache_control: inside of a block"


def _count_keys(value: object, key: str) -> int:
    if isinstance(value, list):
        return sum(_count_keys(item, key) for item in value)
    if not isinstance(value, dict):
        return 0
    return (key in value) + sum(_count_keys(item, key) for item in value.values())


def _results(blocks: list[Body]) -> list[Any]:
    return [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]


def _hosted_pairs(request: Body) -> Iterator[str]:
    """Yields calls of hosted tools without their result and the reverse.

    Only the last answer may have open ones, while its turn goes on: nothing but results of tools stands behind it.
    """
    messages = _messages(request)
    opened = dict[str, tuple[int, str]]()
    for index, (place, role, blocks) in enumerate(messages):
        for block in blocks if role == "assistant" else ():
            kind = str(block.get("type"))
            if kind.endswith("tool_use") and kind != "tool_use":
                opened[block.get("id", "")] = (index, place)
            elif kind.endswith("tool_result") and opened.pop(block.get("tool_use_id", ""), None) is None:
                yield f"{place}: {kind} without its call {block.get('tool_use_id')!r}"
    for call_id, (index, place) in opened.items():
        behind = [block.get("type") for _, _, blocks in messages[index + 1 :] for block in blocks]
        if any(kind != "tool_result" for kind in behind):
            yield f"{place}: the hosted call {call_id!r} has no result"


def _thinking_turn(request: Body) -> Iterator[str]:
    """Yields an answer that goes on with a thinking budget, but did not begin with thinking.

    Steps of a tool loop are one answer: it begins behind the last message of the user that is more than results.
    """
    if (request.get("thinking") or {}).get("type") != "enabled":
        return
    messages = _messages(request)
    begin: tuple[str, list[Body]] | None = None
    for index, (place, role, blocks) in enumerate(messages):
        kinds = {block.get("type") for block in blocks}
        if role == "assistant":
            begin = begin or (place, blocks)
        elif kinds != {"tool_result"} and not (index == len(messages) - 1 and "tool_result" in kinds):
            begin = None
    if begin is not None and begin[1] and begin[1][0].get("type") not in THINKING:
        yield f"{begin[0]}: the answer that goes on does not begin with thinking"
