"""The title that a session gets from its first message: its first words. Pure."""

import unicodedata
from collections.abc import Iterable

from turnwire.domain.conversation.messages import File, Message, MessageType, Text
from turnwire.domain.text import UNSEEN, shortened

MAX_FIRST_WORDS_CHARACTERS = 60
"""Maximum length of a title, as for one that a model writes: a line in a list."""

_READ_CHARACTERS = 16 * MAX_FIRST_WORDS_CHARACTERS
"""Characters of each text that are read: a message may have megabytes."""

_JOINERS = "\u200c\u200d"
"""They change how letters and emoji are shown; no other format character is kept."""
_BLANK_PATTERN = "\u2800"


def first_words(message: Message) -> str:
    """Returns the beginning of a user's message as one line, or the name of its first file that has one.

    It has at most `MAX_FIRST_WORDS_CHARACTERS` characters, and none that controls how others are shown. "" when the
    message has no visible words, and for messages of other types.
    """
    if message.type is not MessageType.USER:
        return ""
    contents = [part.content for part in message.parts]
    words = _line(content.text for content in contents if isinstance(content, Text))
    names = (_line((content.filename,)) for content in contents if isinstance(content, File))
    return words or next(filter(None, names), "")


def _line(texts: Iterable[str]) -> str:
    line = ""
    for text in texts:
        read = text.lstrip()[:_READ_CHARACTERS]
        line += " " + (read if read.isprintable() else "".join(map(_kept, read)))
        line = " ".join(line.split())
        if len(line) > MAX_FIRST_WORDS_CHARACTERS:
            break
    is_seen = bool(UNSEEN.sub("", line).strip(f"{_JOINERS}{_BLANK_PATTERN} "))
    return shortened(line.strip(f"{_JOINERS} "), MAX_FIRST_WORDS_CHARACTERS) if is_seen else ""


def _kept(char: str) -> str:
    """Returns a character; "" or a space in place of one that controls others."""
    if char in _JOINERS:
        return char
    return {"Cc": " ", "Cf": ""}.get(unicodedata.category(char), char)
