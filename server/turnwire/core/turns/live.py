"""Read access to running turns, and what is told of them."""

from typing import Protocol

import msgspec

from turnwire.domain.conversation.events import CompactionStarted, RetryScheduled
from turnwire.domain.conversation.messages import Message, Part
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import Question
from turnwire.domain.conversation.turns import Turn


class LiveTurn(Protocol):
    """A running turn, for readers on the event loop: everything here returns the current state without waiting."""

    @property
    def turn(self) -> Turn:
        """The turn as it started."""
        ...

    @property
    def open_permissions(self) -> tuple[PermissionRequest, ...]:
        """The unanswered permission requests, oldest first."""
        ...

    @property
    def open_questions(self) -> tuple[Question, ...]:
        """The unanswered questions, oldest first."""
        ...

    @property
    def pending_notice(self) -> CompactionStarted | RetryScheduled | None:
        """The event that announced why no answer streams now: a summary is being written, or a retry is pending."""
        ...

    @property
    def awaited_call_ids(self) -> frozenset[str]:
        """The ids of tool calls that have no result, both ours and the provider's; includes calls being written now."""
        ...

    @property
    def open_requests(self) -> int:
        """How many open permission requests, questions and calls of client tools that may run, the turn waits for."""
        ...

    def open_message(self) -> Message | None:
        """Returns the message that streams now, or whose tool calls wait for results; None when there is none."""
        ...

    def open_part(self, message_id: str, index: int) -> Part | None:
        """Returns one part of the open message, which costs less than the message. None when it is no longer open."""
        ...


class Aborted(msgspec.Struct, frozen=True):
    """What an abort did."""

    turn_id: str = ""
    """The turn that was ended; "" when none ran."""
    dropped_message_ids: tuple[str, ...] = ()
    """Waiting messages that were dropped, in queue order."""


class TurnCounts(msgspec.Struct, frozen=True):
    """Turns and messages of all tenants at one moment."""

    running: int
    """Turns that run, the waiting ones included."""
    waiting: int
    """Running turns that wait for a person or for a tool of the client."""
    queued: int
    """Messages that wait behind a running turn."""


class LeftTurns(msgspec.Struct, frozen=True):
    """What the next start continues."""

    running: int
    queued: int
