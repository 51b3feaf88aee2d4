"""The query language: words, "phrases", beginnings*, -without, and OR.

    plan trip            both words, anywhere in the text
    "summer trip"        these words next to each other
    trav*                words that begin so; in a phrase the last one: "summer tr*"
    plan -work           the first without the second
    plan trip OR travel  the first word, and one of the others: OR joins the terms next to it

Every other character divides words, so no syntax is wrong: a text either has a term to search for or has not.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from turnwire.domain.errors import InvalidRequest
from turnwire.domain.searching.words import Word, pairs, pieces

MAX_QUERY_CHARACTERS = 1024
"""Maximum length of the text of a search."""
MAX_QUERY_WORDS = 64
"""Maximum words in the text of a search. Pairs of characters count as words in scripts without spaces."""

_TERM = re.compile(r'(?P<minus>-?)(?:"(?P<phrase>[^"]*)"?(?P<after>\*?)|(?P<bare>[^\s"]+))')


class Term(Struct, frozen=True):
    """Consecutive words of a text."""

    words: tuple[str, ...]
    is_prefix: bool = False
    """Whether the last word may continue."""

    def spans(self, text: list[Word]) -> Iterator[tuple[int, int]]:
        """Yields where the term occurs in a text, given as its words."""
        first, *others = self.words
        for index, begin in enumerate(text):
            if begin.text != first and (others or not self.is_prefix or not begin.text.startswith(first)):
                continue
            if others and not self._is_rest([word.text for word in text[index + 1 : index + 1 + len(others)]], others):
                continue
            last = text[index + len(others)]
            is_exact = last.end - last.start == len(last.text)
            # of a pair found by its first character, only that character is the match
            is_half = last.is_run and is_exact and self.is_prefix and len(self.words[-1]) < len(last.text)
            yield begin.start, last.end - is_half

    def count(self, text: list[str]) -> int:
        """Returns how often the term occurs in a text, given as its words without positions."""
        first, *others = self.words
        if not others:
            return sum(word.startswith(first) for word in text) if self.is_prefix else text.count(first)
        found, at = 0, -1
        for _ in range(text.count(first)):
            at = text.index(first, at + 1)
            found += self._is_rest(text[at + 1 : at + 1 + len(others)], others)
        return found

    def _is_rest(self, behind: list[str], others: list[str]) -> bool:
        if self.is_prefix and len(behind) == len(others) and behind[-1].startswith(others[-1]):
            return behind[:-1] == others[:-1]
        return behind == others


class Query(Struct, frozen=True):
    """The terms of a search."""

    groups: tuple[tuple[Term, ...], ...]
    """A hit has one term of each group."""
    without: tuple[Term, ...] = ()
    """A hit has none of these."""

    def terms(self) -> tuple[Term, ...]:
        """Returns the terms that make a text a hit."""
        return tuple(term for group in self.groups for term in group)


def parse_query(text: str) -> Query:
    """Returns the query that a text means.

    Raises:
        InvalidRequest: it has no word to search for, or is too long. Names `query`.
    """
    if len(text) > MAX_QUERY_CHARACTERS:
        raise InvalidRequest.of(
            "query",
            f"is longer than {MAX_QUERY_CHARACTERS} characters",
            "TOO_LONG",
            limitValue=str(MAX_QUERY_CHARACTERS),
        )
    groups: list[list[Term]] = []
    without: list[Term] = []
    joins = False
    for found in _TERM.finditer(text):
        if found["bare"] == "OR" and not found["minus"]:
            joins = bool(groups)
            continue
        phrase = found["phrase"] if found["bare"] is None else found["bare"]
        term = _term(phrase, is_prefix=phrase.endswith("*") or bool(found["after"]))
        if term is None:
            continue
        if found["minus"]:
            without.append(term)
        elif joins:
            groups[-1].append(term)
        else:
            groups.append([term])
        joins = False
    if not groups:
        raise InvalidRequest.of("query", "has no word to look for")
    if sum(len(term.words) for term in (*without, *(term for group in groups for term in group))) > MAX_QUERY_WORDS:
        raise InvalidRequest.of(
            "query", f"has more than {MAX_QUERY_WORDS} words", "TOO_LONG", limitValue=str(MAX_QUERY_WORDS)
        )
    return Query(tuple(map(tuple, groups)), tuple(without))


def _term(phrase: str, *, is_prefix: bool) -> Term | None:
    """Returns the term of a phrase; None when no character of it is part of a word.

    A run at the end of the phrase may continue in the text, one before another word may not.
    """
    found: list[str] = []
    parts = pieces(phrase)
    for place, piece in enumerate(parts):
        if not piece.is_run:
            found.append(piece.text)
            continue
        found += pairs(piece.text)
        is_last = place == len(parts) - 1
        if not is_last:
            found.append(piece.text[-1])
        elif len(piece.text) == 1:
            return Term((*found, piece.text), is_prefix=True)
        else:
            return Term(tuple(found))
    return Term(tuple(found), is_prefix) if found else None
