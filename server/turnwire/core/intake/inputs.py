"""What callers ask for, as values: checked for form, not yet against the state of any session."""

from msgspec import UNSET, Struct, UnsetType

from turnwire.core.intake.attachments import NewFile
from turnwire.domain.conversation.messages import MessageType, ModelRef, ToolResult
from turnwire.domain.conversation.sessions import Budget
from turnwire.domain.conversation.turns import BusyPolicy, GenerationOptions, ToolDefinition


class NewText(Struct, frozen=True):
    """Text to store."""

    text: str


NewPart = NewText | NewFile | ToolResult


class NewMessage(Struct, frozen=True, kw_only=True):
    """A message to store."""

    session_id: str
    parts: tuple[NewPart, ...]
    """At least one."""
    type: MessageType = MessageType.USER
    request_id: str = ""
    """"" when the caller did not name the request."""
    fingerprint: str = ""
    """Digest of the request's content; equal for equal requests."""
    metadata_json: str = ""
    sender: str = ""
    sender_name: str = ""


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


class NewToolResult(Struct, frozen=True, kw_only=True):
    """What a client's tool answered."""

    output: str
    is_error: bool = False
    metadata_json: str = ""
    files: tuple[NewFile, ...] = ()


class SessionChange(Struct, frozen=True, kw_only=True):
    """Settings of a session to change; UNSET ones stay."""

    title: str | UnsetType = UNSET
    directory: str | UnsetType = UNSET
    model: ModelRef | UnsetType | None = UNSET
    """None: back to the default."""
    agent: str | UnsetType = UNSET
    """"" is back to the default."""
    tools: tuple[ToolDefinition, ...] | UnsetType = UNSET
    compaction: bool | UnsetType = UNSET
    budget: Budget | UnsetType = UNSET
    """Replaces the whole budget."""
    expected_revision: int | None = None
    """Refuse unless the session has this revision; None takes any."""
