"""Snippets: the part of a text that shows best why it is a hit."""

import re
from collections.abc import Iterator

from msgspec import Struct

from turnwire.domain.searching.queries import Query
from turnwire.domain.searching.words import Word, words

SNIPPET_CHARACTERS = 200
"""Approximate length; a word or a match at its edge is not cut."""

_BEFORE = 40
_CUT = "…"
_SPACES = re.compile(r"\s+")

_Match = tuple[int, int, int]
"""Beginning and end of a term in a text, and its number."""


class SnippetPiece(Struct, frozen=True):
    """Some text of a snippet."""

    text: str
    is_match: bool = False


def snippet(text: str, query: Query) -> tuple[SnippetPiece, ...]:
    """Returns the part of a text that has the most of the query's terms, the first of several.

    White space becomes single spaces; "…" marks where the text continues. Joined, the pieces are the snippet.
    """
    found = words(text)
    matches = sorted((*span, number) for number, term in enumerate(query.terms()) for span in term.spans(found))
    start, end = _window(text, found, matches)
    pieces = [SnippetPiece(_CUT)] if start else []
    at = start
    for begin, stop in _joined(matches, start, end):
        pieces += [SnippetPiece(text[at:begin]), SnippetPiece(text[begin:stop], is_match=True)]
        at = stop
    pieces.append(SnippetPiece(text[at:end]))
    if end < len(text):
        pieces.append(SnippetPiece(_CUT))
    return _merged(pieces)


def _window(text: str, found: list[Word], matches: list[_Match]) -> tuple[int, int]:
    """Returns where the snippet begins and ends."""
    begin = matches[_best(matches)][0] if matches else 0
    least = max(0, begin - _BEFORE)
    if least:
        least = min((word.start for word in found if least <= word.start <= begin), default=begin)
    most = least + SNIPPET_CHARACTERS
    if most >= len(text):
        return least, len(text)
    cut = max((word.end for word in found if word.end <= most), default=most)
    covered = max((stop for start, stop, _ in matches if start <= begin), default=0)
    return least, max(cut, min(covered, begin + SNIPPET_CHARACTERS), least + 1)


def _best(matches: list[_Match]) -> int:
    """Returns the index of the match after which the most different terms follow."""
    best, most, end = 0, 0, 0
    counts: dict[int, int] = {}
    for place, (begin, _, number) in enumerate(matches):
        while end < len(matches) and matches[end][1] - begin <= SNIPPET_CHARACTERS - _BEFORE:
            counts[matches[end][2]] = counts.get(matches[end][2], 0) + 1
            end += 1
        if len(counts) > most:
            best, most = place, len(counts)
        if end > place:
            counts[number] -= 1
            if not counts[number]:
                del counts[number]
        else:
            end = place + 1
    return best


def _joined(matches: list[_Match], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the marked ranges of the snippet; those that touch are one."""
    at: tuple[int, int] | None = None
    for begin, stop, _ in matches:
        if begin < start or begin >= end:
            continue
        if at is not None and begin <= at[1]:
            at = at[0], max(at[1], min(stop, end))
            continue
        if at is not None:
            yield at
        at = begin, min(stop, end)
    if at is not None:
        yield at


def _merged(pieces: list[SnippetPiece]) -> tuple[SnippetPiece, ...]:
    merged: list[SnippetPiece] = []
    for piece in pieces:
        shown = _SPACES.sub(" ", piece.text)
        if merged and merged[-1].text.endswith(" "):
            shown = shown.removeprefix(" ")
        if not shown:
            continue
        if merged and merged[-1].is_match == piece.is_match:
            merged[-1] = SnippetPiece(merged[-1].text + shown, piece.is_match)
        else:
            merged.append(SnippetPiece(shown, piece.is_match))
    return tuple(merged)
