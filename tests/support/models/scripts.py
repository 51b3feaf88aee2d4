"""Answers of models in the wire format of each API, made from a few neutral pieces."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.rules import check_anthropic, check_chat, check_responses
from tests.support.servers.provider import ScriptedReply

APIS = ("openai_chat", "openai_responses", "anthropic")

API_OF_PATH = {"/v1/chat/completions": "openai_chat", "/v1/responses": "openai_responses", "/v1/messages": "anthropic"}

CHECKS: Mapping[str, Callable[[dict[str, Any]], list[str]]] = {
    "openai_chat": check_chat,
    "openai_responses": check_responses,
    "anthropic": check_anthropic,
}
"""The rule checker of each API."""


@dataclass(frozen=True)
class Say:
    """Text."""

    text: str


@dataclass(frozen=True)
class Think:
    """Reasoning, sealed for its provider."""

    text: str
    seal: str = "sealed"


@dataclass(frozen=True)
class Call:
    """A complete tool call."""

    name: str
    arguments: str = "{}"
    call_id: str = "call_1"


@dataclass(frozen=True)
class Refuse:
    """A refusal; text where the API has no word of its own for it."""

    text: str


@dataclass(frozen=True)
class HostedCall:
    """A call of a tool that the provider runs itself; nothing where the API has none."""

    call_id: str


@dataclass(frozen=True)
class HostedResult:
    """The result of such a call; nothing where the API shows none."""

    call_id: str


Piece = Say | Think | Call | Refuse | HostedCall | HostedResult


@dataclass(frozen=True)
class Tokens:
    """Token counts that an answer reports."""

    prompt: int = 10
    generated: int = 5


def answer(api: str, *pieces: Piece, tokens: Tokens | None = None, cut: bool = False) -> ScriptedReply:
    """Returns a streamed answer.

    Args:
        api: Kind of the provider.
        pieces: What it says, in order; with a call it finishes for tools.
        tokens: Usage; None for Tokens().
        cut: Leave out the end of the answer and close the connection.
    """
    events = list(_WRITERS[api](pieces, tokens or Tokens()))
    if cut:
        events = events[: -_END_EVENTS[api]]
    return ScriptedReply(tuple(events), cut=cut)


def error(status: int, words: str, **headers: str) -> ScriptedReply:
    """Returns an HTTP error with a JSON body of the kind that all three APIs send."""
    body = json.dumps({"error": {"type": words, "code": words, "message": words}}).encode()
    return ScriptedReply((body,), status, {"content-type": "application/json", **headers})


def _data(value: object, event: str = "") -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def _chat(pieces: Iterable[Piece], tokens: Tokens) -> Iterable[bytes]:
    calls = 0

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _data({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    for piece in pieces:
        match piece:
            case Say(text):
                yield chunk({"content": text})
            case Think(text):
                yield chunk({"reasoning_content": text})
            case Call(name, arguments, call_id):
                function = {"name": name, "arguments": arguments}
                yield chunk({"tool_calls": [{"index": calls, "id": call_id, "type": "function", "function": function}]})
                calls += 1
            case Refuse(text):
                yield chunk({"refusal": text})
            case HostedCall() | HostedResult():
                pass
    yield chunk({}, "tool_calls" if calls else "stop")
    total = tokens.prompt + tokens.generated
    usage = {"prompt_tokens": tokens.prompt, "completion_tokens": tokens.generated, "total_tokens": total}
    yield _data({"id": "c1", "model": "m", "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _responses(pieces: Iterable[Piece], tokens: Tokens) -> Iterable[bytes]:
    yield _data({"type": "response.created", "response": {"id": "resp_1", "model": "m"}})
    output: list[dict[str, Any]] = []
    shown = [piece for piece in pieces if not isinstance(piece, HostedResult)]
    for index, piece in enumerate(shown):
        number = next(_item_numbers)
        match piece:
            case Refuse(text):
                item: dict[str, Any] = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
                item |= {"status": "completed", "content": [{"type": "refusal", "refusal": text}]}
            case HostedCall(call_id):
                item = {"type": "web_search_call", "id": call_id, "status": "completed"}
            case Say(text):
                part = {"type": "output_text", "text": text, "annotations": []}
                item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
                item["content"] = [part]
            case Think(text, seal):
                summary = [{"type": "summary_text", "text": text}] if text else []
                item = {"type": "reasoning", "id": f"rs_{number}", "encrypted_content": seal}
                item["summary"] = summary
            case Call(name, arguments, call_id):
                item = {"type": "function_call", "id": f"fc_{number}", "status": "completed"}
                item |= {"name": name, "arguments": arguments, "call_id": call_id}
        yield _data({"type": "response.output_item.added", "output_index": index, "item": item})
        if isinstance(piece, Say):
            place = {"item_id": f"msg_{number}", "output_index": index, "content_index": 0}
            yield _data({"type": "response.output_text.delta", "delta": piece.text, **place})
            yield _data({"type": "response.output_text.done", "text": piece.text, **place})
        yield _data({"type": "response.output_item.done", "output_index": index, "item": item})
        output.append(item)
    usage = {"input_tokens": tokens.prompt, "output_tokens": tokens.generated}
    usage["total_tokens"] = tokens.prompt + tokens.generated
    response = {"id": "resp_1", "model": "m", "status": "completed", "output": output, "usage": usage}
    yield _data({"type": "response.completed", "response": response})


def _anthropic(pieces: Iterable[Piece], tokens: Tokens) -> Iterable[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        return _data({"type": kind, **fields}, kind)

    usage = {"input_tokens": tokens.prompt, "output_tokens": 1}
    message = {"id": "msg_1", "model": "m", "role": "assistant", "content": [], "usage": usage}
    yield event("message_start", message=message)
    stop = "end_turn"
    for index, piece in enumerate(pieces):
        match piece:
            case Say(text) | Refuse(text):
                block: dict[str, Any] = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": text}]
            case HostedCall(call_id):
                block = {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {}}
                deltas = [{"type": "input_json_delta", "partial_json": '{"query":"cats"}'}]
            case HostedResult(call_id):
                block = {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}
                deltas = []
            case Think(text, seal):
                block = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": text}, {"type": "signature_delta", "signature": seal}]
            case Call(name, arguments, call_id):
                stop = "tool_use"
                block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                deltas = [{"type": "input_json_delta", "partial_json": arguments}]
        yield event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    end = {"stop_reason": stop, "stop_sequence": None}
    yield event("message_delta", delta=end, usage={"output_tokens": tokens.generated})
    yield event("message_stop")


_item_numbers = itertools.count(1)
"""OpenAI's items have ids that are unique over all answers."""

_WRITERS: Mapping[str, Callable[[Iterable[Piece], Tokens], Iterable[bytes]]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
}

_END_EVENTS = {"openai_chat": 3, "openai_responses": 1, "anthropic": 2}
"""Events at the end of an answer that say nothing but that it has ended."""
