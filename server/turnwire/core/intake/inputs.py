"""What callers ask for, as values: checked for form, not yet against the state of any session."""

from datetime import timedelta

import msgspec
from msgspec import Struct

from turnwire.core.intake.attachments import NewFile
from turnwire.domain.conversation.limits import DEFAULT_LEASE
from turnwire.domain.conversation.messages import (
    FinishReason,
    MessageType,
    ModelRef,
    ModelRun,
    Reasoning,
    Refusal,
    ToolResult,
    ToolUse,
)
from turnwire.domain.conversation.questions import QuestionAnswer
from turnwire.domain.conversation.sessions import Session, SessionSettings
from turnwire.domain.conversation.turns import BusyPolicy, GenerationOptions, ToolDefinition
from turnwire.domain.money import Usage
from turnwire.domain.text import utf8_bytes


class NewText(Struct, frozen=True):
    """Text to store."""

    text: str


NewPart = NewText | NewFile | ToolResult | Reasoning | Refusal | ToolUse


class NamedRequest(Struct, frozen=True, kw_only=True):
    """A request that its caller may have given a name, under which it is carried out once."""

    request_id: str = ""
    """"" when the caller did not name it."""
    fingerprint: str = ""
    """Digest of the request's content; equal for equal requests."""


class NewAnswer(NamedRequest, frozen=True, kw_only=True):
    """The answer to a question of a tool."""

    session_id: str
    question_id: str
    answer: QuestionAnswer
    content_json: str = ""
    """What was filled in; "" when nothing was. Not part of the fingerprint, because it is not kept."""


class Report(Struct, frozen=True, kw_only=True):
    """What a caller says of an answer that it got from a model itself."""

    model_run: ModelRun
    finish_reason: FinishReason | None = None
    provider_finish_reason: str = ""
    usage: Usage | None = None
    cost_pico_usd: int | None = None


class NewMessage(NamedRequest, frozen=True, kw_only=True):
    """A message to store."""

    session_id: str
    parts: tuple[NewPart, ...]
    """At least one."""
    type: MessageType = MessageType.USER
    metadata_json: str = ""
    sender: str = ""
    sender_name: str = ""
    report: Report | None = None
    """Of an answer; None for other messages."""

    @property
    def other_bytes(self) -> int:
        """The bytes of all texts but those of the parts."""
        return sum(map(utf8_bytes, (self.metadata_json, self.sender, self.sender_name)))


class NewTurn(Struct, frozen=True, kw_only=True):
    """How a message is to be answered."""

    model: ModelRef | None = None
    """None: the agent's, the session's or the server's default."""
    agent: str | None = None
    """None: the session's."""
    system: str | None = None
    """"" for none; None: the session's or the agent's."""
    options: GenerationOptions = GenerationOptions()
    tools: tuple[ToolDefinition, ...] = ()
    when_busy: BusyPolicy = BusyPolicy.QUEUE
    expected_turn_id: str = ""
    """The only turn to interrupt or to join; "" for whichever runs."""

    @property
    def size_bytes(self) -> int:
        """The bytes of the system prompt, the tools and the stop sequences."""
        texts = (self.system or "", *self.options.stop_sequences)
        return sum(map(utf8_bytes, texts)) + sum(tool.size_bytes for tool in self.tools)


class Regeneration(NamedRequest, frozen=True, kw_only=True):
    """A message to answer again."""

    session_id: str
    message_id: str
    """The question, or an answer to it."""
    parts: tuple[NewPart, ...] = ()
    """All that the edited question has; empty leaves it as it is."""


class QueueEdit(NamedRequest, frozen=True, kw_only=True):
    """A change of a waiting message."""

    session_id: str
    message_id: str
    expected_revision: int | None = None
    """Refuse unless the queue has this revision; None takes any."""
    parts: tuple[NewPart, ...] = ()
    """The new content of an edit; empty leaves it as it is."""
    policy: BusyPolicy | None = None
    """What an edited message does from now on; None leaves it as it is."""
    before_message_id: str = ""
    """Where a move leads to; "" is the end."""


class LeaseChange(NamedRequest, frozen=True, kw_only=True):
    """A claim of a tool call, or a change of its lease."""

    session_id: str
    tool_call_id: str
    lease_id: str = ""
    """The lease to change; "" for a claim."""
    holder: str = ""
    """Who claims, in its own words; "" for a change."""
    duration: timedelta = DEFAULT_LEASE
    """How long the lease lasts from now on."""
    log_lines: tuple[str, ...] = ()
    """To add to the log of the call."""


class NewToolResult(Struct, frozen=True, kw_only=True):
    """What a client's tool answered."""

    output: str
    lease_id: str = ""
    """The lease under which the tool ran; "" for none."""
    is_error: bool = False
    metadata_json: str = ""
    files: tuple[NewFile, ...] = ()


class NewUpload(NamedRequest, frozen=True, kw_only=True):
    """An upload to begin."""

    mime: str = ""
    filename: str = ""
    size_bytes: int = 0
    """0 when it is not known."""


class SessionChange(NamedRequest, frozen=True, kw_only=True):
    """Settings of a session to change."""

    settings: SessionSettings = SessionSettings()
    """The new values of those that change."""
    paths: frozenset[str] = frozenset()
    """What changes: names of settings, or of fields in them, such as "budget.max_tokens"."""
    settings_field: str = "settings"
    """Field of the request that holds the settings, for errors; "" if they are fields of the request itself."""
    expected_revision: int | None = None
    """Refuse unless the session has this revision; None takes any."""

    def apply_to(self, session: Session) -> Session:
        """Returns the session with these settings."""
        changed = session
        for path in sorted(self.paths):
            name, _, inner = path.partition(".")
            value = getattr(self.settings, name)
            if inner:
                value = msgspec.structs.replace(getattr(changed, name), **{inner: getattr(value, inner)})
            changed = msgspec.structs.replace(changed, **{name: value})
        return changed
