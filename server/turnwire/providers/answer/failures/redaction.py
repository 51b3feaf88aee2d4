"""Redacts keys in foreign text, even when they come back changed: with a character missing or a line break inside."""

import re

_KEY_LIKE = re.compile(r"(?i)\b(?:bearer\s{1,8}\S+|(?:sk|pk|rk|gsk|xai|key|api|aiza)[-_][\w*.\-]{6,}|AIza[\w\-]{10,})")

_KEY = "[key]"

_RUN_CHARS = 6
"""Minimum length of a run of characters of a key that is redacted. Runs of 13 or more may differ in one character."""

_ENDS_OF_A_KEY = " \t\r\n\"'`,;()<>[]{}"
"""Characters that delimit a key; a part of a key is redacted up to the next one."""


def without_keys(text: str, secrets: tuple[str, ...]) -> str:
    """Returns the text with "[key]" in place of each secret, of large parts of one, and of what looks like a key.

    Takes time in proportion to the text; truncate it before.

    Args:
        text: Foreign text.
        secrets: An empty one is ignored.
    """
    for secret in secrets:
        if secret:
            text = _without_runs(text.replace(secret, _KEY), secret)
    return _KEY_LIKE.sub(_KEY, text)


def _without_runs(text: str, secret: str) -> str:
    """Redacts every run of at least `_RUN_CHARS` characters of the secret, ignoring white space between them."""
    if len(secret) < 2 * _RUN_CHARS:
        return text
    runs = {secret[start : start + _RUN_CHARS] for start in range(len(secret) - _RUN_CHARS + 1)}
    places = [place for place, char in enumerate(text) if char.isprintable() and char != " "]
    dense = "".join(text[place] for place in places)
    found = [start for start in range(len(dense) - _RUN_CHARS + 1) if dense[start : start + _RUN_CHARS] in runs]
    pieces, end = [], 0
    for start in found:
        first, last = places[start], places[start + _RUN_CHARS - 1]
        if last < end:
            continue
        if first >= end:
            while first > end and text[first - 1] not in _ENDS_OF_A_KEY:
                first -= 1
            pieces += [text[end:first], _KEY]
        end = last + 1
        while end < len(text) and text[end] not in _ENDS_OF_A_KEY:
            end += 1
    return "".join([*pieces, text[end:]])
