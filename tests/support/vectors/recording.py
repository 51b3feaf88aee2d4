"""The record of a scene: the events of its watches, and the server's state at the end."""

from dataclasses import dataclass, field
from enum import Enum

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import SessionMessage
from opencode.message.message_pb2 import ListMessagesResponse
from opencode.session.session_pb2 import SessionInfo


class Cut(Enum):
    """Ways to cut the text that grew into deltas when a recording is told again."""

    LEFT_OUT = "there are none, as in a watch with DELTA_MODE_NONE: a quick answer may have some or not"
    IN_ORDER = "each begins where the one before ended"
    OVERLAPPING = "some come again, and some begin within what came"
    WITH_GAPS = "some are missing"


@dataclass
class Want:
    """The state that a client must hold at the end."""

    messages: list[SessionMessage] = field(default_factory=list)
    """Those that do not wait, in order."""
    waiting: list[str] = field(default_factory=list)
    """Ids, next first."""
    waiting_messages: list[SessionMessage] = field(default_factory=list)
    permissions: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    status: int = 0
    session: SessionInfo | None = None
    deleted: bool = False
    needs_reread: bool = False


@dataclass
class Recording:
    """One vector before it is told again."""

    description: str
    watches: list[list[SessionEvent]]
    """The events of each watch, in order."""
    want: Want
    start: ListMessagesResponse | None = None
    """The list that the client began with."""
    cut: Cut = Cut.LEFT_OUT
