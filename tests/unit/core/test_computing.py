"""Long computations do not hold the event loop."""

import threading

import pytest

from tests.support.fakes.domain_values import make_answer, make_message, make_part
from turnwire.core.computing import MANY_BYTES, MANY_PARTS, compute
from turnwire.domain.conversation.messages import Message, Text


def many(count: int) -> list[Message]:
    """Returns so many short messages."""
    return [make_message("m", "word")] * count


@pytest.mark.parametrize(
    ("messages", "is_on_thread"),
    [
        ([], False),
        (many(MANY_PARTS), False),
        (many(MANY_PARTS + 1), True),
        ([make_answer("m", *(make_part(at, Text("a")) for at in range(MANY_PARTS + 1)))], True),
        ([make_message("m", "a" * (MANY_BYTES - 1_000))], False),
        ([make_message("m", "a" * MANY_BYTES)], True),
    ],
)
async def test_what_is_large_is_computed_on_a_thread(messages: list[Message], is_on_thread: bool) -> None:
    """Many messages, or long ones; the rest is computed at once."""
    thread = await compute(threading.current_thread, messages)
    assert (thread is not threading.current_thread()) is is_on_thread
