"""Regular expressions with bounded cost: Python's engine backtracks and cannot be interrupted."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

MAX_COST = 4_000_000
"""Most characters that one match compares: some ten milliseconds, in which nothing else runs."""

MAX_PATTERN_CHARS = 1000
"""Of a pattern that is tried: compiling a longer one would take long."""

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]?|\{\d*,?\d*\}|\(\?(?:<?[=!]|:)?|.", re.DOTALL)
_EXTENSION = "(?"
"""The token of what ECMAScript does not have: comments and flags, behind which a pattern reads otherwise than here, and
names."""

_MEMBER = re.compile(r"(\\.|.)(?:-(\\.|[^\]]))?", re.DOTALL)
"""Of a set: a character, or two with a hyphen between them."""
_RESERVED = frozenset("[-&~|")
"""What Python may one day read as an operation on sets, of which it warns."""

_CHARS_IN_A_STEP, _WIDE_SET_STEPS = 20, 200
"""Of compiling. Sets of characters beyond Latin-1 become tables."""

_WIDE = re.compile(r"\\[uUN]|[^\0-\xff]")
_COUNTS = re.compile(r"\{(\d*)(,?)(\d*)\}")


class Pattern(NamedTuple):
    """A pattern that can be tried, and what that costs."""

    compiled: re.Pattern[str]
    choices: int
    """Places that allow a choice: with n of them, a text of length m needs about m to the power of n + 1 attempts."""
    width: int
    """Characters that one attempt compares at most, beside those that the choices add."""

    def cost(self, text: str) -> int:
        """Returns how many characters are compared at most."""
        return int((len(text) + 1) ** (self.choices + 1)) * self.width


def regex_matches(pattern: str, text: str, spend: Callable[[int], None]) -> bool:
    """Returns whether the pattern occurs in the text; also True when it is invalid or might take too long.

    Args:
        pattern: The pattern.
        text: The text.
        spend: Called before the text is searched, with how many characters are compared at most. What it raises ends
            this.
    """
    known = known_pattern(pattern)
    if known is None or (cost := known.cost(text)) > MAX_COST:
        return True
    spend(cost)
    return known.compiled.search(text) is not None


def steps_to_compile(pattern: str) -> int:
    """Returns how many steps `known_pattern` takes for a pattern that it does not know yet."""
    if len(pattern) > MAX_PATTERN_CHARS:
        return 1
    wide: int = sum(token[0] == "[" and _WIDE.search(token) is not None for token in _TOKEN.findall(pattern))
    return 1 + len(pattern) // _CHARS_IN_A_STEP + _WIDE_SET_STEPS * wide


@lru_cache(maxsize=1024)
def known_pattern(pattern: str) -> Pattern | None:
    """Returns a pattern with its cost; None when it cannot be told, when it does not compile or is too long.

    It cannot be told when choices are nested, and of what ECMAScript does not have.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        return None
    tokens = _TOKEN.findall(pattern)
    if _EXTENSION in tokens:
        return None
    try:
        compiled = re.compile("".join(_without_operations(token) if token[0] == "[" else token for token in tokens))
    except (re.error, RecursionError, OverflowError):
        return None
    measure = _Measure()
    for token in tokens:
        if not measure.add(token):
            return None
    return Pattern(compiled, measure.choices, measure.width)


def _without_operations(characters: str) -> str:
    """Returns a set of characters that Python reads without a warning, and as it reads the given one."""
    begin = 2 if characters[1:2] == "^" else 1
    return characters[:begin] + _MEMBER.sub(_plain, characters[begin:])


def _plain(member: re.Match[str]) -> str:
    return "-".join(f"\\{one}" if one in _RESERVED else one for one in member.groups() if one)


class _Measure:
    """Counts choices and widths, token by token. The lists have a number for each open group, the innermost last."""

    def __init__(self) -> None:
        self.choices = 0
        self._inner, self._widths = [0], [0]
        self._last_choices, self._last_width = 0, 0  # of the token or group before a quantifier

    @property
    def width(self) -> int:
        return self._widths[0] + self._last_width

    def add(self, token: str) -> bool:
        """Returns False when choices are nested."""
        if token[0] == "(":
            self._end_token()
            self._inner.append(0)
            self._widths.append(0)
        elif token == ")":
            self._end_token()
            # what compares nothing, such as an empty group, takes its time when it is repeated
            self._last_choices, self._last_width = self._inner.pop(), max(self._widths.pop(), 1)
            self._inner[-1] += self._last_choices
        elif token == "|":
            self._end_token()
            self._add_choice()
        elif token in ("*", "+", "?") or (token[0] == "{" and len(token) > 1):
            return self._repeat(token)
        else:
            self._end_token()
            self._last_width = 1
            if token[0] == "\\" and token[1].isdigit():  # what a group has matched may be long
                self._add_choice()
        return True

    def _repeat(self, token: str) -> bool:
        counts = _COUNTS.fullmatch(token)
        least = int(counts[1] or 0) if counts else 0
        is_fixed = counts is not None and not counts[2]
        if self._last_choices and not (is_fixed and least < 2):
            return False
        self._last_width *= max(least, 1)
        if not is_fixed:
            self._add_choice()
            self._last_choices = 1
        return True

    def _end_token(self) -> None:
        self._widths[-1] += self._last_width
        self._last_choices, self._last_width = 0, 0

    def _add_choice(self) -> None:
        self._inner[-1] += 1
        self.choices += 1
