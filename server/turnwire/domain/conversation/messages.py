"""Messages and their parts.

A message is a header (`Message`) and ordered parts. Both are immutable; a change creates a new value. The type of
`Part.content` determines the kind of a part. New types may be added, so readers skip types that they do not know.

The garbage collector does not track them (`gc=False`), because values never form a reference cycle. Tens of thousands
are in memory (`core/conversation/`), and a full collection would block the event loop for 40 ms per 10,000.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Self

import msgspec
from msgspec import Struct, field

from turnwire.domain.errors import DomainError
from turnwire.domain.money import Estimate, Usage
from turnwire.domain.text import join_surrogates


class MessageType(StrEnum):
    """The author of a message. HOST messages are stored and shown, but never sent to a model."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    HOST = "host"
    TOOL_RESULT = "tool_result"


class MessageStatus(StrEnum):
    """The progress of a message. All statuses except QUEUED and STREAMING are final."""

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
    MERGED = "merged"
    """The turn never ran: its message joined the running turn."""


class PartStatus(StrEnum):
    """The progress of a part. A part that is not STREAMING changes only when a tool call gets its result."""

    STREAMING = "streaming"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"


class ToolStatus(StrEnum):
    """The progress of a tool call: PENDING waits for its result; the last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def settled(self) -> bool:
        """True when the call has its result."""
        return self in (ToolStatus.SUCCESS, ToolStatus.ERROR, ToolStatus.CANCELLED)


class FileForm(StrEnum):
    """The form in which models get a file, by its bytes. A model that does not support the form gets the name alone."""

    UNKNOWN = "unknown"
    """The bytes were not examined: files of older versions, and uploads."""
    TEXT = "text"
    IMAGE = "image"
    DOCUMENT = "document"
    NAME_ONLY = "name_only"
    """A line with name, type and size."""


class Text(Struct, frozen=True, gc=False, tag="text"):
    """Text by any speaker."""

    text: str


class Reasoning(Struct, frozen=True, gc=False, tag="reasoning"):
    """Readable reasoning; "" when the provider gave only sealed reasoning (then `Part.provider_state` holds it)."""

    text: str


class Refusal(Struct, frozen=True, gc=False, tag="refusal"):
    """A refusal in the model's words."""

    text: str


class File(Struct, frozen=True, gc=False, tag="file", kw_only=True):
    """A reference to stored bytes. Equal bytes are stored once, under their hash."""

    sha256: str
    """Lower-case hexadecimal digest."""
    size_bytes: int
    mime: str
    filename: str = ""
    """Without folders; "" when unknown."""
    path: str = ""
    """As given by the client; "" for uploaded bytes."""
    language: str = ""
    """Programming language according to the file name, such as "python"; "" when unknown."""
    form: FileForm = FileForm.UNKNOWN


class Lease(Struct, frozen=True, gc=False, kw_only=True):
    """The claim of a client on a call of its tools: while it lasts, no other client that claims runs the call."""

    lease_id: str
    holder: str
    """The holder's name for itself; never verified."""
    expires_at: datetime
    """Counted from the time of day when it was given or last renewed."""


class ToolUse(Struct, frozen=True, gc=False, tag="tool_use", kw_only=True, omit_defaults=True):
    """A call of one of the client's or the server's tools, with its result."""

    name: str
    call_id: str = ""
    """The provider's id of the call; "" when it gave none."""
    input_json: str = ""
    """The arguments exactly as the model wrote them. May be cut in an interrupted message."""
    status: ToolStatus = ToolStatus.PENDING
    output: str | None = None
    error: str | None = None
    logs: tuple[str, ...] = ()
    metadata_json: str = ""
    started_at: datetime | None = None
    """When the call was complete."""
    finished_at: datetime | None = None
    """When the result arrived."""
    permission_id: str = ""
    """The open permission request that it waits for; "" for none."""
    files: tuple[File, ...] = ()
    """Files of the result; sent to models that accept them."""
    full_output: File | None = None
    """The complete output as a file, when `output` was cut."""
    lease: Lease | None = None
    """The newest claim of a client, which may have ended; None without one. A settled call has none."""

    def stored_files(self) -> tuple[File, ...]:
        """Returns all files that it refers to: those of the result in order, then the complete output."""
        return self.files if self.full_output is None else (*self.files, self.full_output)

    @property
    def awaits_client(self) -> bool:
        """True when a client may run it: only its result is missing.

        Names of the server's tools contain a dot, which those of clients cannot contain.
        """
        is_ready = self.status is ToolStatus.PENDING and self.started_at is not None and not self.permission_id
        return is_ready and "." not in self.name


class ToolResult(Struct, frozen=True, gc=False, tag="tool_result", kw_only=True, omit_defaults=True):
    """A tool result in a message of its own."""

    call_id: str
    """The provider's id of the call; "" when it gave none."""
    output: str
    is_error: bool = False
    tool_call_id: str = ""
    """Id of the part with the call; "" when no known call has the provider's id."""
    exit_code: int | None = None
    """Exit code of the command that the tool ran; None when there is none or it is not known."""


def outcome_words(*, is_error: bool, exit_code: int | None) -> str:
    """Returns how a tool ended, such as "failed, exit code 3"; "" when its output says everything."""
    words = ("failed" if is_error else "", "" if exit_code is None else f"exit code {exit_code}")
    return ", ".join(word for word in words if word)


class ProviderContent(Struct, frozen=True, gc=False, tag="provider"):
    """Content that only its provider understands; stored in `Part.provider_state`."""

    kind: str
    """The provider's own name for it, such as "web_search_call"."""


Content = Text | Reasoning | Refusal | File | ToolUse | ToolResult | ProviderContent


class Part(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One part of a message."""

    part_id: str
    index: int
    """Position in the message, from 0 without gaps."""
    content: Content
    status: PartStatus = PartStatus.COMPLETE
    provider_state: str | None = None
    """Opaque JSON text to return to its provider byte for byte (signatures, sealed reasoning)."""
    copied_id: str = ""
    """Id of the part from which this one was copied, directly or through other copies; "" when it is no copy."""

    @property
    def first_id(self) -> str:
        """The id that copies have in common. Requests to models depend on it alone, so that copies read the same."""
        return self.copied_id or self.part_id


class Origin(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Names what a session or a message was copied from."""

    system: str = ""
    """The system that had it, by its own name; "" for this server."""
    session_id: str
    message_id: str = ""
    """The last message that was copied from the session; "" for none."""


class Branch(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The position of a message that is off the path of its conversation."""

    previous_message_id: str = ""
    """The message before it; "" when it could begin the conversation."""
    turn_id: str = ""
    """The turn of the message before it when the path led from there to this one; "" for none."""


class ModelRef(Struct, frozen=True, gc=False):
    """A reference to a model of a provider."""

    provider_id: str
    model_id: str


class ModelRun(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The model that was requested and the model that answered."""

    provider_id: str
    model_requested: str
    model_served: str = ""
    response_id: str = ""
    is_reported: bool = False
    """True when a caller appended the answer: all facts about it are the caller's claims, and count nowhere."""


class Failure(Struct, frozen=True, gc=False, omit_defaults=True):
    """An error as a stable upper-case word and a sentence for people."""

    reason: str
    message: str
    metadata: Mapping[str, str] = {}
    """Facts for programs by lowerCamelCase key."""
    retry_after: timedelta | None = None
    """The delay before a retry that the provider requested; None if it requested none."""

    @classmethod
    def of(cls, error: DomainError) -> Self:
        """Returns an error in the form that a failed message, turn or attempt stores."""
        metadata = {key: join_surrogates(value) for key, value in error.metadata.items()}
        return cls(error.reason, join_surrogates(error.message), metadata, error.retry_after)


class Compaction(Struct, frozen=True, gc=False, kw_only=True):
    """The messages that a summary covers. They stay stored; models get the summary in their place."""

    through_message_id: str
    """The last covered message; all earlier messages are covered too, except SYSTEM messages."""
    message_count: int
    """Number of messages that models no longer get."""
    tokens_before: int
    """Estimated tokens of the request before compaction."""
    tokens_after: int


class SentContext(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Describes the request of a step by digests. Equal digests mean equal content."""

    system_hash: str
    tools_hash: str
    prefix_hash: str
    """Digest of system prompt, tools and all messages."""
    message_count: int
    estimated_tokens: int = 0
    uncorrected_tokens: int = 0
    """The estimate from the content alone, without the correction by earlier answers; the next correction uses it."""
    break_reason: str = ""
    """Why the request does not extend that of the previous step; "" when it does, and in the first step."""


class Message(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
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
    """The message that this one answers: the user message for an answer, the calling message for a tool result.

    The database stores it under its former name.
    """
    previous_message_id: str = ""
    """The message before it in the conversation; "" for the first one and while it waits. Assigned by the store."""
    alternative_count: int = 0
    """Number of messages with the same message before them, itself included; 0 for no other. Assigned by the store."""
    alternative_index: int = 0
    """Its index among them, from 0, oldest first. Assigned by the store."""
    finish_reason: FinishReason | None = None
    provider_finish_reason: str = ""
    """The provider's own word for the finish reason."""
    model_run: ModelRun | None = None
    usage: Usage | None = None
    cost_pico_usd: int | None = None
    """None when the price is unknown; 0 means free."""
    estimate: Estimate | None = None
    """Set when the model was called and its provider did not report all that the call used. It replaces `usage` and
    `cost_pico_usd` in the account of the tenant, and counts nowhere else."""
    failure: Failure | None = None
    sender: str = ""
    sender_name: str = ""
    request_id: str = ""
    """The name of the request that stored it; "" when that had none."""
    metadata_json: str = ""
    compaction: Compaction | None = None
    """Set when this SYSTEM message is a summary."""
    sent_context: SentContext | None = None
    """Describes the request that this assistant message answers."""
    origin: Origin | None = None
    """The message from which it was copied; None when it is no copy."""

    def tool_calls(self) -> tuple[tuple[Part, ToolUse], ...]:
        """Returns the tool calls with their parts, in part order."""
        return tuple((part, part.content) for part in self.parts if isinstance(part.content, ToolUse))

    def files(self) -> tuple[File, ...]:
        """Returns the files, in part order."""
        return tuple(part.content for part in self.parts if isinstance(part.content, File))

    def all_files(self) -> Iterator[File]:
        """Yields the files and those of the results of tool calls, complete outputs included, in part order."""
        for part in self.parts:
            if isinstance(part.content, File):
                yield part.content
            elif isinstance(part.content, ToolUse):
                yield from part.content.stored_files()

    def result_files(self) -> tuple[File, ...]:
        """Returns the files of the tool results, in part order."""
        return tuple(file for _, call in self.tool_calls() for file in call.files)


class DraftPart(Struct, frozen=True, gc=False, omit_defaults=True):
    """A part that changed."""

    part: Part
    continues: bool = False
    """True when its text, or the arguments of a call, continue those of the earlier drafts."""


class Draft(Struct, frozen=True, gc=False, omit_defaults=True):
    """The content of one save."""

    message: Message
    """Its present state, without parts."""
    parts: tuple[DraftPart, ...] = ()


def with_drafts(message: Message, drafts: Iterable[Draft]) -> Message:
    """Returns a message with its consecutive drafts applied."""
    newest = message
    parts = {part.index: part for part in message.parts}
    texts = dict[int, list[str]]()
    for draft in drafts:
        newest = draft.message
        for changed in draft.parts:
            part, text = changed.part, texts_of(changed.part).text or ""
            parts[part.index] = part
            if changed.continues:
                texts[part.index].append(text)
            else:
                texts[part.index] = [text]
    folded = (
        _with_text(part, "".join(texts[index])) if len(texts.get(index, ())) > 1 else part
        for index, part in sorted(parts.items())
    )
    return msgspec.structs.replace(newest, parts=tuple(folded))


def _with_text(part: Part, text: str) -> Part:
    content = part.content
    field = "input_json" if isinstance(content, ToolUse) else "text"
    return msgspec.structs.replace(part, content=msgspec.structs.replace(content, **{field: text}))


class Texts(NamedTuple):
    """The texts of a part; None where its kind of content has none."""

    text: str | None = None
    """The text of a text, reasoning or refusal, the output of a result, the arguments of a call."""
    output: str | None = None
    """The output of a call that has its result."""


def texts_of(part: Part) -> Texts:
    """Returns the texts of a part."""
    match part.content:
        case Text(text) | Reasoning(text) | Refusal(text):
            return Texts(text)
        case ToolResult(output=output):
            return Texts(output)
        case ToolUse(input_json=input_json, output=output):
            return Texts(input_json, output)
        case _:
            return Texts()


def without_texts(part: Part) -> Part:
    """Returns the part with empty texts."""
    replace = msgspec.structs.replace
    match part.content:
        case Text() | Reasoning() | Refusal() as content:
            return replace(part, content=replace(content, text=""))
        case ToolResult() as content:
            return replace(part, content=replace(content, output=""))
        case ToolUse() as content:
            return replace(part, content=replace(content, input_json="", output=None))
        case _:
            return part
