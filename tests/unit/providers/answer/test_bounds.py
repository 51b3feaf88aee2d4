"""What an answer may bring, and what all may hold together."""

import pytest

from turnwire.domain.errors import ProviderAnswerOverLimit
from turnwire.domain.limits import Limits
from turnwire.ports.provider import PartEnded, ProviderContentReceived, TextDelta, ToolCallDelta
from turnwire.providers.answer.bounds import ALWAYS_BYTES, AnswerBounds, AnswersMemory


def check(bounds: AnswerBounds, events: int = 0, kept: int = 0, pending: int = 0) -> str:
    """Counts a read; returns the limit that it is over."""
    try:
        bounds.check(events, kept_bytes=kept, pending_bytes=pending)
    except ProviderAnswerOverLimit as error:
        return error.metadata["limit"].removeprefix("limits.")
    return ""


def test_a_limit_is_reached_and_not_exceeded() -> None:
    """At the limit an answer goes on; one beyond it ends."""
    bounds = AnswerBounds(Limits(max_answer_events=10, max_answer_state_bytes=100), AnswersMemory())
    assert check(bounds, events=10) == ""
    assert check(bounds, events=1) == "max_answer_events"
    bounds = AnswerBounds(Limits(max_answer_state_bytes=100), AnswersMemory())
    bounds.note_item(ProviderContentReceived(0, "k", "x" * 40))
    bounds.note_item(PartEnded(1, "x" * 40))
    assert check(bounds, kept=20) == ""
    assert check(bounds, kept=21) == "max_answer_state_bytes"


def test_what_is_held_is_given_back() -> None:
    """When an event is complete, when the reader has passed on what it kept, and when the answer has ended."""
    memory = AnswersMemory()
    with AnswerBounds(Limits(), memory) as bounds:
        check(bounds, kept=10, pending=20)
        assert memory.held_bytes == 30
        bounds.note_item(TextDelta(0, "hello"))
        bounds.note_item(ToolCallDelta(1, "name", "id", "{}"))
        check(bounds)
        assert memory.held_bytes == 7
    assert memory.held_bytes == 0


def test_small_answers_go_on_beside_large_ones() -> None:
    """Whoever came first: only an answer that holds much ends when there is no room."""
    memory, limits = AnswersMemory(), Limits(max_answers_memory_bytes=4 * ALWAYS_BYTES)
    large, small, late = (AnswerBounds(limits, memory) for _ in range(3))
    with large, small, late:
        assert check(large, pending=4 * ALWAYS_BYTES) == ""
        assert check(small, pending=ALWAYS_BYTES) == ""
        assert check(late, pending=ALWAYS_BYTES + 1) == "max_answers_memory_bytes"
        assert check(large, pending=ALWAYS_BYTES) == ""
    with large:
        assert check(large, pending=4 * ALWAYS_BYTES) == ""
    assert memory.held_bytes == 0


@pytest.mark.parametrize("item", [TextDelta(0, None), ToolCallDelta(0, ["x"]), PartEnded(0, text={})])  # type: ignore[arg-type]
def test_a_value_that_is_no_text(item: TextDelta) -> None:
    """Is an error of the provider; nothing behind it has to look."""
    with pytest.raises(ValueError, match="no text"):
        AnswerBounds(Limits(), AnswersMemory()).note_item(item)
