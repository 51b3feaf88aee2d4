"""Memory that a message takes, about."""

import pytest

from tests.support.fakes.domain_values import make_message, make_part
from turnwire.domain.conversation.messages import Content, Reasoning, Text, ToolResult, ToolStatus, ToolUse
from turnwire.domain.conversation.sizes import BARE_BYTES, message_bytes

LONG = "x" * 100_000


@pytest.mark.parametrize(
    "content",
    [
        Text(LONG),
        Reasoning(LONG),
        ToolResult(call_id="c", output=LONG),
        ToolUse(name="t", input_json=LONG),
        ToolUse(name="t", output=LONG, status=ToolStatus.SUCCESS),
        ToolUse(name="t", error=LONG, status=ToolStatus.ERROR),
    ],
)
def test_every_text_counts(content: Content) -> None:
    """Results too that have a message of their own."""
    assert message_bytes(make_message("msg_1", make_part(0, content))) == BARE_BYTES + len(LONG)


def test_parts_count_without_a_text() -> None:
    """A message may have thousands."""
    parts = [make_part(index, Text("")) for index in range(1000)]
    assert 200_000 < message_bytes(make_message("msg_1", *parts)) < 300_000
