"""Text of models, tools and servers as a terminal may show it."""

import re

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, which steer a terminal, and those that reorder text, by which a person reads other text.

So are halves of surrogate pairs, which no terminal takes: names of files have them for bytes that are no UTF-8."""


def visible(text: str) -> str:
    """Returns the text without control characters other than line feeds and tabs, and without reordering
    ones and halves of pairs.
    """
    return _UNSEEN.sub("", text)


def one_line(text: str) -> str:
    """Returns a text without control characters and line feeds."""
    return " ".join(visible(text).split())
