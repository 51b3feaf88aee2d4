"""Approximate memory of messages, found without encoding them."""

from itertools import chain

from turnwire.domain.conversation.messages import Message, ToolUse, texts_of
from turnwire.domain.errors import ConversationTooLarge
from turnwire.domain.text import memory_bytes

MAX_CONVERSATION_BYTES = 256 * 2**20
"""Maximum memory of one conversation that is read for a request to a model or for a copy: more than twice the size of
the largest context windows, even in many small messages. Lists are read in pages, and archives written message by
message."""

BARE_BYTES = 800
"""Memory charged for a message with one part, without its texts."""

_FURTHER_PART_BYTES = 250
"""Memory charged for each further part, without its texts."""

_MARKUP_BYTES = 200
"""Bytes around a message in the body of a request."""


def message_bytes(message: Message) -> int:
    """Returns the approximate memory of a message in bytes."""
    size = BARE_BYTES + _FURTHER_PART_BYTES * max(len(message.parts) - 1, 0)
    for part in message.parts:
        error = part.content.error if isinstance(part.content, ToolUse) else None
        size += sum(map(memory_bytes, (*texts_of(part), error, part.provider_state)))
    return size


def check_conversation(size_bytes: int) -> None:
    """Raises ConversationTooLarge when a conversation of `size_bytes` is too large to be read."""
    if size_bytes > MAX_CONVERSATION_BYTES:
        raise ConversationTooLarge(size_bytes, MAX_CONVERSATION_BYTES)


def body_bytes(message: Message) -> int:
    """Returns the approximate size of a message in the body of a request; its files are counted in base64."""
    size = _MARKUP_BYTES
    for part in message.parts:
        size += sum(map(memory_bytes, (*texts_of(part), part.provider_state)))
    return size + sum(file.size_bytes * 4 // 3 for file in chain(message.files(), message.result_files()))
