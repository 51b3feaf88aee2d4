"""What requests ask of a whole conversation, found once for each message."""

from collections.abc import Sequence

from turnwire.core.context.speakers import Speakers
from turnwire.core.token_estimate import correction_by
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType, ModelRef
from turnwire.domain.incremental.growing import Growing, Mark, common_length


class KnownHistory:
    """A conversation that mostly grows. `follow` brings it up to date."""

    def __init__(self) -> None:
        """Starts with no message."""
        self._messages: list[Message] = []
        self._places: dict[str, int] = {}
        self._summaries: list[int] = []
        self._answers: list[int] = []
        self.speakers = Speakers()
        """Who wrote its user messages, those that a summary covers included."""
        self._state = Growing((self._messages, self._places, self._summaries, self._answers, *self.speakers.grown))
        self._marks: list[Mark] = []

    def follow(self, history: Sequence[Message]) -> None:
        """Takes the conversation as it is now: messages in order, without queued ones."""
        kept = common_length(self._messages, history)
        if kept < len(self._marks):
            self._state.go_back(self._marks[kept])
            del self._marks[kept:]
        for at in range(kept, len(history)):
            self._add(at, history[at])

    def standing_summary(self) -> int | None:
        """Returns the index of the summary that currently replaces older messages; None when there is none.

        It is the newest complete one. A summary whose last covered message was removed, or has moved behind it to be
        answered late, does not count, because its extent is unknown.
        """
        for index in reversed(self._summaries):
            compaction = self._messages[index].compaction
            if compaction is not None and self._places.get(compaction.through_message_id, index) < index:
                return index
        return None

    def place_of(self, message_id: str) -> int:
        """Returns the index of a message of the conversation."""
        return self._places[message_id]

    def newest_answer(self) -> int | None:
        """Returns the index of the newest ended answer that records its request; None when there is none."""
        return self._answers[-1] if self._answers else None

    def correction(self, model: ModelRef) -> float:
        """Returns the factor for estimates for a model; see `token_estimate.correction`."""
        factors = (correction_by(self._messages[at], model) for at in reversed(self._answers))
        return next((factor for factor in factors if factor is not None), 1.0)

    def _add(self, at: int, message: Message) -> None:
        self._marks.append(self._state.mark())
        self._messages.append(message)
        self._places[message.message_id] = at
        self.speakers.add(message)
        if message.compaction is not None and message.status is MessageStatus.COMPLETE and message.parts:
            self._summaries.append(at)
        is_ended = message.type is MessageType.ASSISTANT and message.status is not MessageStatus.STREAMING
        if is_ended and message.sent_context is not None:
            self._answers.append(at)
