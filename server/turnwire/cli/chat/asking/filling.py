"""One question of a tool while a person answers it, line by line. It is sent when the person has seen all of it."""

import json
import re
from collections import deque
from typing import Any, NamedTuple

from opencode.question.question_pb2 import (
    QUESTION_ACTION_ACCEPT,
    QUESTION_ACTION_CANCEL,
    QUESTION_ACTION_DECLINE,
    Question,
    QuestionAction,
)
from turnwire.cli.chat.asking.answers import MAX_REASON_CHARS, parse_decision
from turnwire.cli.chat.asking.forms import Field, FormProblemError, fields_of, shown, value_of

COMMANDS = ("decline", "cancel", "skip")
"""What a line that begins with a slash may be at any question; other text may be a value."""

_PLACE = re.compile("[1-9][0-9]?")
_DECIDES = "y sends it, a number changes that field, n [why] declines, c cancels"
_AGREES = "y agrees, n [why] declines, c cancels; the chat opens nothing"
_REFUSES = "This chat cannot show the form: n [why] declines, c cancels"
_FILLS = "/decline [why] and /cancel leave the form"


class Reply(NamedTuple):
    """An answer, in the words of `AnswerQuestionRequest`."""

    action: QuestionAction.ValueType
    content_json: str = ""
    reason: str = ""


class Filling:
    """A question and what was filled in so far. Lives as long as the question is open here."""

    def __init__(self, question: Question) -> None:
        """Begins at the first field."""
        self.question = question
        form = question.WhichOneof("form")
        fields = fields_of(question.schema.schema_json) if form == "schema" else ()
        self._is_known = form is not None and fields is not None
        self._fields = fields or ()
        self._values: dict[str, Any] = {}
        self._left = deque(range(len(self._fields)))
        """Fields that are still to be asked, by place."""
        self.problem = ""
        """What was wrong with the last line; "" when nothing was."""
        self.is_sending = False
        """Whether an answer is on its way."""

    @property
    def is_form(self) -> bool:
        """Whether there is a form to fill in."""
        return self._is_known and self.question.WhichOneof("form") == "schema"

    @property
    def field(self) -> Field | None:
        """The field that is asked; None when what is left is to decide."""
        return self._fields[self._left[0]] if self._left else None

    @property
    def place(self) -> str:
        """Which of the fields is asked, in words."""
        return f"{self._left[0] + 1} of {len(self._fields)}" if self._left else ""

    @property
    def filled(self) -> list[tuple[str, str]]:
        """What was filled in, in the order of the form: titles and values as words, "" for a field left out."""
        return [
            (one.title, shown(one, self._values[one.name]) if one.name in self._values else "") for one in self._fields
        ]

    @property
    def how(self) -> str:
        """How to answer now, in one line."""
        field = self.field
        if field is None:
            return _DECIDES if self.is_form else _AGREES if self._is_known else _REFUSES
        return f"{self._on_empty(field)}{_FILLS}"

    def take(self, typed: str) -> Reply | None:
        """Takes a line. Returns the answer to send, and counts as sending then; None while there is more to ask."""
        self.problem = ""
        text = typed.strip()
        # A space in front makes text of what would be a command.
        command, _, reason = text.partition(" ") if typed.startswith("/") else ("", "", "")
        match command:
            case "/decline":
                return self._sending(Reply(QUESTION_ACTION_DECLINE, reason=reason.strip()[:MAX_REASON_CHARS]))
            case "/cancel":
                return self._sending(Reply(QUESTION_ACTION_CANCEL))
        field = self.field
        if field is None:
            return self._decide(text)
        if command == "/skip" or not text:
            self._leave_out(field, is_wanted=bool(text))
        else:
            self._fill(field, text)
        return None

    def refuse(self, message: str) -> None:
        """Takes the server's error: asks the fields again that it names."""
        self.is_sending = False
        self.problem = message
        self._left.extend(
            place
            for place, field in enumerate(self._fields)
            if any(f" {words}" in message for words in (f"{field.name}: ", f"{field.name}[", f"{field.name!r} is a"))
        )

    def _fill(self, field: Field, text: str) -> None:
        try:
            self._values[field.name] = value_of(field, text)
        except FormProblemError as problem:
            self.problem = f"{field.title}: {problem}"
        else:
            self._left.popleft()

    def _leave_out(self, field: Field, *, is_wanted: bool) -> None:
        if is_wanted and not field.required:
            self._values.pop(field.name, None)
        elif is_wanted or not self._on_empty(field):
            self.problem = f"{field.title}: is required"
            return
        elif field.name not in self._values and field.has_default:
            self._values[field.name] = field.schema["default"]
        self._left.popleft()

    def _on_empty(self, field: Field) -> str:
        """Returns what Enter alone does, in words; "" when it does nothing."""
        if field.name in self._values:
            return f"Enter keeps {shown(field, self._values[field.name])}. "
        if field.has_default:
            return f"Enter takes {shown(field, field.schema['default'])}. "
        return "" if field.required else "Enter leaves it out. "

    def _decide(self, text: str) -> Reply | None:
        if self.is_form and _PLACE.fullmatch(text) and int(text) <= len(self._fields):
            self._left.append(int(text) - 1)
            return None
        decision = parse_decision(text)
        if decision is None or (decision.action == QUESTION_ACTION_ACCEPT and not self._is_known):
            self.problem = f"Answer the question first. {self.how}."
            return None
        if decision.action != QUESTION_ACTION_ACCEPT or not self.is_form:
            return self._sending(Reply(decision.action, reason=decision.reason))
        return self._sending(Reply(decision.action, json.dumps(self._values, ensure_ascii=False)))

    def _sending(self, reply: Reply) -> Reply:
        self.is_sending = True
        return reply
