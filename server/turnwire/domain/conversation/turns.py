"""Turns: the work that follows from one accepted user message, and its settings."""

from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec import Struct

from turnwire.domain.conversation.messages import Failure, FinishReason, ModelRef
from turnwire.domain.money import Usage
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.domain.text import utf8_bytes


class ToolDefinition(Struct, frozen=True):
    """Declares a tool to a model."""

    name: str
    description: str
    input_schema_json: str
    """JSON Schema of the arguments; "" means an object without properties."""

    @property
    def size_bytes(self) -> int:
        """The bytes of its texts."""
        return sum(map(utf8_bytes, (self.name, self.description, self.input_schema_json)))


MAX_TOOLS = 128
"""Maximum tools in one request: OpenAI rejects more, and no model chooses well among many."""


class ToolChoiceMode(StrEnum):
    """Whether a model calls tools."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    """It calls at least one in the first step of a turn."""


class ToolChoice(Struct, frozen=True, omit_defaults=True):
    """Whether and which tools a model may or must call."""

    mode: ToolChoiceMode
    tool_name: str = ""
    """The tool to call, with the mode REQUIRED; "" for any."""

    def after_first_step(self) -> "ToolChoice | None":
        """Returns the choice for later steps: a call forced in each of them would never let the turn end."""
        return None if self.mode is ToolChoiceMode.REQUIRED else self


class ResponseFormatKind(StrEnum):
    """The form of an answer's text."""

    TEXT = "text"
    JSON = "json"
    JSON_SCHEMA = "json_schema"


class ResponseFormat(Struct, frozen=True, omit_defaults=True):
    """The required form of an answer's text."""

    kind: ResponseFormatKind
    schema_json: str = ""
    """JSON Schema; "" unless the kind is JSON_SCHEMA."""
    name: str = "answer"
    description: str = ""
    strict: bool = False


class GenerationOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a generation; None or empty leaves the provider's default."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: tuple[str, ...] = ()
    reasoning_effort: str = ""
    max_steps: int | None = None
    max_turn_tokens: int | None = None
    max_turn_cost_pico_usd: int | None = None
    tool_choice: ToolChoice | None = None
    response_format: ResponseFormat | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes of its texts."""
        form = self.response_format
        texts = (*self.stop_sequences, *((form.schema_json, form.description) if form is not None else ()))
        return sum(map(utf8_bytes, texts))

    def over(self, defaults: "GenerationOptions") -> "GenerationOptions":
        """Returns these settings, with the defaults for those that are unset."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) not in (None, (), "")}
        return msgspec.structs.replace(defaults, **given)


class BusyPolicy(StrEnum):
    """The treatment of a message to a session with a running turn."""

    QUEUE = "queue"
    """It waits until the turns before it have ended."""
    REJECT = "reject"
    """It is rejected."""
    INTERRUPT = "interrupt"
    """It ends the turn, and its own turn is the next one."""
    STEER = "steer"
    """It joins the turn before its next step; when the turn ends first, its own turn is the next one."""


class QueueEntry(Struct, frozen=True):
    """A message that waits while a turn runs."""

    message_id: str
    turn_id: str
    policy: BusyPolicy = BusyPolicy.QUEUE
    """The policy that the message was sent with."""


class TurnStatus(StrEnum):
    """The progress of a turn: queued -> running -> ended, or queued -> ended when it is dropped or merged."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """It runs, and waits for a person or a client's tool. Set only on the live turn, never stored."""
    ENDED = "ended"


class Turn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that follows from one accepted user message until its session can start the next one."""

    turn_id: str
    session_id: str
    tenant: str = DEFAULT_TENANT
    """The owner of its session."""
    subject: str = ""
    """The caller who sent its message; "" for an unidentified caller."""
    user_message_id: str
    status: TurnStatus
    created_at: datetime
    model: ModelRef
    """Resolved when the message was accepted, so that a restart calls the same model."""
    agent: str = ""
    system: str | None = None
    """System prompt of this turn; "" for none, None for the agent's."""
    options: GenerationOptions = GenerationOptions()
    tools: tuple[ToolDefinition, ...] = ()
    """Tools that the client runs: the session's and the message's, as they were when the message was accepted."""
    is_late: bool = False
    """True when its message was already part of the conversation, without an answer."""
    traceparent: str = ""
    """Position in its trace of the call that sent the message, as the W3C header; "" when it was not traced."""
    busy_policy: BusyPolicy = BusyPolicy.QUEUE
    """The policy of its message towards the running turn; QUEUE when none ran."""
    aimed_at_turn_id: str = ""
    """The turn that its message is to interrupt or to join; "" when it waits for its turn, or none ran. Stored with the
    message, so that a restart does not continue a turn that is to end."""
    regenerates: str = ""
    """The message that it answers again; "" for a first answer. If that message was edited, `user_message_id` is its
    edited form."""
    replaces_turn_id: str = ""
    """The turn that this message had before; "" for none."""
    merged_into_turn_id: str = ""
    """The turn that its message joined; "" for none."""
    ended_by_message_id: str = ""
    """The message that interrupted it; "" when none did."""
    resumes: int = 0
    """Number of consecutive resumptions after a restart without a completed step."""
    started_at: datetime | None = None
    """None before it starts, and for turns that an older version started."""
    ended_at: datetime | None = None
    finish_reason: FinishReason | None = None
    failure: Failure | None = None
    usage: Usage | None = None
    cost_pico_usd: int | None = None
    """None if the price of any step is unknown."""
    known_cost_pico_usd: int | None = None
    """Cost of the steps with a known price; set only when `cost_pico_usd` is None because of the others."""
    steps: int = 0
    """Number of model calls; while the turn runs, the number of steps that had ended when it was last resumed."""
    start_sequence: int = 0
    """Sequence of its first event after its message; 0 before it starts. Assigned by the store."""
    end_sequence: int = 0
    """Sequence of its last event; 0 before it ends. Assigned by the store."""

    def header(self) -> "Turn":
        """Returns the turn without tools and system prompt, which may be large."""
        return msgspec.structs.replace(self, tools=(), system=None)
