"""Sessions: conversations and their settings."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import asdict

from turnwire.domain.conversation.messages import ModelRef, Origin
from turnwire.domain.conversation.turns import GenerationOptions, ToolDefinition
from turnwire.domain.principal import DEFAULT_TENANT

DEFAULT_AGENT = "default"
"""The agent of every session that names none; it always exists."""


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits on usage; None sets no limit."""

    max_tokens: int | None = None
    """Prompts and answers together."""
    max_cost_pico_usd: int | None = None


class SessionSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings for the turns of a session, and data that its client keeps with it."""

    title: str = ""
    directory: str = ""
    """Absolute path on the server's machine, or "" for none."""
    model: ModelRef | None = None
    """None: the agent's or the server's default."""
    agent: str = ""
    """"" is the agent "default"."""
    tools: tuple[ToolDefinition, ...] = ()
    """Tools that the client runs itself, for every turn."""
    compaction: bool | None = None
    """Whether older messages are summarised when the context would not fit; None: as the server is configured."""
    budget: Budget = Budget()
    """Limits on all turns together; a None in it means the server's limit."""
    labels: dict[str, str] = {}
    """The client's own labels."""
    metadata_json: str = ""
    """The client's own facts as a JSON object; "" for none."""
    system: str | None = None
    """System prompt of turns whose message has none; "" for no prompt, None for the agent's."""
    options: GenerationOptions = GenerationOptions()
    """Options for messages that leave them unset."""


class Session(SessionSettings, frozen=True, kw_only=True, omit_defaults=True):
    """One conversation and its settings."""

    session_id: str
    tenant: str = DEFAULT_TENANT
    """The owner; never changes."""
    created_at: datetime
    updated_at: datetime
    revision: int = 1
    """Grows with every change of the settings."""
    queue_revision: int = 0
    """Grows with every change of the queue. Assigned by the store; ignored when a session is written."""
    head_sequence: int = 0
    """Sequence of the newest durable event. Assigned by the store; ignored when a session is written."""
    origin: Origin | None = None
    """The session that it is a copy of; None when it is no copy."""
    archived_at: datetime | None = None
    """When it was archived; None when it is not. Assigned by the store; ignored when a session is written."""

    @property
    def shown_title(self) -> str:
        """The title that people are shown: the one that was set, or else the first words of the first message."""
        return self.title or first_words_of(self)

    def without_first_words(self) -> "Session":
        """Returns the session as archives have it: an import takes the first words from its messages."""
        return Session(**{name: getattr(self, name) for name in Session.__struct_fields__})


class BegunSession(Session, frozen=True, kw_only=True, omit_defaults=True):
    """A session whose first message had words. A separate type, because archives contain only `Session`."""

    first_words: str
    """The beginning of that message, as cut by `domain.conversation.titles`. Stored when the session is created, and by
    `ports.commit.NoteFirstWords`; ignored when the session is changed."""


def begun(session: Session, first_words: str) -> Session:
    """Returns a session with its first words; "" gives it none."""
    return BegunSession(**{**asdict(session), "first_words": first_words}) if first_words else session


def first_words_of(session: Session) -> str:
    """Returns the first words of a session; "" when it has none."""
    return session.first_words if isinstance(session, BegunSession) else ""


class SessionOrder(StrEnum):
    """Orders sessions; ids order those that are equal otherwise."""

    UPDATED = "updated"
    """Most recently updated first."""
    CREATED = "created"
    """Most recently created first."""
    TITLE = "title"
    """From A to Z, ignoring case."""


class SessionFilter(Struct, frozen=True, kw_only=True):
    """The sessions of a list and their order. A session has to pass every condition."""

    archived: bool | None = None
    """Whether they are archived; None: both."""
    directory: str | None = None
    """Their working directory, exactly; None: any."""
    labels: dict[str, str] = {}
    """Labels that they have, possibly among others."""
    updated_since: datetime | None = None
    """Earliest time of their last change, inclusive; None: any."""
    title_text: str = ""
    """A text that their shown title contains, ignoring case."""
    order: SessionOrder = SessionOrder.UPDATED

    @property
    def leaves_out(self) -> bool:
        """Whether a list in this order may come upon sessions that do not pass."""
        is_since = self.updated_since is not None and self.order is not SessionOrder.UPDATED
        return self.directory is not None or bool(self.labels or self.title_text) or is_since
