"""Prompts and answers as attributes, in the JSON forms of the conventions. Used only where the configuration asks."""

from collections.abc import Iterator
from typing import Any

import msgspec

from turnwire.domain.conversation.messages import (
    File,
    FinishReason,
    Message,
    MessageType,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
)
from turnwire.ports.provider import ProviderRequest
from turnwire.ports.telemetry.tracing import Attributes

MAX_TEXT_CHARS = 8_192
"""Longest text in an attribute; the rest of it is left out."""

MAX_ATTRIBUTE_BYTES = 65_536
"""Longest list of messages in an attribute; older ones are left out. Spans wait in memory until they are sent."""

_ROLES = {
    MessageType.USER: "user",
    MessageType.ASSISTANT: "assistant",
    MessageType.SYSTEM: "system",
    MessageType.TOOL_RESULT: "tool",
}


def input_content(request: ProviderRequest) -> Attributes:
    """Returns the system prompt and the newest messages that fit. Files are named, not included."""
    system = [{"type": "text", "content": shortened(request.system)}] if request.system else []
    return {
        "gen_ai.system_instructions": _json(system) if system else None,
        "gen_ai.input.messages": _newest(request.messages),
    }


def output_content(answer: Message, reason: FinishReason) -> Attributes:
    """Returns the answer."""
    [said, *_] = _forms(answer)
    return {"gen_ai.output.messages": _json([{**said, "finish_reason": str(reason)}])}


def shortened(text: str) -> str:
    """Returns the beginning of a text that is longer than `MAX_TEXT_CHARS`."""
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}... [{len(text)} characters]"


def _newest(messages: tuple[Message, ...]) -> str:
    kept: list[str] = []
    room = MAX_ATTRIBUTE_BYTES
    for message in reversed(messages):
        forms = [_json(form) for form in _forms(message)]
        room -= sum(len(form.encode()) + 1 for form in forms)
        if room < 0:
            break
        kept[:0] = forms
    return f"[{','.join(kept)}]"


def _forms(message: Message) -> Iterator[dict[str, Any]]:
    """Yields a message, then the results of its calls as a message of the tools, as models are sent them."""
    parts = [form for part in message.parts if (form := _part(part)) is not None]
    yield {"role": _ROLES.get(message.type, str(message.type)), "parts": parts}
    results = [
        {"type": "tool_call_response", "id": call.call_id, "response": shortened(call.output or call.error or "")}
        for _, call in message.tool_calls()
        if call.status.settled
    ]
    if results:
        yield {"role": "tool", "parts": results}


def _part(part: Part) -> dict[str, Any] | None:
    match part.content:
        case Text(text) | Refusal(text):
            return {"type": "text", "content": shortened(text)}
        case Reasoning(text):
            return {"type": "reasoning", "content": shortened(text)}
        case ToolUse() as call:
            arguments = shortened(call.input_json)
            return {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": arguments}
        case ToolResult() as result:
            return {"type": "tool_call_response", "id": result.call_id, "response": shortened(result.output)}
        case File() as file:
            return {"type": "file", "modality": file.mime.partition("/")[0], "mime_type": file.mime, "file_id": ""}
        case _:
            return None


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
