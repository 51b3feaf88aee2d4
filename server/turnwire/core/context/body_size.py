"""About how much memory a request takes on its way to a model, told from the messages without writing its body."""

from itertools import chain

from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.texts import texts_of
from turnwire.domain.text import memory_bytes

_MARKUP_BYTES = 200
"""Around a message."""


def message_bytes(message: Message) -> int:
    """Returns about how much a message takes; its files are counted in base64."""
    size = _MARKUP_BYTES
    for part in message.parts:
        size += sum(map(memory_bytes, (*texts_of(part), part.provider_state)))
    return size + sum(file.size_bytes * 4 // 3 for file in chain(message.files(), message.result_files()))
