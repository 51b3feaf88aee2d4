"""Regular expressions with bounded cost: Python's engine backtracks and cannot be interrupted."""

import re
from functools import lru_cache

_MAX_COST = 1_000_000
"""Most attempts of one match: some ten milliseconds."""

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|\(\?[#=!<:P]?[=!]?|.", re.DOTALL)


def regex_matches(pattern: str, text: str) -> bool:
    """Returns whether the pattern occurs in the text; also True when it is invalid or might take too long."""
    choices = _choices(pattern)
    if choices is None or (len(text) + 1) ** (choices + 1) > _MAX_COST:
        return True
    return re.search(pattern, text) is not None


@lru_cache(maxsize=1024)
def _choices(pattern: str) -> int | None:
    """Returns how many places of the pattern allow a choice; None when choices are nested or it does not compile.

    With n places, a text of length m needs at most about m to the power of n + 1 attempts.
    """
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    choices, inner = 0, [0]
    last = 0  # choices within the token or group before a quantifier
    for token in _TOKEN.findall(pattern):
        if token[0] == "(":
            inner.append(0)
            last = 0
        elif token == ")":
            last = inner.pop()
            inner[-1] += last
        elif token == "|":
            inner[-1] += 1
            choices += 1
        elif token in ("*", "+", "?") or (token[0] == "{" and len(token) > 1):
            fixed = re.fullmatch(r"\{(\d+)\}", token)
            if last and not (fixed and int(fixed[1]) < 2):
                return None
            if not fixed:
                inner[-1] += 1
                choices += 1
                last = 1
        else:
            last = 0
    return choices
