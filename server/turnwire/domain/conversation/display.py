"""The display form of a message: what a user interface shows."""

from msgspec import Struct

from turnwire.domain.conversation.messages import File, Message, ToolUse


class DisplayToolCall(Struct, frozen=True):
    """A tool call with the id of its part."""

    part_id: str
    call: ToolUse


class DisplayMessage(Struct, frozen=True, kw_only=True):
    """A message by what is shown of it. Everything not listed here is read from `message`."""

    message: Message
    role: str
    """"user", "assistant" or "system"."""
    text_parts: tuple[str, ...]
    reasoning_parts: tuple[str, ...]
    tool_calls: tuple[DisplayToolCall, ...]
    files: tuple[File, ...]
