"""What a model is sent: a pure function of the conversation and the turn's settings.

Stored messages never change; what must not be sent is left out here. Host messages never pass.
"""

from collections.abc import Iterable

import msgspec

from turnwire.domain.messages import (
    Message,
    MessageStatus,
    MessageType,
    Part,
    PartStatus,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.sessions import ToolDefinition, Turn
from turnwire.ports.provider import ProviderRequest


def assemble(
    history: Iterable[Message], turn: Turn, system: str, tools: tuple[ToolDefinition, ...] | None = None
) -> ProviderRequest:
    """Returns the request for the next step of a turn, without the bytes of its files.

    Args:
        history: The session's messages in order, without queued ones.
        turn: The turn that runs.
        system: System prompt; "" for none.
        tools: What the model may call; None for the client's tools alone.
    """
    messages = tuple(filter(None, map(_sendable, _with_results(history))))
    return ProviderRequest(
        model_id=turn.model.model_id,
        system=system,
        messages=messages,
        tools=turn.tools if tools is None else tools,
        options=turn.options,
    )


def file_hashes(request: ProviderRequest) -> frozenset[str]:
    """Returns the hashes of all files that the request names."""
    return frozenset(file.sha256 for message in request.messages for file in message.files())


def _with_results(history: Iterable[Message]) -> list[Message]:
    """Drops tool results that stand with their call already."""
    return [m for m in history if not (m.type is MessageType.TOOL_RESULT and m.parent_id)]


def _sendable(message: Message) -> Message | None:
    """Returns the message with only the parts that may be sent; None when nothing is left."""
    if message.type is MessageType.HOST or message.status in (MessageStatus.QUEUED, MessageStatus.STREAMING):
        return None
    orderly = message.status is MessageStatus.COMPLETE
    parts = tuple(part for part in message.parts if _part_is_sendable(part, orderly))
    return msgspec.structs.replace(message, parts=parts) if parts else None


def _part_is_sendable(part: Part, orderly: bool) -> bool:
    match part.content:
        case Text(text) | Refusal(text):
            return not text.isspace() and text != ""
        case ToolUse(status=status):
            # a cut call was never complete, so no provider would take it back
            return status in (ToolStatus.SUCCESS, ToolStatus.ERROR)
        case Reasoning() | ProviderContent():
            # after an interruption the provider may not have sealed its reasoning, and would refuse it
            return orderly and part.status is PartStatus.COMPLETE and part.provider_state is not None
        case _:
            return True
