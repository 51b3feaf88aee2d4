"""The senders of a user's messages, as a model reads them: pure functions of the conversation.

Names come from clients and are never verified. The part that is sent is one short line of letters, digits and a few
signs, without a colon: it cannot begin a line, close a quotation, or look like another speaker's name or the server's
words.
"""

import re
import unicodedata

from turnwire.domain.conversation.messages import Message, MessageType
from turnwire.domain.text import UNSEEN, folded

MAX_SPEAKER_CHARACTERS = 64
"""Maximum length of a speaker's name before a message."""

_READ_CHARACTERS = 4 * MAX_SPEAKER_CHARACTERS
"""Characters of a name that are read; the rest is ignored."""

_SIGNS = frozenset(".-'’_·@+&,")
"""Signs allowed in a name besides letters, their marks and digits. A colon is not one, because it ends the name, nor
are brackets, because they enclose the server's additions."""

_LIKE_A_COLON = "\u02d0"
"""A letter that looks like a colon."""

_ROLES = frozenset(
    (
        "system",
        "developer",
        "assistant",
        "user",
        "human",
        "tool",
        "function",
        "model",
        "ai",
        "host",
        "server",
        "unnamed",
    )
)
"""Words by which a model may mistake a person for something else."""

_UNNAMED = "unnamed"


class Speakers:
    """The senders of a conversation's user messages, in the order in which they appear.

    What it knows of a message depends only on that message and those before it, so it stays valid while the
    conversation grows. Each message is added once.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self._places: list[int] = []
        """Indexes of the messages that introduced a new name."""
        self._senders: dict[tuple[str, str], None] = {}
        self._names: dict[tuple[str, str], str] = {}
        """Names by the sender and the sender's name that the client gave."""
        self._owners: dict[str, tuple[str, str]] = {}
        """The owner of each name, by its folded form."""

    @property
    def are_several(self) -> bool:
        """Whether more than one sender is known. A message without a sender has no speaker."""
        return len(self._senders) > 1

    def knows(self, message: Message) -> bool:
        """Returns whether a message introduces no new name."""
        is_said = message.type is MessageType.USER and message.compaction is None
        return not is_said or (message.sender, message.sender_name) in self._names

    def are_of(self, length: int) -> bool:
        """Returns whether everything known comes from the first `length` messages."""
        return not self._places or self._places[-1] < length

    def add(self, at: int, message: Message) -> None:
        """Takes the next message and its index."""
        if self.knows(message):
            return
        self._places.append(at)
        given = (message.sender, message.sender_name)
        name = sent_name(message.sender_name) or sent_name(message.sender)
        sender = (message.sender, "" if message.sender else message.sender_name)
        if any(sender):
            self._senders.setdefault(sender)
        name = _apart_from_roles(name) if name else _UNNAMED
        if self._owners.setdefault(folded(name), sender) != sender:
            name = f"{name} ({len(self._names) + 1})"  # no other name ends like this, because names have no brackets
            self._owners[folded(name)] = sender
        self._names[given] = name

    def name_of(self, message: Message) -> str:
        """Returns the name of the sender of a user message that was added; no other sender has it."""
        return self._names[message.sender, message.sender_name]


def sent_name(given: str) -> str:
    """Returns the part of a name that is sent; "" when no part may be."""
    text = unicodedata.normalize("NFKC", UNSEEN.sub("", given[:_READ_CHARACTERS]))
    kept = "".join(map(_sent_character, UNSEEN.sub("", text)))
    words = " ".join(kept.split())[:MAX_SPEAKER_CHARACTERS].rstrip()
    return words if any(map(str.isalnum, words)) and not unicodedata.category(words[0]).startswith("M") else ""


def _sent_character(char: str) -> str:
    kind = unicodedata.category(char)
    if kind == "Cf":  # between letters of one word: a joiner, or a change of direction
        return ""
    return char if (kind[0] in "LMN" or char in _SIGNS) and char != _LIKE_A_COLON else " "


def _apart_from_roles(name: str) -> str:
    """Returns the name; marks it as a user's if one of its words is a role."""
    return f"{name} (user)" if _ROLES & set(re.findall(r"[^\W_]+", folded(name))) else name
