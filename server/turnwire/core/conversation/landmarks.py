"""Where in a conversation stands what its requests depend on."""

from collections.abc import Sequence

from turnwire.core.token_estimate import correction_by
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, ModelRef


class Landmarks:
    """The summaries and the answers of a conversation, by their places in it. Each message is added once."""

    def __init__(self) -> None:
        """Starts with no message."""
        self._summaries: list[int] = []
        """Complete ones, in order."""
        self._answers: list[int] = []
        """Ended ones that record their requests, in order."""

    @classmethod
    def of(cls, history: Sequence[Message]) -> "Landmarks":
        """Returns those of a conversation."""
        found = cls()
        for at, message in enumerate(history):
            found.add(at, message)
        return found

    def add(self, at: int, message: Message) -> None:
        """Takes the next message and its place."""
        if message.compaction is not None and message.status is MessageStatus.COMPLETE and message.parts:
            self._summaries.append(at)
        is_ended = message.type is MessageType.ASSISTANT and message.status is not MessageStatus.STREAMING
        if is_ended and message.sent_context is not None:
            self._answers.append(at)

    def cut(self, length: int) -> None:
        """Forgets all but the first messages."""
        for places in (self._summaries, self._answers):
            while places and places[-1] >= length:
                places.pop()

    def standing_summary(self, history: Sequence[Message]) -> int | None:
        """Returns the place of the summary that currently replaces older messages; None when there is none.

        It is the newest complete one. A summary whose last covered message was removed, or has moved behind it to be
        answered late, does not count, because its extent is unknown.
        """
        for at in reversed(self._summaries):
            if last_covered(history, at) is not None:
                return at
        return None

    def newest_answer(self) -> int | None:
        """Returns the place of the newest ended answer that records its request; None when there is none."""
        return self._answers[-1] if self._answers else None

    def correction(self, history: Sequence[Message], model: ModelRef) -> float:
        """Returns the factor for estimates for a model: the newest that an answer shows; 1 when none does."""
        factors = (correction_by(history[at], model) for at in reversed(self._answers))
        return next((factor for factor in factors if factor is not None), 1.0)


def standing_summary(history: Sequence[Message]) -> int | None:
    """Returns what `Landmarks.standing_summary` does."""
    return Landmarks.of(history).standing_summary(history)


def last_covered(history: Sequence[Message], summary_at: int) -> int | None:
    """Returns the place of the last message that a summary covers; None when that is not before the summary."""
    facts = history[summary_at].compaction
    if facts is None:
        return None
    before = (at for at in reversed(range(summary_at)) if history[at].message_id == facts.through_message_id)
    return next(before, None)
