"""What others may ask of a turn that runs."""

from typing import Protocol

from turnwire.domain.conversation.events import CompactionStarted, RetryScheduled
from turnwire.domain.conversation.messages import Message, Part
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.turns import Turn


class LiveTurn(Protocol):
    """A turn that runs, for readers on the event loop: each answer is of this moment, and nothing here waits."""

    @property
    def turn(self) -> Turn:
        """The turn, as it was when it started."""
        ...

    @property
    def open_permissions(self) -> tuple[PermissionRequest, ...]:
        """The permission requests that nobody has answered, oldest first."""
        ...

    @property
    def pending_notice(self) -> CompactionStarted | RetryScheduled | None:
        """What watchers were told of that keeps the model from answering: a summary being written, or a retry."""
        ...

    @property
    def awaited_call_ids(self) -> frozenset[str]:
        """The ids, ours and the provider's, of the tool calls without result, also of those being written now."""
        ...

    def open_message(self) -> Message | None:
        """Returns the message that streams now, as far as it has come, or whose tool calls wait for their results."""
        ...

    def open_part(self, message_id: str, index: int) -> Part | None:
        """Returns one part of that message; cheaper than all of it. None when it is not open any more."""
        ...
