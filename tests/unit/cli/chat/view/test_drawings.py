"""How things look."""

import json
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from opencode.message.content_pb2 import (
    FINISH_REASON_ABORTED,
    FINISH_REASON_STOP,
    MessageType,
    Part,
    SessionMessage,
    TextContent,
    TokenUsage,
    ToolResultContent,
)
from opencode.question.question_pb2 import LinkForm, Question, SchemaForm
from opencode.tool.tool_pb2 import PermissionReply, PermissionRequest, ToolCallState
from opencode.turn.turn_pb2 import Turn
from turnwire.cli.chat.asking.filling import Filling
from turnwire.cli.chat.view import drawings
from turnwire.cli.chat.view.canvas import draw
from turnwire.cli.chat.view.markdown_blocks import Block


def text_of(*drawn: object) -> str:
    """Returns what is drawn as text."""
    return draw(drawn, 100, styled=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("- one\n- two", "\n • one\n • two\n"),
        ("<details>kept</details>", "\n<details>kept</details>\n"),
        ("[here](http://there/)", "\nhere (http://there/)\n"),
        ("a <b>c</b> d", "\na <b>c</b> d\n"),
    ],
)
def test_markdown_loses_no_text(markdown: str, text: str) -> None:
    """HTML is text, and the target of a link is shown."""
    assert text_of(*drawings.markdown(Block(markdown, continues=False))) == text


def test_a_block_that_continues_has_no_empty_line_before_it() -> None:
    """As the items of one list."""
    assert text_of(*drawings.markdown(Block("3. three", continues=True))) == " 3 three\n"


def test_a_call_shows_arguments_and_result_shortened() -> None:
    """With its status and how long it took."""
    state = ToolCallState(
        name="fs.read",
        input_json='{"path":\n"a"}',
        status="success",
        output="line\n" * 9,
        started_at=1000,
        finished_at=2500,
    )
    lines = text_of(drawings.call(state)).split("\n")
    assert lines[1] == '● fs.read {"path": "a"} success 1.5 s'
    assert lines[2:] == ["  line"] * 6 + ["  … (3 more lines)", ""]
    long = text_of(drawings.call(ToolCallState(name="f", input_json="x" * 500, status="error", error="y" * 5000)))
    assert "… (300 more characters) error" in long.replace("\n", " ")
    assert len(long) < 1200


def test_a_running_turn_says_how_to_end_it() -> None:
    """And what else counts."""
    assert text_of(drawings.running(1.5, 0, lost=False)) == "… 1.5 s, Ctrl-C ends the answer\n"
    assert (
        text_of(drawings.running(1.5, 2, lost=True)) == "… 1.5 s, 2 waiting, connection lost, Ctrl-C ends the answer\n"
    )


def test_a_question_says_what_may_be_typed() -> None:
    """And how many wait."""
    shown = text_of(*drawings.permission(PermissionRequest(title="fs.write {}"), 2))
    assert shown.startswith("? asks to run (1 of 2) fs.write {}\n")
    assert "y allows it once" in shown


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (PermissionReply.PERMISSION_REPLY_ONCE, "allowed once: why: t"),
        (PermissionReply.PERMISSION_REPLY_REJECT, "denied: why: t"),
        (999, "closed: why: t"),
    ],
)
def test_an_answered_question_says_how(reply: int, words: str) -> None:
    """Newer answers have no word."""
    assert text_of(drawings.permission_closed("t", reply, "why")) == f"{words}\n"


def test_the_end_of_a_turn_says_what_it_used() -> None:
    """And why it ended, unless the model had finished."""
    turn = Turn(
        finish_reason=FINISH_REASON_STOP,
        start_time=Timestamp(seconds=1),
        end_time=Timestamp(seconds=3),
        usage=TokenUsage(input_tokens=1000, cache_read_tokens=234, output_tokens=5),
        cost_pico_usd=1_230_000_000,
    )
    assert text_of(*drawings.turn_end(turn)) == "2.0 s · 1,234 tokens in, 5 out · $0.001230\n"
    assert text_of(*drawings.turn_end(Turn(finish_reason=FINISH_REASON_ABORTED))) == "\n[aborted]\n"


def test_messages_of_before_are_shortened() -> None:
    """Text by text."""
    message = SessionMessage(
        type=MessageType.MESSAGE_TYPE_USER, sender_name="Ann", parts=[Part(text=TextContent(text="x " * 2500))]
    )
    shown = text_of(*drawings.recalled(message))
    assert shown.startswith("\nAnn > x x")
    assert "(1,000 more characters)" in shown.replace("\n", " ")


def test_a_result_without_its_call_tells_how_it_ended() -> None:
    """A failed command does not look like a good one."""

    def shown(**fields: Any) -> str:
        part = Part(tool_result=ToolResultContent(**fields))
        return text_of(*drawings.recalled(SessionMessage(type=MessageType.MESSAGE_TYPE_TOOL_RESULT, parts=[part])))

    assert shown(output="no\n", is_error=True, exit_code=2) == "\n● result failed, exit code 2\n  no\n"
    assert shown(output="yes", exit_code=0) == "\n● result exit code 0\n  yes\n"


def test_times_have_the_unit_that_fits() -> None:
    """Seconds, then minutes."""
    assert [drawings.duration(seconds) for seconds in (0.04, 59.9, 61)] == ["0.0 s", "59.9 s", "1 min 1 s"]


def test_a_question_of_a_tool_shows_who_asks_and_all_of_its_address() -> None:
    """Without what steers a terminal, and without lines that look like the chat's own."""
    link = LinkForm(url="https://example.com/" + "x" * 300)
    asked = Question(source="ask", prompt="\x1b[2JGo\n> y", metadata_json='{"tool": "ask.go"}', link=link)
    shown = text_of(*drawings.asked(asked))
    assert shown.startswith("\n? ask (ask.go) asks\n  [2JGo\n  > y\n  at example.com, in your browser:\nhttps://")
    assert link.url in shown.replace("\n", "")
    assert text_of(*drawings.asked(Question(source="a", prompt="p", metadata_json="[", link=LinkForm(url="//[")))) == (
        "\n? a asks\n  p\n  at , in your browser:\n//[\n"
    )


def test_a_field_shows_its_first_choices() -> None:
    """All of them on demand, so that the prompt stays in sight."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "enum": [f"c{number}" for number in range(40)]}}}
    asked = Filling(Question(source="ask", schema=SchemaForm(schema_json=json.dumps(schema))))
    shown = text_of(*drawings.filling(asked, 2))
    assert shown.startswith("? ask (1 of 2) asks, 1 of 1: x (one of the choices, optional)\n  1 c0\n")
    assert "  6 c5\n  … and 34 more\n" in shown
    assert asked.field is not None
    assert "  40 c39\n" in text_of(*drawings.whole_field(asked.field))


def test_a_form_of_many_fields_leaves_room_for_how_to_answer() -> None:
    """The rest of what was filled in is shown on demand."""
    schema = {"type": "object", "properties": {f"f{number}": {"type": "string"} for number in range(20)}}
    asked = Filling(Question(source="ask", prompt="p", schema=SchemaForm(schema_json=json.dumps(schema))))
    for number in range(20):
        asked.take(f"v{number}")
    shown = text_of(*drawings.filling(asked, 1))
    assert "  6 f5: v5\n  … and 14 more\n  y sends it" in shown
    assert "  20 f19: v19\n" in text_of(*drawings.filled(asked))


@pytest.mark.parametrize(
    ("action", "words"),
    [(1, "answered: why: s: p"), (2, "declined: why: s: p"), (3, "put away: why: s: p"), (99, "closed: why: s: p")],
)
def test_how_a_question_was_closed_is_told(action: int, words: str) -> None:
    """By whomever; what was filled in is not in it."""
    assert text_of(drawings.question_closed(Question(source="s", prompt="p"), action, "why")) == f"{words}\n"
