"""What is drawn is characters with a look."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import RenderableType
from rich.text import Text

from opencode.file.file_pb2 import FileRef
from opencode.message.content_pb2 import Failure, MessageType, Part, ReasoningContent, SessionMessage, TextContent
from opencode.search.search_pb2 import SearchHit, SnippetPiece
from opencode.session.session_pb2 import SessionInfo
from opencode.tool.tool_pb2 import PermissionRequest, ToolCallState
from opencode.turn.turn_pb2 import Turn
from turnwire.cli.chat.view import drawings
from turnwire.cli.chat.view.canvas import draw
from turnwire.cli.chat.view.markdown_blocks import Block

LOOK = re.compile(r"\x1b\[[0-9;]*m")
"""The only escape codes that are drawn: colours and weight."""

HOSTILE = [
    "\x1b[2J\x1b]0;title\x07",
    "\x9b2J\x90q\x9c",
    "[x](http://a/\x1b]8;;b\x07) ![y](http://a/%1b[2J)",
    "<http://a/%1b%5b2J> <http://a/%07%9b>",
    "&#27;[2J &#x1b;]52;c;eA==&#7; &#155;",
    "```\x1b[2J\n\x1b[31m\n```",
    "| \x1b[2J | b |\n|---|---|\n| \x07 | `\x1b]` |",
    "\u202egnp.exe\u2066",
    "[red]not markup[/red] [link=http://a]x[/link]",
]


def everything(text: str) -> list[RenderableType]:
    """Returns drawings that show a text in every place where foreign text can be."""
    state = ToolCallState(name=text, input_json=text, status=text, output=text, files=[FileRef(filename=text)])
    request = PermissionRequest(id="p", title=text, metadata_json=text, pattern=[text])
    parts = [
        Part(text=TextContent(text=text)),
        Part(reasoning=ReasoningContent(text=text)),
        Part(file=FileRef(filename=text)),
    ]
    return [
        *drawings.markdown(Block(text, continues=False)),
        drawings.said(text, text),
        drawings.note(text),
        drawings.listed(1, SessionInfo(id=text, title=text), is_current=True),
        drawings.found(1, SearchHit(session_id=text, session_title=text, snippet=[SnippetPiece(text=text)])),
        drawings.call(state),
        drawings.call(ToolCallState(name="n", status="error", error=text)),
        *drawings.permission(request, 2),
        *drawings.whole_request(request),
        drawings.permission_closed(text, 3, text),
        *drawings.turn_end(Turn(failure=Failure(reason=text, message=text))),
        *drawings.recalled(SessionMessage(type=MessageType.MESSAGE_TYPE_ASSISTANT, parts=parts)),
        *drawings.recalled(SessionMessage(type=MessageType.MESSAGE_TYPE_HOST, parts=parts, sender_name=text)),
    ]


def assert_harmless(drawn: str) -> None:
    """Fails when a terminal would do anything but show characters."""
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", LOOK.sub("", drawn))


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_text_never_becomes_an_escape_code(text: str) -> None:
    """Wherever it is shown; markdown that decodes characters is no way around."""
    assert_harmless(draw(everything(text), 80))


@given(st.text(alphabet=st.sampled_from("\x1b\x07\x9b[]()<>!`*_#-&;%0127bxJ:/ \n|a"), max_size=60))
def test_no_mixture_of_markdown_and_control_characters_does(text: str) -> None:
    """Whatever it reads as."""
    assert_harmless(draw(everything(text), 40))


def test_no_text_is_read_as_markup_of_the_library() -> None:
    """Brackets are brackets."""
    assert "[red]not markup[/red]" in draw([drawings.said(HOSTILE[-1])], 80)


def test_no_color_leaves_colours_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weight stays."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    assert draw([Text("x", style="bold red")], 80) == "\x1b[1mx\x1b[0m\n"
    monkeypatch.delenv("NO_COLOR")
    assert draw([Text("x", style="bold red")], 80) == "\x1b[1;31mx\x1b[0m\n"


def test_without_style_there_is_no_escape_code() -> None:
    """Text alone."""
    assert draw([Text("x", style="bold red")], 80, styled=False) == "x\n"


def test_lines_are_folded_and_have_no_spaces_at_their_end() -> None:
    """So they can be copied."""
    assert draw([Text("one two three  ")], 8, styled=False) == "one two\nthree\n"


def test_nothing_is_painted_on_a_background() -> None:
    """Terminals are dark or light: code and tables stand on the terminal's own."""
    text = "`code` **`bold`**\n\n```python\nx = 1  # one\n```\n\n    indented\n\n| `a` |\n|---|\n| 1 |"
    drawn = draw(drawings.markdown(Block(text, continues=False)), 40)
    numbers = {number for look in LOOK.findall(drawn) for number in re.findall(r"\d+", look)}
    assert "code" in LOOK.sub("", drawn)
    assert not numbers & {str(number) for number in (7, *range(40, 49), *range(100, 108))}
