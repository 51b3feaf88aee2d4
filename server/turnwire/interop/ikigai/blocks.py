"""Messages and their blocks, of no provider: whoever asks a model later puts them into its form."""

import json
from collections.abc import Mapping

from msgspec import Struct

from turnwire.domain.conversation.messages import (
    Content,
    MessageType,
    ProviderContent,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)

REDACTED = "redacted_thinking"
"""`ProviderContent.kind` of thinking that only its provider can read."""


class Block(Struct, frozen=True):
    """One block of a message: what a part holds before it has an id."""

    content: Content
    seal: Mapping[str, object] = {}
    """What a provider needs to take the block back, such as a signature; never changed."""


class Draft(Struct, frozen=True, kw_only=True):
    """A message before it has an id and a session. Immutable, so a copy shares nothing that could change."""

    type: MessageType
    blocks: tuple[Block, ...]
    provider_metadata: Mapping[str, object] | None = None


def text(words: str) -> Block:
    """Returns a text block."""
    return Block(Text(words))


def tool_call(call_id: str, name: str, arguments: str) -> Block:
    """Returns a call; `arguments` is JSON text, which is kept word by word."""
    return Block(ToolUse(name=name, call_id=call_id, input_json=arguments))


def tool_result(tool_call_id: str, content: str, is_error: bool = False) -> Block:
    """Returns the result of the call with that id."""
    return Block(ToolResult(call_id=tool_call_id, output=content, is_error=is_error))


def thinking(words: str, signature: str = "") -> Block:
    """Returns readable thinking with its signature; "" when it has none and so is not sent to a model again."""
    return Block(Reasoning(words), {"signature": signature} if signature else {})


def redacted_thinking(data: str) -> Block:
    """Returns thinking that only its provider can read."""
    return Block(ProviderContent(REDACTED), {"block": {"type": REDACTED, "data": data}})


def user_message(*blocks: Block, provider_metadata: Mapping[str, object] | None = None) -> Draft:
    """Returns a message of a person."""
    return Draft(type=MessageType.USER, blocks=blocks, provider_metadata=provider_metadata)


def assistant_message(*blocks: Block, provider_metadata: Mapping[str, object] | None = None) -> Draft:
    """Returns a message of a model."""
    return Draft(type=MessageType.ASSISTANT, blocks=blocks, provider_metadata=provider_metadata)


def tool_message(*results: Block, provider_metadata: Mapping[str, object] | None = None) -> Draft:
    """Returns a message with results of tools."""
    return Draft(type=MessageType.TOOL_RESULT, blocks=results, provider_metadata=provider_metadata)


def metadata_json(draft: Draft) -> str:
    """Returns the metadata of a message as it is stored: a JSON object, "" for none."""
    if draft.provider_metadata is None:
        return ""
    return json.dumps({"provider_metadata": draft.provider_metadata}, ensure_ascii=False, separators=(",", ":"))
