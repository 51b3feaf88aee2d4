"""What the terminal shows of a turn."""

import io

import pytest
from rich.console import Console

from opencode.event.session_event_pb2 import (
    MessageSnapshot,
    PartDelta,
    PartFinished,
    PartStarted,
    SessionEvent,
    ToolCallUpdated,
    TurnEnded,
)
from opencode.message.content_pb2 import (
    Failure,
    FinishReason,
    Part,
    ReasoningContent,
    SessionMessage,
    TextContent,
)
from opencode.tool.tool_pb2 import ToolCallState
from opencode.turn.turn_pb2 import Turn
from turnwire.cli.chat.plain.turn_printer import TurnPrinter, finish_reason_name


def shown(*events: SessionEvent) -> str:
    """Returns what is printed for these events."""
    console = Console(file=io.StringIO(), width=40)
    TurnPrinter(console).show(events)
    return console.file.getvalue()


def text_started(index: int = 0) -> SessionEvent:
    """Announces a text part."""
    return SessionEvent(part_started=PartStarted(message_id="m", part=Part(index=index, text=TextContent())))


def delta(offset: int, text: str, index: int = 0) -> SessionEvent:
    """Adds text to a part."""
    return SessionEvent(part_delta=PartDelta(message_id="m", part_index=index, offset=offset, text=text))


def text_finished(text: str, index: int = 0) -> SessionEvent:
    """Gives a whole text part."""
    return SessionEvent(part_finished=PartFinished(message_id="m", part=Part(index=index, text=TextContent(text=text))))


def ended(reason: "FinishReason.ValueType", failure: Failure | None = None) -> SessionEvent:
    """Ends the turn."""
    return SessionEvent(turn_ended=TurnEnded(turn=Turn(finish_reason=reason, failure=failure)))


STOPPED = ended(FinishReason.FINISH_REASON_STOP)


def test_deltas_are_printed_as_they_come_and_parts_on_lines_of_their_own() -> None:
    """Nothing is wrapped, nothing printed twice."""
    reasoning = Part(index=0, reasoning=ReasoningContent(text="hm"))
    events = (
        SessionEvent(part_started=PartStarted(message_id="m", part=Part(index=0, reasoning=ReasoningContent()))),
        delta(0, "hm"),
        SessionEvent(part_finished=PartFinished(message_id="m", part=reasoning)),
        text_started(1),
        delta(0, "a " * 30, 1),
        delta(60, "ü", 1),
        delta(62, "!", 1),
        text_finished("a " * 30 + "ü!", 1),
        STOPPED,
    )
    assert shown(*events) == "reasoning: hm\n" + "a " * 30 + "ü!\n"


def test_what_is_not_the_answer_can_go_elsewhere() -> None:
    """Reasoning, tool calls and why a turn ended; reasoning is called so where it has no look of its own."""
    answer, aside = Console(file=io.StringIO(), width=40), Console(file=io.StringIO(), width=40)
    call = ToolCallState(name="add", input_json="{}", output="3")
    TurnPrinter(answer, aside).show(
        (
            SessionEvent(part_started=PartStarted(message_id="m", part=Part(index=0, reasoning=ReasoningContent()))),
            delta(0, "h"),
            delta(1, "m"),
            SessionEvent(part_finished=PartFinished(message_id="m", part=Part(index=1, tool_use=call))),
            text_started(2),
            delta(0, "cut off", 2),
            ended(FinishReason.FINISH_REASON_LENGTH),
        )
    )
    assert answer.file.getvalue() == "cut off\n"
    assert aside.file.getvalue() == "reasoning: hm\nadd {}\nadd -> 3\n[length]\n"


def test_known_bytes_are_skipped_and_gaps_are_filled_by_the_whole_part() -> None:
    """The rule of `PartDelta`."""
    events = (text_started(), delta(0, "ab"), delta(1, "bc"), delta(9, "zz"), text_finished("abcdef"))
    assert shown(*events) == "abcdef\n"


def test_the_whole_part_wins_over_the_deltas() -> None:
    """It is printed again when it differs."""
    assert shown(text_started(), delta(0, "wrong"), text_finished("right")) == "wrong\nright\n"


def test_a_snapshot_is_gone_on_with() -> None:
    """As after a reconnect."""
    snapshot = SessionEvent(
        message_snapshot=MessageSnapshot(
            message=SessionMessage(message_id="m", parts=[Part(text=TextContent(text="so "))])
        )
    )
    assert shown(snapshot, delta(3, "far"), STOPPED) == "so far\n"


def test_tool_calls_show_arguments_and_result() -> None:
    """On two lines."""
    started = SessionEvent(part_started=PartStarted(message_id="m", part=Part(tool_use=ToolCallState(name="clock"))))
    result = ToolCallUpdated(message_id="m", state=ToolCallState(name="clock", output="noon"))
    assert shown(started, delta(0, "{}"), SessionEvent(tool_call_updated=result)) == "clock {}\nclock -> noon\n"


def test_a_refused_call_shows_its_error() -> None:
    """The end of its part is all that is told of it."""
    started = SessionEvent(part_started=PartStarted(message_id="m", part=Part(tool_use=ToolCallState(name="fly"))))
    refused = ToolCallState(name="fly", input_json="{}", status="error", error="no such tool")
    finished = SessionEvent(part_finished=PartFinished(message_id="m", part=Part(tool_use=refused)))
    assert shown(started, delta(0, "{}"), finished) == "fly {}\nfly -> failed: no such tool\n"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (ended(FinishReason.FINISH_REASON_ABORTED), "[aborted]"),
        (ended(FinishReason.FINISH_REASON_ERROR, Failure(reason="R", message="why")), "[R: why]"),
    ],
)
def test_an_end_other_than_stop_is_told(event: SessionEvent, line: str) -> None:
    """In brackets, after what was said."""
    assert shown(delta(0, "half"), event) == f"half\n{line}\n"


def test_control_characters_do_not_reach_the_terminal() -> None:
    """A model must not be able to steer it."""
    assert shown(delta(0, "a\x1b[2Jb\rc\td\n")) == "a[2Jbc\td\n"


def test_newer_events_and_reasons_are_skipped() -> None:
    """A server may be newer than its client."""
    assert shown(SessionEvent(sequence=1)) == ""
    assert finish_reason_name(999) == "finish reason 999"
    assert finish_reason_name(FinishReason.FINISH_REASON_MAX_STEPS) == "max_steps"
