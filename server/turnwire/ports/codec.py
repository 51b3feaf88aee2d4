"""Encodes what clients read. The bytes are made once, then stored, kept in memory and sent unchanged.

A frame is a field tag, a length and the bytes of one message, so joined frames form a message with a repeated field:
pages and batches are assembled without parsing. The core and the store treat frames as opaque.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from turnwire.domain.conversation.events import Event
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import Turn


class ShownPart(NamedTuple):
    """What a part adds to a display form, without its texts (`domain.conversation.texts`)."""

    before: bytes = b""
    """Goes before the text."""
    between: bytes = b""
    """Goes between the text and the output of a tool call; empty when there is no output."""


class DisplayForm(NamedTuple):
    """The display form of a message without the texts of its parts.

    The frame is `head`, and then of each part: `before`, its text in UTF-8, `between`, its output in UTF-8.
    """

    head: bytes
    """Empty when the message has no display form of its own."""
    parts: tuple[ShownPart, ...]
    size_bytes: int
    """Of the whole frame."""


class Subject(NamedTuple):
    """What a short event leaves out: a message, one of its parts, or a turn; no id when nothing."""

    message_id: str = ""
    part_index: int | None = None
    """The only part that is needed; None for none, or all."""
    has_parts: bool = False
    """Whether all parts of the message are needed."""
    turn_id: str = ""


class Codec(Protocol):
    """Makes frames and reads them. Pure and safe to call from any thread."""

    def encode_event(self, event: Event) -> bytes:
        """Returns the event as one frame of a batch of events."""
        ...

    def shorten_event(self, event: Event) -> bytes:
        """Returns the durable event as it is stored: without its session and what its subject tells.

        Two short events are not to be joined, and never begin as a frame does.
        """
        ...

    def subject_of(self, short: bytes) -> Subject:
        """Returns what a short event leaves out. Raises ValueError when it is not one."""
        ...

    def fill_event(self, short: bytes, session_id: str, found: Message | Turn | None) -> bytes:
        """Returns a short event as a frame, which shows its subject as it is now.

        Args:
            short: What `shorten_event` returned.
            session_id: Its session.
            found: Its subject: a message with the parts that `Subject` names, or a turn. None when that is gone.

        Returns:
            b"" when nothing can be told without the subject.

        Raises:
            ValueError: it is no short event.
        """
        ...

    def decode_events(self, frames: bytes) -> Sequence[Event]:
        """Returns the events of joined frames, all about messages, parts, tool calls or permission requests.

        Only what clients are shown is there: no state that only a provider understands, no `Message.sent_context`, no
        `PermissionRequest.part_index` (-1), and times of tool calls and permission requests in milliseconds.

        Raises:
            ValueError: an event is of another kind.
        """
        ...

    def encode_resume_token(self, token: str) -> bytes:
        """Returns bytes that, joined to the frames of a batch of events, give the batch its resume token."""
        ...

    def encode_display(self, message: Message) -> bytes:
        """Returns the message's display form as one frame of a list of messages.

        Empty bytes when the message has no display form of its own.
        """
        ...

    def display_form(self, message: Message, before: Mapping[int, int] = {}) -> DisplayForm:
        """Returns the display form in pieces: joined with the texts, they are what `encode_display` returns.

        Args:
            message: The message.
            before: Of parts whose text, or arguments, the message has only the end of: how many bytes come before it.
        """
        ...
