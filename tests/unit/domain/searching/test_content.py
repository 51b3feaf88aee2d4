"""What of a part is searched."""

import pytest

from turnwire.domain.conversation.messages import (
    Content,
    File,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.searching.content import MAX_SEARCHED_CHARACTERS, searched_text

DONE = ToolStatus.SUCCESS


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (Text("said"), "said"),
        (Refusal("no"), "no"),
        (Reasoning("thought"), ""),
        (ProviderContent(kind="web_search_call"), ""),
        (ToolUse(name="fs.read", input_json='{"a": 1}'), ""),
        (ToolUse(name="fs.read", input_json='{"a": 1}', status=DONE, output="b"), 'fs.read\n{"a": 1}\nb'),
        (ToolUse(name="fs.read", status=ToolStatus.ERROR, error="e"), "fs.read\ne"),
        (ToolUse(name="fs.read", status=ToolStatus.CANCELLED), "fs.read"),
        (ToolResult(call_id="c", output="found"), "found"),
        (File(sha256="0" * 64, size_bytes=1, mime="text/plain", filename="a.txt", path="/b/a.txt"), "a.txt"),
        (File(sha256="0" * 64, size_bytes=1, mime="text/plain", path="/b/a.txt"), "/b/a.txt"),
        (Text("x" * 99_999), "x" * MAX_SEARCHED_CHARACTERS),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_searched_text_of_a_part(content: Content, text: str) -> None:
    """What was said, asked of tools and answered by them, up to a limit."""
    assert searched_text(content) == text
