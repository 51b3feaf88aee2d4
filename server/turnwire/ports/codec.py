"""Encodes what clients read. Bytes are made when a client watches or reads, kept in memory and sent unchanged.

A frame is the field tag, the length and the bytes of one message, so joined frames form a message with a repeated
field: pages and batches are assembled without parsing. The core and the store treat frames as opaque.
"""

from typing import Protocol

from turnwire.domain.conversation.events import Event
from turnwire.domain.conversation.messages import Message


class Codec(Protocol):
    """Makes frames. Pure and safe to call from any thread."""

    def encode_event(self, event: Event) -> bytes:
        """Returns the event as one frame of a batch of events."""
        ...

    def encode_resume_token(self, token: str) -> bytes:
        """Returns bytes that, appended to the frames of a batch of events, set the resume token of the batch."""
        ...

    def encode_display(self, message: Message) -> bytes:
        """Returns the message's display form as one frame of a list of messages.

        Empty bytes when the message has no display form of its own.
        """
        ...
