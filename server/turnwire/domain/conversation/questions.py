"""Questions that a running tool call asks a person, and the answers.

What a person fills in (`QuestionReply.content_json`) is for the tool alone. It is never part of a question or an event.
"""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class QuestionAction(StrEnum):
    """The way in which a question was closed."""

    ACCEPT = "accept"
    """The person filled in the form, or agreed to open the link."""
    DECLINE = "decline"
    """The person declined."""
    CANCEL = "cancel"
    """The person dismissed it without a decision, or the call or its turn ended first."""
    EXPIRED = "expired"
    """The time for an answer has passed."""


class SchemaForm(Struct, frozen=True, tag="schema"):
    """A form to fill in."""

    schema_json: str
    """JSON Schema of the content: a flat object, see `turnwire.core.tools.question_forms`."""


class LinkForm(Struct, frozen=True, tag="link"):
    """An address that the person opens. What is entered there does not reach this server."""

    url: str


class QuestionAnswer(Struct, frozen=True, omit_defaults=True):
    """The answer to a question, without what was filled in."""

    action: QuestionAction
    reason: str = ""
    """The reason in the words of the person who answered; "" for none."""


class Question(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question of one tool call. It never changes after it is answered."""

    question_id: str
    session_id: str
    turn_id: str
    message_id: str
    """The assistant message with the call."""
    part_index: int
    tool_call_id: str
    """Id of the part with the call."""
    source: str
    """Name of the source of tools that asks."""
    tool: str
    """The tool's name."""
    prompt: str
    """The text to show to the person."""
    form: SchemaForm | LinkForm
    created_at: datetime
    expires_at: datetime
    answer: QuestionAnswer | None = None
    """None while it is open."""


class QuestionReply(Struct, frozen=True):
    """The reply that the tool gets."""

    action: QuestionAction
    content_json: str = ""
    """The content that was filled in, as a JSON object; "" for none."""


class QuestionHold(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state with which a call resumes after its questions; stored until the call resumes.

    A call that waits for a reply in memory has none: it ends with the process.
    """

    key: str
    """The tool's own name for the question."""
    state: str
    """The same for all questions that were asked at once; opaque to all but the source of the tool."""
    content_json: str = ""
    """The content that was filled in; "" while the question is open."""


class HeldQuestion(Struct, frozen=True):
    """A question with the state that its call needs to resume."""

    question: Question
    hold: QuestionHold | None
    """None when its call cannot resume in another process."""
