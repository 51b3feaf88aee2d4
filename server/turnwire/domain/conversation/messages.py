"""Messages and their parts.

A message is a header (`Message`) and ordered parts. Both are immutable values; a change makes a new one. Which part
holds what is told by the type of `Part.content`; new types may be added, so a reader skips what it does not know.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from msgspec import Struct, field

from turnwire.domain.errors import DomainError
from turnwire.domain.money import Usage
from turnwire.domain.text import join_surrogates


class MessageType(StrEnum):
    """Who speaks. HOST is stored and shown and never reaches a model."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    HOST = "host"
    TOOL_RESULT = "tool_result"


class MessageStatus(StrEnum):
    """How far a message is. Every status but QUEUED and STREAMING is final."""

    QUEUED = "queued"
    STREAMING = "streaming"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class FinishReason(StrEnum):
    """Why a step or a turn ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_USE = "tool_use"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    CONTEXT_FULL = "context_full"
    PAUSED = "paused"
    MAX_STEPS = "max_steps"
    BUDGET = "budget"
    ABORTED = "aborted"
    INTERRUPTED = "interrupted"
    ERROR = "error"


class PartStatus(StrEnum):
    """How far a part is. A part that is not STREAMING never changes, except that a tool call gets its result."""

    STREAMING = "streaming"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"


class ToolStatus(StrEnum):
    """How far a tool call is: PENDING waits for its result; the last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def settled(self) -> bool:
        """True when the call has its result."""
        return self in (ToolStatus.SUCCESS, ToolStatus.ERROR, ToolStatus.CANCELLED)


class Text(Struct, frozen=True, tag="text"):
    """Text of any speaker."""

    text: str


class Reasoning(Struct, frozen=True, tag="reasoning"):
    """Readable reasoning; "" when the provider gave only sealed reasoning (then `Part.provider_state` holds it)."""

    text: str


class Refusal(Struct, frozen=True, tag="refusal"):
    """A refusal in the model's words."""

    text: str


class File(Struct, frozen=True, tag="file", kw_only=True):
    """A reference to stored bytes; the bytes are kept once, by their hash."""

    sha256: str
    """Lower-case hexadecimal digest."""
    size_bytes: int
    mime: str
    filename: str = ""
    """Without folders; "" when not said."""
    path: str = ""
    """As the client gave it; "" for uploaded bytes."""
    language: str = ""
    """Language by the file name, such as "python"; "" when unknown."""


class ToolUse(Struct, frozen=True, tag="tool_use", kw_only=True, omit_defaults=True):
    """A call of one of the client's or the server's tools, with its result."""

    name: str
    call_id: str = ""
    """The provider's id of the call; "" when it gave none."""
    input_json: str = ""
    """The arguments as the model's own text: numbers keep their form. May be cut in an interrupted message."""
    status: ToolStatus = ToolStatus.PENDING
    output: str | None = None
    error: str | None = None
    logs: tuple[str, ...] = ()
    metadata_json: str = ""
    started_at: datetime | None = None
    """When the call was complete."""
    finished_at: datetime | None = None
    """When the result came."""
    permission_id: str = ""
    """The open permission request that it waits for; "" for none."""
    files: tuple[File, ...] = ()
    """Files of the result; models that can see them get them."""
    full_output: File | None = None
    """All of the output, when `output` was cut."""


class ToolResult(Struct, frozen=True, tag="tool_result", kw_only=True):
    """A tool result that is a message of its own."""

    call_id: str
    """The provider's id of the call; "" when it gave none."""
    output: str
    is_error: bool = False
    tool_call_id: str = ""
    """Id of the part that holds the call; "" when no known call has the provider's id."""


class ProviderContent(Struct, frozen=True, tag="provider"):
    """Content that only its provider understands; `Part.provider_state` holds it."""

    kind: str
    """The provider's own name for it, such as "web_search_call"."""


Content = Text | Reasoning | Refusal | File | ToolUse | ToolResult | ProviderContent


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One part of a message."""

    part_id: str
    index: int
    """Position in the message, from 0 without gaps."""
    content: Content
    status: PartStatus = PartStatus.COMPLETE
    provider_state: str | None = None
    """Opaque JSON text that must go back to the provider that made it, byte-exact (signatures, sealed reasoning)."""


class ModelRef(Struct, frozen=True):
    """Names a model of a provider."""

    provider_id: str
    model_id: str


class ModelRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which model was asked and which one answered."""

    provider_id: str
    model_requested: str
    model_served: str = ""
    response_id: str = ""


class Failure(Struct, frozen=True, omit_defaults=True):
    """What went wrong: a stable upper-case word and a sentence for people."""

    reason: str
    message: str
    metadata: Mapping[str, str] = {}
    """Facts for programs by lowerCamelCase key."""
    retry_after: timedelta | None = None
    """How long to wait before another try, as the provider asked; None when it did not."""

    @classmethod
    def of(cls, error: DomainError) -> Self:
        """Returns what a failed message, turn or attempt keeps of an error."""
        metadata = {key: join_surrogates(value) for key, value in error.metadata.items()}
        return cls(error.reason, join_surrogates(error.message), metadata, error.retry_after)


class Compaction(Struct, frozen=True, kw_only=True):
    """What a summary stands for. The messages stay; models get the summary in their place."""

    through_message_id: str
    """The last message that it covers; all before it are covered too, SYSTEM messages excepted."""
    message_count: int
    """Messages that models no longer get."""
    tokens_before: int
    """Estimate of the request before."""
    tokens_after: int


class SentContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes the request of a step by digests. Equal digests mean equal content."""

    system_hash: str
    tools_hash: str
    prefix_hash: str
    """Of system prompt, tools and all messages."""
    message_count: int
    estimated_tokens: int = 0
    uncorrected_tokens: int = 0
    """The estimate by the content alone, before earlier answers corrected it; the next correction is made of it."""
    break_reason: str = ""
    """Why the request does not extend that of the step before; "" when it does, and in the first step."""


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a session. Its parts are ordered by index."""

    message_id: str
    session_id: str
    type: MessageType
    status: MessageStatus
    created_at: datetime
    updated_at: datetime
    parts: tuple[Part, ...] = ()
    turn_id: str = ""
    """"" for messages stored outside a turn."""
    answers_message_id: str = field(default="", name="parent_id")
    """What it answers: of an assistant message the user message, of a tool result the assistant message with its call.

    Stored under its former name.
    """
    finish_reason: FinishReason | None = None
    provider_finish_reason: str = ""
    """The provider's own word."""
    model_run: ModelRun | None = None
    usage: Usage | None = None
    cost_pico_usd: int | None = None
    """None when the price is unknown, never 0 for that."""
    failure: Failure | None = None
    sender: str = ""
    sender_name: str = ""
    metadata_json: str = ""
    compaction: Compaction | None = None
    """What this SYSTEM message is the summary of."""
    sent_context: SentContext | None = None
    """What the model was sent for this assistant message."""

    def tool_calls(self) -> tuple[tuple[Part, ToolUse], ...]:
        """Returns the tool calls with their parts, in order."""
        return tuple((part, part.content) for part in self.parts if isinstance(part.content, ToolUse))

    def files(self) -> tuple[File, ...]:
        """Returns the files, in order."""
        return tuple(part.content for part in self.parts if isinstance(part.content, File))

    def result_files(self) -> tuple[File, ...]:
        """Returns the files of the tool results, in order."""
        return tuple(file for _, call in self.tool_calls() for file in call.files)
