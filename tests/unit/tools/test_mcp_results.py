"""Results of MCP tools as text."""

import pytest
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from turnwire.ports.tools import ToolOutcome
from turnwire.tools.mcp_results import outcome_of, progress_line


def test_what_is_no_text_becomes_a_line() -> None:
    """So that the model knows that there was something."""
    result = CallToolResult(
        content=[
            TextContent(type="text", text="hello"),
            ImageContent(type="image", data="AAAA", mime_type="image/png"),
            AudioContent(type="audio", data="AAAA", mime_type="audio/wav"),
            ResourceLink(type="resource_link", uri="file:///a", name="a"),
            EmbeddedResource(type="resource", resource=TextResourceContents(uri="file:///b", text="inside")),
            EmbeddedResource(type="resource", resource=BlobResourceContents(uri="file:///c", blob="AAAA")),
        ]
    )
    assert outcome_of(result).output.splitlines() == [
        "hello",
        "[image image/png, 3 bytes, not shown]",
        "[audio audio/wav, 3 bytes, not shown]",
        "[resource file:///a]",
        "inside",
        "[resource file:///c, not text]",
    ]


def test_structured_content_stands_in_or_beside() -> None:
    """As the output when there is no text; else for people, unless it is large."""
    content = [TextContent(type="text", text="hi")]
    assert outcome_of(CallToolResult(content=[], structured_content={"a": 1})).output == '{"a": 1}'
    beside = outcome_of(CallToolResult(content=content, structured_content={"a": 1}, is_error=True))
    assert beside == ToolOutcome(output="hi", is_error=True, metadata_json='{"structuredContent": {"a": 1}}')
    large = outcome_of(CallToolResult(content=content, structured_content={"a": "x" * 20_000}))
    assert large == ToolOutcome(output="hi")


@pytest.mark.parametrize(
    ("progress", "total", "message", "line"),
    [(1.0, 3.0, "reading", "1/3 reading"), (0.5, None, None, "0.5"), (2.0, None, "x", "2 x")],
)
def test_progress_is_a_line(progress: float, total: float | None, message: str | None, line: str) -> None:
    """With what is known."""
    assert progress_line(progress, total, message) == line
