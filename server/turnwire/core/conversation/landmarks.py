"""The positions in a conversation that determine its requests."""

from collections.abc import Sequence

from turnwire.core.token_estimate import correction_by
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, ModelRef


def standing_summary(history: Sequence[Message]) -> int | None:
    """Returns the index of the summary that currently replaces older messages; None without one.

    It is the newest complete one. A summary whose last covered message was removed, or was moved after it to be
    answered late, does not count, because its extent is unknown.
    """
    for at in range(len(history) - 1, -1, -1):
        summary = history[at]
        if summary.compaction is None or summary.status is not MessageStatus.COMPLETE or not summary.parts:
            continue
        if last_covered(history, at) is not None:
            return at
    return None


def newest_answer(history: Sequence[Message]) -> int | None:
    """Returns the index of the newest ended answer that records its request; None without one."""
    places = range(len(history) - 1, -1, -1)
    return next((at for at in places if _records_request(history[at])), None)


def correction(history: Sequence[Message], model: ModelRef) -> float:
    """Returns the newest correction factor for a model that an answer shows; 1 when none does."""
    factors = (correction_by(message, model) for message in reversed(history) if _records_request(message))
    return next((factor for factor in factors if factor is not None), 1.0)


def _records_request(message: Message) -> bool:
    is_ended = message.type is MessageType.ASSISTANT and message.status is not MessageStatus.STREAMING
    return is_ended and message.sent_context is not None


def last_covered(history: Sequence[Message], summary_at: int) -> int | None:
    """Returns the index of the last message that a summary covers; None when that is not before the summary."""
    facts = history[summary_at].compaction
    if facts is None:
        return None
    before = (at for at in reversed(range(summary_at)) if history[at].message_id == facts.through_message_id)
    return next(before, None)
