"""The stored conversation at one moment."""

from msgspec import Struct

from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn


class Conversation(Struct, frozen=True):
    """A session with its conversation, as of one moment."""

    session: Session
    messages: tuple[Message, ...]
    """In order, without queued ones."""
    turns: tuple[Turn, ...]
    """Without queued ones; without their tools and system prompts, which may be large."""


class AlternativesOf(Struct, frozen=True):
    """Names alternatives by one of them, or by the message before them."""

    message_id: str = ""
    """One of them; "" when `previous_message_id` names them."""
    previous_message_id: str = ""
    """The message before them; "" for those that begin the conversation."""


class StoredQuestion(Struct, frozen=True):
    """A message that may be answered, as of one moment."""

    message: Message
    behind: Message | None
    """The next message; None if it is the last of the conversation."""
    has_turn: bool
    """True if a turn has answered it, or will; false if that turn ended without an answer."""
    sequence: int
    """The session's head."""
