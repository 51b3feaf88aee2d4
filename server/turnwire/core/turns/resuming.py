"""Decides which turns continue after a restart, and from where: a pure function of what is stored.

A turn continues from its last step that ended normally, whether or not its tool calls have results. A turn whose
answer was cut in the middle ends, because the parts of two attempts are never joined. A turn whose model had not begun
to answer asks again.
"""

from collections.abc import Iterable

from msgspec import Struct

from turnwire.domain.conversation.messages import FinishReason, Message, MessageStatus, MessageType
from turnwire.domain.conversation.permissions import PermissionRequest
from turnwire.domain.conversation.questions import HeldQuestion
from turnwire.domain.conversation.turns import Turn

MAX_RESUMES = 3
"""How often in a row a turn is resumed without completing a step: it must not crash the server again and again.
Turns with open calls are exempt, because waiting for a person is no reason to give up."""


class ResumePoint(Struct, frozen=True):
    """Where a turn continues."""

    steps: tuple[Message, ...]
    """Messages of the ended steps, oldest first. The last one has its parts, and its calls may be open."""
    open_message: Message | None
    """The stored message of a step whose model had not begun to answer; None when there is none."""
    permissions: tuple[PermissionRequest, ...] = ()
    """Open requests of the last step's calls."""
    summaries: tuple[Message, ...] = ()
    """Summaries of older messages that this turn made."""
    questions: tuple[HeldQuestion, ...] = ()
    """Questions of the last step's calls that are open, or whose call has yet to go on."""

    @property
    def waits_for_calls(self) -> bool:
        """True when calls of the last step have no result yet."""
        return bool(self.steps) and any(not call.status.settled for _, call in self.steps[-1].tool_calls())


def resume_point(
    turn: Turn,
    messages: Iterable[Message],
    permissions: Iterable[PermissionRequest],
    questions: Iterable[HeldQuestion] = (),
) -> ResumePoint | None:
    """Returns where a turn continues; None when it must be ended.

    Args:
        turn: A turn that was running.
        messages: All messages of the turn, oldest first, as `Store.turn_messages` returns them.
        permissions: Open permission requests of its session.
        questions: Pending questions of its session.
    """
    stored = tuple(messages)
    steps = [message for message in stored if message.type is MessageType.ASSISTANT]
    open_message = None
    if steps and steps[-1].status is MessageStatus.STREAMING:
        open_message = steps.pop()
        if open_message.parts:
            return None
    if steps and not has_next_step(steps[-1]):
        return None
    point = ResumePoint(
        tuple(steps),
        open_message,
        tuple(asked for asked in permissions if asked.turn_id == turn.turn_id),
        tuple(message for message in stored if message.compaction is not None),
        tuple(asked for asked in questions if asked.question.turn_id == turn.turn_id),
    )
    if point.waits_for_calls or turn.resumes < MAX_RESUMES or turn.steps != len(steps):
        return point
    return None


def has_next_step(step: Message) -> bool:
    """Returns whether another step follows this ended step."""
    return step.status is MessageStatus.COMPLETE and step.finish_reason in (FinishReason.TOOL_USE, FinishReason.PAUSED)
