"""What a person types to answer a permission request, or to decide about a question of a tool."""

import re
from typing import NamedTuple

from opencode.question.question_pb2 import (
    QUESTION_ACTION_ACCEPT,
    QUESTION_ACTION_CANCEL,
    QUESTION_ACTION_DECLINE,
    QuestionAction,
)

MAX_REASON_CHARS = 4096
"""What the server takes."""

_NO = re.compile(r"(?:n|no|deny)(?:[\s,:]+(?P<reason>.*))?", re.IGNORECASE | re.DOTALL)
_DECLINE = re.compile(r"(?:n|no|decline)(?:[\s,:]+(?P<reason>.*))?", re.IGNORECASE | re.DOTALL)


class Answer(NamedTuple):
    """The answer to a permission request, in the words of `PermissionResponse`."""

    response: str
    reason: str = ""


class Decision(NamedTuple):
    """How a question of a tool is closed."""

    action: QuestionAction.ValueType
    reason: str = ""


def parse_answer(typed: str) -> Answer | None:
    """Returns the answer; None when the text is none, so that a message or a slip never allows or denies anything."""
    text = typed.strip()
    if text == "A" or text.lower() == "always":
        return Answer("always")
    if text.lower() in ("y", "yes"):
        return Answer("once")
    no = _NO.fullmatch(text)
    return Answer("reject", _reason(no)) if no else None


def parse_decision(typed: str) -> Decision | None:
    """Returns the decision; None when the text is none."""
    text = typed.strip()
    match text.lower():
        case "y" | "yes" | "accept":
            return Decision(QUESTION_ACTION_ACCEPT)
        case "c" | "cancel":
            return Decision(QUESTION_ACTION_CANCEL)
    no = _DECLINE.fullmatch(text)
    return Decision(QUESTION_ACTION_DECLINE, _reason(no)) if no else None


def _reason(no: re.Match[str]) -> str:
    return (no["reason"] or "").strip()[:MAX_REASON_CHARS]
