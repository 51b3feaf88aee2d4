"""One long conversation in which nearly everything happens that can happen, and the requests that are made of it."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tests.support.fakes.domain_values import NOW
from tests.support.models.wire_requests import body_of
from turnwire.domain.conversation.messages import (
    Content,
    File,
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRun,
    Part,
    PartStatus,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import GenerationOptions, ToolDefinition
from turnwire.ports.provider import PreparedRequest, ProviderRequest
from turnwire.providers.anthropic.request import AnthropicWriter
from turnwire.providers.openai_chat.request import ChatWriter, dialect_of
from turnwire.providers.openai_responses.request import ResponsesWriter

Stated = Content | tuple[Content, dict[str, Any]]
"""Content, or content with the state that its provider left."""

HOST_WORDS = "a notice of the host"

CONTENTS: Mapping[str, bytes] = {
    "plot.png": b"\x89PNG\r\n\x1a\nplot",
    "shot.png": b"\x89PNG\r\n\x1a\nshot",
    "paper.pdf": b"%PDF-1.7 paper",
    "main.py": 'print("héllo 🎈")\n'.encode(),
    "disk.img": b"\xff\x00\xfe",
    "log.txt": b"line one\nline two\n",
}

_MIMES = {
    "plot.png": "image/png", "shot.png": "image/png", "paper.pdf": "application/pdf", "main.py": "text/x-python",
    "disk.img": "application/octet-stream", "log.txt": "text/plain", "gone.txt": "text/plain",
}  # fmt: skip

CLAUDE = ("claude", "claude-opus-4-8", "anthropic")
GPT = ("gpt", "gpt-5", "openai_responses")
LOCAL = ("local", "thinker", "openai_chat")
"""Provider, model and API of those who answer."""


def _file(name: str) -> File:
    content = CONTENTS.get(name, b"")
    digest = hashlib.sha256(content).hexdigest() if content else "0" * 64
    return File(sha256=digest, size_bytes=len(content), mime=_MIMES[name], filename=name)


def _message(number: int, kind: MessageType, contents: tuple[Stated, ...], **fields: Any) -> Message:
    parts = []
    for index, stated in enumerate(contents):
        content, state = stated if isinstance(stated, tuple) else (stated, None)
        cut = isinstance(content, ToolUse) and content.status is ToolStatus.CANCELLED
        part = Part(
            part_id=f"prt_{number:02}_{index}",
            index=index,
            content=content,
            status=PartStatus.INTERRUPTED if cut else PartStatus.COMPLETE,
            provider_state=None if state is None else json.dumps(state),
        )
        parts.append(part)
    defaults: dict[str, Any] = {
        "message_id": f"msg_{number:02}", "session_id": "ses_1", "type": kind, "status": MessageStatus.COMPLETE,
        "created_at": NOW, "updated_at": NOW, "parts": tuple(parts),
    }  # fmt: skip
    return Message(**{**defaults, **fields})


def _says(kind: MessageType) -> Callable[..., tuple[MessageType, tuple[Stated, ...], dict[str, Any]]]:
    return lambda *contents, **fields: (kind, contents, fields)


_user, _system, _host, _result = map(
    _says, (MessageType.USER, MessageType.SYSTEM, MessageType.HOST, MessageType.TOOL_RESULT)
)


def _answer(
    by: tuple[str, str, str], *contents: Stated, reason: FinishReason = FinishReason.STOP, **fields: Any
) -> tuple[MessageType, tuple[Stated, ...], dict[str, Any]]:
    provider_id, model_id, api = by
    sealed = tuple(
        (one[0], {"api": api, "model": model_id, **one[1]}) if isinstance(one, tuple) else one for one in contents
    )
    run = ModelRun(provider_id=provider_id, model_requested=model_id)
    return MessageType.ASSISTANT, sealed, {"model_run": run, "finish_reason": reason, **fields}


def _done(name: str, call_id: str, arguments: str, output: str | None = "ok", **fields: Any) -> ToolUse:
    return ToolUse(
        **{"name": name, "call_id": call_id, "input_json": arguments, "status": ToolStatus.SUCCESS, "output": output}
        | fields
    )


_EXACT = '{"ratio": 1.0, "count": 123456789012345678901234567890, "päth": "straße/🎈"}'

_FAILED = {"status": ToolStatus.ERROR, "output": "half a page", "error": "the disk is gone"}

_SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tides"}}
_FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
_OPEN_SEARCH = {**_SEARCH, "id": "srvtoolu_2"}

_SAID = (
    _system(Text("Answer in short sentences.")),
    _host(Text(HOST_WORDS)),
    _system(Text("The user is a sailor.")),
    _user(Text("What is in these? ⚓"), *map(_file, ("plot.png", "paper.pdf", "main.py", "disk.img", "gone.txt"))),
    # each of the three answers with sealed reasoning of its own and calls of tools, two of them at once
    _answer(
        CLAUDE,
        (Reasoning("I should read both."), {"signature": "c2ln"}),
        (Reasoning(""), {"block": {"type": "redacted_thinking", "data": "AAEC"}}),
        Text("Let me read."),
        _done("fs.read", "toolu_01", _EXACT, "a plot of the tide", files=(_file("shot.png"), _file("log.txt"))),
        _done("fs.read", "x" * 70, '{"path": "b"}', **_FAILED, files=(_file("plot.png"),)),
        reason=FinishReason.TOOL_USE,
    ),
    _answer(
        GPT,
        (Reasoning("**Comparing**"), {"item": {"type": "reasoning", "id": "rs_1", "summary": [],
                                               "encrypted_content": "gAAAsealed"}}),
        (Text("They differ."), {"phase": "commentary"}),
        (Reasoning(""), {"item": {"type": "reasoning", "id": "rs_2", "summary": []}}),
        _done("tide", "call_02", "", "", full_output=_file("log.txt")),
        reason=FinishReason.TOOL_USE,
    ),
    _answer(
        LOCAL,
        (Reasoning("hm"), {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}),
        Text("The plot shows a tide."),
    ),
    _user(Text("And what does an outsider say?"), Text("  ")),
    _answer(("elsewhere", "other", "anthropic"), (Reasoning("their thought"), {"signature": "dGhlaXI="}), Text("Aye.")),
    _user(Text("Sink a ship.")),
    _answer(GPT, Refusal("I will not help with that."), reason=FinishReason.REFUSAL),
    # an answer that was cut, and the turn that went on after a restart
    _user(Text("Then sail one.")),
    _answer(LOCAL, Text("First you cast "), reason=FinishReason.INTERRUPTED, status=MessageStatus.INTERRUPTED),
    _answer(CLAUDE, (Reasoning("With which wind?"), {"signature": "d2luZA=="}), Text("Cast off, hoist the sail.")),
    _user(Text("Write the log.")),
    _answer(
        CLAUDE,
        (Reasoning("It is long."), {"signature": "bG9uZw=="}),
        ToolUse(name="fs.write", call_id="toolu_02", input_json='{"text": "Day one', status=ToolStatus.CANCELLED),
        reason=FinishReason.LENGTH,
    ),
    _answer(
        LOCAL,
        Text("Again."),
        _done("fs.write", "call_list", '["Day one"]', None, status=ToolStatus.ERROR, error="no object"),
        reason=FinishReason.TOOL_USE,
    ),
    _host(Text(HOST_WORDS)),
    _system(Text("From now on be brief.")),
    # a turn that was aborted before its first word
    _user(Text("Never mind.")),
    _answer(LOCAL, reason=FinishReason.ABORTED, status=MessageStatus.INTERRUPTED),
    _result(ToolResult(call_id="call_far", output="42 knots")),
    _result(ToolResult(call_id="toolu_01", output="a plot of the tide"), answers_message_id="msg_04"),
    # a turn that its provider paused, and one that it paused and nobody continued
    _user(Text("Look up the tides.")),
    _answer(
        CLAUDE, Text("I look. "), (ProviderContent("server_tool_use"), {"block": _SEARCH}), Text("Now it comes: "),
        reason=FinishReason.PAUSED,
    ),
    _answer(
        CLAUDE,
        (ProviderContent("web_search_tool_result"), {"block": _FOUND}),
        (Text("High at noon."), {"citations": [{"type": "web_search_result_location", "url": "https://tides.example"}]}),
    ),
    _user(Text("Once more.")),
    _answer(
        CLAUDE,
        Text("I look again."),
        (Reasoning("Where?"), {"signature": "d2hlcmU="}),
        (ProviderContent("server_tool_use"), {"block": _OPEN_SEARCH}),
        reason=FinishReason.PAUSED,
    ),
    _answer(
        GPT, (ProviderContent("web_search_call"), {"item": {"type": "web_search_call", "id": "ws_1"}}), Text("Low.")
    ),
    # a tool loop that still runs
    _user(Text("Good. Measure it.")),
    _answer(LOCAL, Reasoning("I measure."), _done("tide", "call_03", '{"at": "noon"}', "3 m"),
            reason=FinishReason.TOOL_USE),
)  # fmt: skip

HISTORY = tuple(_message(number, kind, contents, **fields) for number, (kind, contents, fields) in enumerate(_SAID))

_REQUEST: dict[str, Any] = {
    "system": "You are a boatswain.",
    "messages": HISTORY,
    "tools": (
        ToolDefinition("fs.read", "Reads a file.", '{"type": "object", "properties": {"path": {"type": "string"}}}'),
        ToolDefinition("tide", "Tells the tide.", ""),
        ToolDefinition("broken", "Has a schema that is none.", "[]"),
    ),
    "options": GenerationOptions(
        temperature=0.5, max_output_tokens=1000, stop_sequences=("END",), reasoning_effort="minimal"
    ),
    "files": {hashlib.sha256(content).hexdigest(): content for content in CONTENTS.values()},
    "prefix_changed": frozenset({"msg_05", "msg_13"}),
}


def _asking(by: tuple[str, str, str]) -> ProviderRequest:
    return ProviderRequest(model_id=by[1], **_REQUEST)


GOLDEN: Mapping[str, Callable[[], PreparedRequest]] = {
    "anthropic": lambda: AnthropicWriter("claude", 8192).prepare(_asking(CLAUDE)),
    "openai_chat": lambda: ChatWriter("local", dialect_of("", True, False)).prepare(_asking(LOCAL)),
    "openai_chat_reasoning": lambda: ChatWriter("local", dialect_of("http://h", True, True)).prepare(_asking(LOCAL)),
    "openai_responses": lambda: ResponsesWriter("gpt", "auto").prepare(_asking(GPT)),
}
"""By name, what makes the request: the three APIs, and a server that wants readable reasoning back."""


def golden_files() -> dict[str, bytes]:
    """Returns what each golden file must hold, by its name: of each request the body, and beside it the repairs."""
    files = {}
    for name, prepare in GOLDEN.items():
        prepared = prepare()
        for suffix, value in (("request", body_of(prepared)), ("repairs", prepared.repairs)):
            files[f"{name}.{suffix}.json"] = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    return files
