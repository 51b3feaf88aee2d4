"""What a person types to answer a permission request."""

import re
from typing import NamedTuple

MAX_REASON_CHARS = 4096
"""What the server takes."""

_NO = re.compile(r"(?:n|no|deny)(?:[\s,:]+(?P<reason>.*))?", re.IGNORECASE | re.DOTALL)


class Answer(NamedTuple):
    """The answer to a permission request, in the words of `PermissionResponse`."""

    response: str
    reason: str = ""


def parse_answer(typed: str) -> Answer | None:
    """Returns the answer; None when the text is none, so that a message or a slip never allows or denies anything."""
    text = typed.strip()
    match text.lower():
        case "y" | "yes":
            return Answer("once")
        case "a" | "always":
            return Answer("always")
    no = _NO.fullmatch(text)
    return Answer("reject", (no["reason"] or "").strip()[:MAX_REASON_CHARS]) if no else None
