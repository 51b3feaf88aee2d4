"""The words of a text, in any script, in the form in which they are compared.

Case, accents, and compatibility forms (full-width letters, ligatures) are ignored. A run of a script that is written
without spaces (Chinese, Japanese, Korean, Thai ...) becomes its pairs of neighbouring characters, and its last
character alone: a text of any length is then found anywhere in a run, as a sequence of pairs, and one character as the
beginning of a pair. An emoji is a word.
"""

import re
import unicodedata
from functools import lru_cache
from operator import add
from typing import NamedTuple

VERSION = f"1 unicode {unicodedata.unidata_version}"
"""Identifies the rules by which texts have words. Raise the number whenever a text gets other words: the index is then
rebuilt."""

MAX_WORD_CHARACTERS = 64
"""Number of characters of a word that count; longer words are keys and encoded files."""

_RUN = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e50-\u0e59\u0e81-\u0edf"  # Thai, Lao
    "\u1000-\u1049\u1050-\u109d\u1780-\u17d3\u17e0-\u17e9"  # Myanmar, Khmer
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb"  # Hangul
    "\u3005-\u3007\u3041-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u3105-\u312f\u31a0-\u31bf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"  # Chinese
)
"""Scripts that are written without spaces between words, as a class of a regular expression. Hangul has spaces, but
none before an ending."""

_EMOJI = "\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001faff"

_IGNORED = (
    "\u00ad\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f"
    "\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u200c\u200d\u2060\u20d0-\u20ff"
    "\ufe00-\ufe0f\ufe20-\ufe2f\U000e0100-\U000e01ef"
)
"""Accents, vowel points, soft hyphens, joiners and variants. Vowel signs of other scripts are letters."""


def _marks() -> str:
    """Returns the marks that continue a word, as ranges of a class: `re` does not count them as letters."""
    found = []
    for begin, end in ((0x300, 0x1E94B), (0xE0100, 0xE01F0)):
        found += [chr(code) for code in range(begin, end) if unicodedata.category(chr(code)).startswith("M")]
    ranges: list[list[str]] = []
    for mark in found:
        if ranges and ord(mark) == ord(ranges[-1][1]) + 1:
            ranges[-1][1] = mark
        else:
            ranges.append([mark, mark])
    return "".join(f"{first}-{last}" for first, last in ranges)


@lru_cache(maxsize=1)
def _piece() -> re.Pattern[str]:
    """Returns the pattern that finds the pieces of a text. Its groups: a run, or anything else.

    Made on first use: looking at each mark of Unicode takes longer than importing most modules.
    """
    mark = f"{_marks()}\u00ad\u200c\u200d\u2060"
    letter = rf"[^\W_{_RUN}]"
    return re.compile(rf"([{_RUN}][{_RUN}{mark}]*)|({letter}+(?:[{mark}]+{letter}*)*|[{_EMOJI}])")


_ASCII_WORD = re.compile(rf"([a-z0-9]{{1,{MAX_WORD_CHARACTERS}}})[a-z0-9]*")
_STRIP = re.compile(f"[{_IGNORED}]+")
_ASCII_FOLDED = "".join(chr(code).lower() if chr(code).isalnum() else " " for code in range(128))
"""For `str.translate`, which takes a third of the time of a regular expression."""


class Word(NamedTuple):
    """A word and its position in its text."""

    text: str
    """The compared form; for a run, a pair of characters or its last one."""
    start: int
    end: int
    is_run: bool = False


class Piece(NamedTuple):
    """A word of a script with spaces, an emoji, or a run of a script without spaces, in the compared form."""

    text: str
    is_run: bool


def words(text: str) -> list[Word]:
    """Returns the words of a text in their order."""
    if text.isascii():
        return [Word(match[1], *match.span()) for match in _ASCII_WORD.finditer(text.lower())]
    found: list[Word] = []
    for match in _piece().finditer(text):
        start, end = match.span()
        for piece in _pieces_of(match.group()):
            if not piece.is_run:
                found.append(Word(piece.text, start, end))
            elif len(piece.text) == end - start:
                parts = enumerate(_run_words(piece.text), start)
                found += [Word(part, place, place + len(part), is_run=True) for place, part in parts]
            else:  # folding replaced characters, so their positions are unknown
                found += [Word(part, start, end, is_run=True) for part in _run_words(piece.text)]
    return found


def tokens(text: str) -> list[str]:
    """Returns the words of a text without their positions; the same as those of `words`, and much faster."""
    if text.isascii():
        found = text.translate(_ASCII_FOLDED).split()
        has_long = len(text) > MAX_WORD_CHARACTERS and max(map(len, found), default=0) > MAX_WORD_CHARACTERS
        return [word[:MAX_WORD_CHARACTERS] for word in found] if has_long else found
    found = []
    for run, word in _piece().findall(text):
        if word.isascii() and word:
            found.append(word[:MAX_WORD_CHARACTERS].lower())
            continue
        for piece in _pieces_of(run or word):
            if piece.is_run:
                found += _run_words(piece.text)
            else:
                found.append(piece.text)
    return found


def pieces(text: str) -> list[Piece]:
    """Returns the pieces of a text in their order."""
    return [piece for match in _piece().finditer(text) for piece in _pieces_of(match.group())]


def pairs(run: str) -> list[str]:
    """Returns the pairs of neighbouring characters of a run, without its last character alone."""
    return list(map(add, run, run[1:]))


def _run_words(run: str) -> list[str]:
    return [*pairs(run), run[-1]]


def _pieces_of(found: str) -> list[Piece]:
    """Returns a piece of a text in the compared form. A compatibility form can be several words."""
    if len(found) > MAX_WORD_CHARACTERS:
        return _folded_pieces(found)
    return _known_pieces(found)


def _folded_pieces(found: str) -> list[Piece]:
    if found.isascii():
        return [Piece(found[:MAX_WORD_CHARACTERS].lower(), is_run=False)]
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", found).casefold())
    folded = unicodedata.normalize("NFC", _STRIP.sub("", decomposed))
    return [
        Piece(run, is_run=True) if run else Piece(word[:MAX_WORD_CHARACTERS], is_run=False)
        for run, word in _piece().findall(folded)
    ]


_known_pieces = lru_cache(4096)(_folded_pieces)
"""The same words recur."""
