"""The display form of a message for user interfaces: a pure function of the message."""

from msgspec import Struct

from turnwire.domain.conversation.messages import (
    File,
    Message,
    MessageType,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
)

_ROLES = {MessageType.USER: "user", MessageType.ASSISTANT: "assistant"}


class DisplayToolCall(Struct, frozen=True):
    """A tool call and the id of its part."""

    part_id: str
    call: ToolUse


class DisplayMessage(Struct, frozen=True, kw_only=True):
    """A message for display. Everything not listed here is read from `message`."""

    message: Message
    role: str
    """"user", "assistant" or "system"."""
    text_parts: tuple[str, ...]
    reasoning_parts: tuple[str, ...]
    tool_calls: tuple[DisplayToolCall, ...]
    files: tuple[File, ...]


def is_shown(message: Message) -> bool:
    """Returns whether a message has a display form: a tool result that is shown with its call has none."""
    return message.type is not MessageType.TOOL_RESULT or not message.answers_message_id


def project(message: Message) -> DisplayMessage | None:
    """Returns the display form; None for a tool result that is shown with its call (it names the calling message)."""
    if not is_shown(message):
        return None
    contents = [part.content for part in message.parts]
    return DisplayMessage(
        message=message,
        role=role_of(message.type),
        text_parts=tuple(_shown_text(c) for c in contents if isinstance(c, Text | Refusal | ToolResult)),
        reasoning_parts=tuple(c.text for c in contents if isinstance(c, Reasoning) and c.text),
        tool_calls=tuple(DisplayToolCall(part.part_id, call) for part, call in message.tool_calls()),
        files=tuple(c for c in contents if isinstance(c, File)),
    )


def role_of(message_type: MessageType) -> str:
    """Returns the role of the speaker in messages of this type: "user", "assistant" or "system"."""
    return _ROLES.get(message_type, "system")


def _shown_text(content: Text | Refusal | ToolResult) -> str:
    return content.output if isinstance(content, ToolResult) else content.text
