"""Results of MCP tools as text and files."""

import base64

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

from turnwire.domain.conversation.limits import MAX_RESULT_FILES
from turnwire.ports.tools import ToolFile, ToolOutcome
from turnwire.tools.mcp.results import MAX_FILES_BYTES, MAX_METADATA_BYTES, outcome_of, progress_line


def base64_of(content: bytes) -> str:
    """Returns the content as it comes over the wire."""
    return base64.b64encode(content).decode()


def image(content: bytes, mime: str = "image/png") -> ImageContent:
    """Returns a block with an image."""
    return ImageContent(data=base64_of(content), mime_type=mime)


def blob(uri: str, content: bytes = b"%PDF", mime: str | None = None) -> EmbeddedResource:
    """Returns a block with a resource of bytes."""
    return EmbeddedResource(resource=BlobResourceContents(uri=uri, blob=base64_of(content), mime_type=mime))


def test_bytes_become_files_and_a_line_each() -> None:
    """The line tells a model that cannot see a file that there is one; text stays text."""
    result = CallToolResult(
        content=[
            TextContent(text="hello"),
            image(b"png"),
            AudioContent(data=base64_of(b"wave"), mime_type="audio/wav"),
            ResourceLink(uri="file:///a", name="a"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///b", text="inside")),
            blob("file:///shared/c.pdf", mime="application/pdf"),
        ]
    )
    assert outcome_of(result) == ToolOutcome(
        output="\n".join(
            [
                "hello",
                "[file 1: image/png, 3 bytes]",
                "[file 2: audio/wav, 4 bytes]",
                "[resource file:///a]",
                "inside",
                "[file 3: c.pdf, application/pdf, 4 bytes]",
            ]
        ),
        files=(
            ToolFile(content=b"png", mime="image/png"),
            ToolFile(content=b"wave", mime="audio/wav"),
            ToolFile(content=b"%PDF", mime="application/pdf", filename="c.pdf"),
        ),
    )


@pytest.mark.parametrize(
    ("uri", "filename"),
    [
        ("file:///shared/my%20plan.pdf", "my plan.pdf"),
        ("https://example.org/a/b.png?size=2#top", "b.png"),
        ("notes://today/", ""),
        ("plain.txt", "plain.txt"),
        ("file:///x/..", ""),
        ("file:///x/%2e%2e%2Fetc%2Fpasswd", "passwd"),
        ("file:///C:%5Cwork%5Cplan.pdf", "plan.pdf"),
        ("file:///two%0Alines%00%E2%80%AE.txt", "twolines.txt"),
        ("file:///" + "x" * 300, "x" * 255),
        ("urn:isbn:0451450523", ""),
        ("data:image/png;base64,AA/BB", ""),
        ("http://[broken/name", ""),
        ("", ""),
    ],
)
def test_file_names_come_from_the_uri(uri: str, filename: str) -> None:
    """Its last step, without folders and what cannot be printed."""
    (file,) = outcome_of(CallToolResult(content=[blob(uri)])).files
    assert file.filename == filename


@pytest.mark.parametrize(
    ("mime", "uri", "kept"),
    [
        ("text/csv; charset=utf-8", "file:///a.png", "text/csv; charset=utf-8"),
        (None, "file:///a.png", "image/png"),
        (None, "file:///a", "application/octet-stream"),
        ("no type\nat all", "file:///a.pdf", "application/pdf"),
        ("image/png;\nx", "", "application/octet-stream"),
        ("a/" + "b" * 10_000, "", "application/octet-stream"),
    ],
)
def test_a_media_type_that_is_none_is_not_kept(mime: str | None, uri: str, kept: str) -> None:
    """The one that the file name suggests stands in."""
    (file,) = outcome_of(CallToolResult(content=[blob(uri, mime=mime)])).files
    assert file.mime == kept


@pytest.mark.parametrize("data", ["AAA", "AA=A", "AAAA=", "AAAA====", "AA AA", "AA\nAA", "AA-_", "ä", "="])
def test_broken_base64_becomes_a_line(data: str) -> None:
    """Nothing is guessed of it; the rest of the result is kept."""
    result = CallToolResult(content=[ImageContent(data=data, mime_type="image/png"), image(b"fine")])
    assert outcome_of(result) == ToolOutcome(
        output="[file left out: image/png; its base64 is broken]\n[file 1: image/png, 4 bytes]",
        files=(ToolFile(content=b"fine", mime="image/png"),),
    )


def test_an_empty_file_becomes_a_line() -> None:
    """No provider takes one."""
    assert outcome_of(CallToolResult(content=[image(b"")])) == ToolOutcome(
        output="[file left out: image/png; it is empty]"
    )


def test_files_beyond_the_count_become_lines() -> None:
    """The first ones are kept."""
    outcome = outcome_of(CallToolResult(content=[image(b"%d" % number) for number in range(MAX_RESULT_FILES + 2)]))
    assert [file.content for file in outcome.files] == [b"%d" % number for number in range(MAX_RESULT_FILES)]
    assert outcome.output.splitlines()[MAX_RESULT_FILES - 1 :] == [
        "[file 20: image/png, 2 bytes]",
        "[file left out: image/png, 2 bytes; a result may have 20 files]",
        "[file left out: image/png, 2 bytes; a result may have 20 files]",
    ]


def test_bytes_beyond_the_limit_become_a_line() -> None:
    """A smaller file that still fits is kept, to the last byte."""
    half = b"x" * (MAX_FILES_BYTES // 2)
    outcome = outcome_of(CallToolResult(content=[image(half), image(half + b"x"), image(half), image(b"x")]))
    assert [len(file.content) for file in outcome.files] == [len(half), len(half)]
    assert outcome.output.splitlines() == [
        "[file 1: image/png, 4194304 bytes]",
        "[file left out: image/png, 4194305 bytes; the files of a result may have 8388608 bytes]",
        "[file 2: image/png, 4194304 bytes]",
        "[file left out: image/png, 1 bytes; the files of a result may have 8388608 bytes]",
    ]


def test_structured_content_stands_in_or_beside() -> None:
    """As the output when there is no text; else for people, unless it is large."""
    content = [TextContent(text="hi")]
    assert outcome_of(CallToolResult(content=[], structured_content={"a": 1})).output == '{"a": 1}'
    beside = outcome_of(CallToolResult(content=content, structured_content={"a": 1}, is_error=True))
    assert beside == ToolOutcome(output="hi", is_error=True, metadata_json='{"structuredContent": {"a": 1}}')
    large = outcome_of(CallToolResult(content=content, structured_content={"a": "x" * 20_000}))
    assert large == ToolOutcome(output="hi")
    drawn = outcome_of(CallToolResult(content=[image(b"png")], structured_content={"a": 1}))
    assert drawn.output == '[file 1: image/png, 3 bytes]\n{"a": 1}'


def test_the_limit_of_structured_content_counts_bytes() -> None:
    """A character may be four of them."""
    content = [TextContent(text="hi")]
    spare = len('{"a": ""}')
    for text, kept in (("é" * ((MAX_METADATA_BYTES - spare) // 2), True), ("é" * (MAX_METADATA_BYTES // 2), False)):
        outcome = outcome_of(CallToolResult(content=content, structured_content={"a": text}))
        assert bool(outcome.metadata_json) == kept


@pytest.mark.parametrize(
    ("progress", "total", "message", "line"),
    [(1.0, 3.0, "reading", "1/3 reading"), (0.5, None, None, "0.5"), (2.0, None, "x", "2 x")],
)
def test_progress_is_a_line(progress: float, total: float | None, message: str | None, line: str) -> None:
    """With what is known."""
    assert progress_line(progress, total, message) == line
