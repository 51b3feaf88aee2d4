"""About how much memory messages take."""

from itertools import chain

from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.texts import texts_of
from turnwire.domain.text import memory_bytes

_MARKUP_BYTES = 200
"""Around a message."""


def body_bytes(message: Message) -> int:
    """Returns about how much a message takes in the body of a request; its files are counted in base64."""
    size = _MARKUP_BYTES
    for part in message.parts:
        size += sum(map(memory_bytes, (*texts_of(part), part.provider_state)))
    return size + sum(file.size_bytes * 4 // 3 for file in chain(message.files(), message.result_files()))
