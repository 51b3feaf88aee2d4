"""Conversations to send to a provider, and the JSON bodies that the three APIs get for them."""

from datetime import UTC, datetime
from typing import Any

from tests.support.models.wire_requests import body_of
from turnwire.domain.conversation.messages import (
    Content,
    Message,
    MessageStatus,
    MessageType,
    ModelRun,
    Part,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.ports.provider import ProviderRequest
from turnwire.providers.anthropic.request import AnthropicWriter
from turnwire.providers.openai_chat.request import ChatWriter, dialect_of
from turnwire.providers.openai_responses.request import ResponsesWriter

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PNG = b"\x89PNG"


def message(kind: str, *contents: Content | Part, provider: str = "p", model: str = "m") -> Message:
    """Returns a message of these contents, an answer made by that provider and model."""
    parts = tuple(
        item if isinstance(item, Part) else Part(part_id=f"part{index}", index=index, content=item)
        for index, item in enumerate(contents)
    )
    run = ModelRun(provider_id=provider, model_requested=model) if kind == "assistant" else None
    return Message(
        message_id="x", session_id="s", type=MessageType(kind), status=MessageStatus.COMPLETE,
        created_at=NOW, updated_at=NOW, parts=parts, model_run=run,
    )  # fmt: skip


def part(content: Content, state: str | None = None, **more: Any) -> Part:
    """Returns a part with its provider state."""
    return Part(part_id="part0", index=0, content=content, provider_state=state, **more)


def request(*messages: Message, **more: Any) -> ProviderRequest:
    """Returns a neutral request."""
    return ProviderRequest(**{"model_id": "m", "system": "", "messages": messages, **more})


def chat(*messages: Message, base_url: str = "", reasoning: bool = False, **more: Any) -> dict[str, Any]:
    """Returns the body for Chat Completions."""
    return body_of(ChatWriter("p", dialect_of(base_url, True, reasoning)).prepare(request(*messages, **more)))


def responses(*messages: Message, **more: Any) -> dict[str, Any]:
    """Returns the body for Responses."""
    return body_of(ResponsesWriter("p", "").prepare(request(*messages, **more)))


def anthropic(*messages: Message, **more: Any) -> dict[str, Any]:
    """Returns the body for Anthropic."""
    return body_of(AnthropicWriter("p", 1000).prepare(request(*messages, **more)))


def without_breakpoints(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the messages without cache breakpoints."""
    for entry in body["messages"]:
        for block in entry["content"]:
            block.pop("cache_control", None)
    return list(body["messages"])


HELLO = message("user", Text("hello"))
DONE_CALL = ToolUse(name="f", call_id="c1", input_json='{"n":1.0}', status=ToolStatus.SUCCESS, output="ok")
LOOP = (HELLO, message("assistant", Text("let me"), DONE_CALL), message("user", Text("thanks")))
