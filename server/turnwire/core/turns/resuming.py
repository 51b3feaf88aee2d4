"""Which turns go on after a restart, and from where: a pure function of what is stored.

A turn goes on from its last step that ended in order: its tool calls may be open, or have their results. What was open
in the middle of an answer is never joined with a second attempt, so such a turn ends; one whose model had not said
anything yet asks again.
"""

from collections.abc import Iterable

from msgspec import Struct

from turnwire.domain.conversation.messages import FinishReason, Message, MessageStatus, MessageType
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.turns import Turn

MAX_RESUMES = 3
"""How often in a row a turn is resumed without a further step: one that takes the server down shall not do so for ever.
Waiting for a person is no reason to give up, so a turn with open calls does not count."""


class ResumePoint(Struct, frozen=True):
    """Where a turn goes on."""

    steps: tuple[Message, ...]
    """Messages of the steps that ended, in order; calls of the last one may be open."""
    open_message: Message | None
    """The stored message of a step whose model had said nothing yet."""
    permissions: tuple[PermissionRequest, ...] = ()
    """Open requests of the last step's calls."""
    summaries: tuple[Message, ...] = ()
    """Summaries of older messages that were made in the turn."""

    @property
    def waits_for_calls(self) -> bool:
        """True when calls of the last step have no result yet."""
        return bool(self.steps) and any(not call.status.settled for _, call in self.steps[-1].tool_calls())


def resume_point(
    turn: Turn, messages: Iterable[Message], permissions: Iterable[PermissionRequest]
) -> ResumePoint | None:
    """Returns where a turn goes on; None when it must be ended.

    Args:
        turn: A turn that was running.
        messages: All messages of the turn, in order.
        permissions: Open permission requests of its session.
    """
    stored = tuple(messages)
    steps = [message for message in stored if message.type is MessageType.ASSISTANT]
    open_message = None
    if steps and steps[-1].status is MessageStatus.STREAMING:
        open_message = steps.pop()
        if open_message.parts:
            return None
    if steps and not goes_on(steps[-1]):
        return None
    point = ResumePoint(
        tuple(steps),
        open_message,
        tuple(asked for asked in permissions if asked.turn_id == turn.turn_id),
        tuple(message for message in stored if message.compaction is not None),
    )
    if point.waits_for_calls or turn.resumes < MAX_RESUMES or turn.steps != len(steps):
        return point
    return None


def goes_on(step: Message) -> bool:
    """Tells whether a further step follows an ended one, by the way it ended."""
    return step.status is MessageStatus.COMPLETE and step.finish_reason in (FinishReason.TOOL_USE, FinishReason.PAUSED)
