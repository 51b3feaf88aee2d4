"""Makes text valid UTF-8, so that it can be stored and sent; makes text fit for one line, or for comparison."""

import base64
import re
import sys
import unicodedata
from collections.abc import Iterator

TEXT_CHARACTERS = 2**16
"""Characters of a text that one call encodes or counts. The call holds the interpreter lock for less than half a
millisecond."""

_BASE64_CHARACTERS = 256 * 1024
"""Characters decoded at once, a multiple of 4: other threads wait for one such call, which takes well under a
millisecond."""

UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Invisible letters and marks."""

_JOINER = "\u200d"
"""Joins several emoji into one."""
_FLAG_LETTERS = "".join(map(chr, range(0x1F1E6, 0x1F200)))

_BARE_BYTES = sys.getsizeof("")

WIDEST_BYTES = 4
"""Maximum memory for a byte of UTF-8: one emoji makes each character of its text as wide as itself."""


def pieces_of(text: str) -> Iterator[str]:
    """Yields a long text in pieces, in order; none for an empty text."""
    for start in range(0, len(text), TEXT_CHARACTERS):
        yield text[start : start + TEXT_CHARACTERS]


def utf8_bytes(text: str) -> int:
    """Returns the length of the text in UTF-8 bytes; constant time for ASCII."""
    return len(text) if text.isascii() else len(text.encode())


def text_bytes(text: str | None) -> int:
    """Returns the approximate UTF-8 bytes of a text, in constant time: three per character unless all are ASCII."""
    if not text:
        return 0
    return len(text) if text.isascii() else 3 * len(text)


def memory_bytes(text: str | None) -> int:
    """Returns the memory of the characters of a text, in constant time: up to four bytes each, as for the widest."""
    return sys.getsizeof(text) - _BARE_BYTES if text else 0


def join_surrogates(text: str) -> str:
    """Returns the text with surrogate pairs joined and lone halves replaced by U+FFFD, so that it can be encoded."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def one_line(text: str, max_chars: int) -> str:
    """Returns foreign text for a log line or a label: cut, with "?" in place of what cannot be printed."""
    cut = text[:max_chars]
    return cut if cut.isprintable() else "".join(char if char.isprintable() else "?" for char in cut)


def shortened(line: str, max_characters: int) -> str:
    """Returns a line, or its beginning with an ellipsis: cut after a word, or between two characters of a long word.

    Several code points that are shown as one character, such as a letter with its marks or a joined emoji, stay
    together.
    """
    if len(line) <= max_characters:
        return line
    whole = line[:max_characters].rpartition(" ")[0]
    if len(whole) <= max_characters // 2:
        ends = range(max_characters - 1, max_characters // 2, -1)
        whole = line[: next((end for end in ends if not _is_one(line, end)), ends[0])]
    return f"{whole.rstrip()}…"


def _is_one(line: str, at: int) -> bool:
    """Returns whether the code points before and after a position are shown as one character."""
    if _JOINER in line[at - 1 : at + 1] or unicodedata.category(line[at]).startswith("M"):
        return True
    if line[at] in _FLAG_LETTERS:  # two of them are one flag
        return (at - len(line[:at].rstrip(_FLAG_LETTERS))) % 2 == 1
    return "\U0001f3fb" <= line[at] <= "\U0001f3ff"  # a skin tone


def folded(text: str) -> str:
    """Returns the form of a text that ignores case and the different forms of a character."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def decoded_base64(text: str, start: int = 0) -> bytes:
    """Returns the bytes of standard base64 from a position on, decoded in pieces, between which other threads run.

    Raises:
        ValueError: the text has other characters, or its padding is wrong.
    """
    pieces = []
    for first in range(start, len(text), _BASE64_CHARACTERS):
        piece = text[first : first + _BASE64_CHARACTERS]
        if piece.endswith("=") and first + _BASE64_CHARACTERS < len(text):
            raise ValueError("padding before the end")
        pieces.append(base64.b64decode(piece, validate=True))
    return b"".join(pieces)
