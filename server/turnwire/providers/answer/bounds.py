"""What one answer may bring, and what all may hold together. Counted for each read, not for each byte."""

from turnwire.domain.errors import ProviderAnswerOverLimit
from turnwire.domain.limits import Limits
from turnwire.ports.provider import (
    PartEnded,
    ProviderContentReceived,
    ReasoningDelta,
    RefusalDelta,
    ResponseStarted,
    StepFinished,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)

ALWAYS_BYTES = 2**18
"""What each answer may hold whatever others hold: more than nearly all have."""


class AnswersMemory:
    """Counts what the answers that are being received hold. Used on one event loop only."""

    def __init__(self) -> None:
        """Counts none."""
        self.held_bytes = 0
        """Of all answers together."""


class AnswerBounds:
    """Counts one answer; a context manager, which counts it out in the end."""

    def __init__(self, limits: Limits, memory: AnswersMemory) -> None:
        """Takes the limits, and what all answers hold."""
        self._limits = limits
        self._memory = memory
        self._events = 0
        self._text_characters = 0
        self._state_characters = 0
        self._held_bytes = 0

    @property
    def max_event_bytes(self) -> int:
        """The largest event."""
        return self._limits.max_answer_event_bytes

    def __enter__(self) -> "AnswerBounds":
        """Holds nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Counts out what the answer held."""
        self._memory.held_bytes -= self._held_bytes
        self._held_bytes = 0

    def note_item(self, item: StreamItem) -> None:
        """Counts what the core keeps of an item; `check` compares.

        Raises:
            ValueError: the provider sent a value of another type where a text belongs.
        """
        match item:
            case TextDelta(text=str(text)) | ReasoningDelta(text=str(text)) | RefusalDelta(text=str(text)):
                self._text_characters += len(text)
            case ToolCallDelta(name=str(), call_id=str(), arguments=str(text)):
                self._text_characters += len(text)
            case PartEnded(provider_state=str() | None, text=str() | None):
                self._state_characters += len(item.provider_state or "")
                self._text_characters += len(item.text or "")
            case ProviderContentReceived(kind=str(), state=str(state)):
                self._state_characters += len(state)
            case ResponseStarted(model_served=str(), response_id=str()) | StepFinished(provider_reason=str()):
                pass
            case UsageReported():
                pass
            case _:
                raise ValueError("a value is no text")

    def check(self, events: int, *, kept_bytes: int, pending_bytes: int) -> None:
        """Counts a read.

        Args:
            events: Events that it had.
            kept_bytes: What the reader keeps of the answer so far, to pass it on later.
            pending_bytes: What has come of an event that is not complete.

        Raises:
            ProviderAnswerOverLimit: the answer brings too much, or all answers hold too much and this one is not small.
        """
        self._events += events
        state, limits = self._state_characters + kept_bytes, self._limits
        if self._events > limits.max_answer_events:
            raise ProviderAnswerOverLimit.of("has too many events", "max_answer_events", limits.max_answer_events)
        if state > limits.max_answer_state_bytes:
            raise ProviderAnswerOverLimit.of(
                "has too much that is for the provider alone", "max_answer_state_bytes", limits.max_answer_state_bytes
            )
        held = self._text_characters + state + pending_bytes
        self._memory.held_bytes += held - self._held_bytes
        self._held_bytes = held
        if held > ALWAYS_BYTES and self._memory.held_bytes > limits.max_answers_memory_bytes:
            raise ProviderAnswerOverLimit.of(
                "found no room beside other answers", "max_answers_memory_bytes", limits.max_answers_memory_bytes
            )


def too_large_event(limit: int) -> ProviderAnswerOverLimit:
    """Returns the error for an event that is larger than an answer may have."""
    return ProviderAnswerOverLimit.of("has too large an event", "max_answer_event_bytes", limit)
