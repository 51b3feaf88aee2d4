"""Output of a turn in the chat."""

import pytest

from opencode.event.session_event_pb2 import (
    MessageAdded,
    MessageSnapshot,
    PartDelta,
    PartFinished,
    PartStarted,
    SessionEvent,
    ToolCallUpdated,
)
from opencode.message.content_pb2 import (
    MESSAGE_TYPE_ASSISTANT,
    PART_STATUS_COMPLETE,
    PART_STATUS_STREAMING,
    Failure,
    FinishReason,
    Part,
    ReasoningContent,
    SessionMessage,
    TextContent,
)
from opencode.tool.tool_pb2 import ToolCallState
from opencode.turn.turn_pb2 import Turn
from turnwire.cli.chat.printer import MAX_LINE_CHARS, Printer
from turnwire_client import Conversation, UnavailableError, Update

Shown = pytest.CaptureFixture[str]


def answer(*parts: Part, turn_id: str = "t") -> SessionMessage:
    """Returns an answer of a turn."""
    return SessionMessage(message_id=f"m{turn_id}", type=MESSAGE_TYPE_ASSISTANT, turn_id=turn_id, parts=parts)


def text(content: str, status: int = PART_STATUS_COMPLETE, index: int = 0) -> Part:
    """Returns a part."""
    size = len(content.encode())
    return Part(index=index, status=status, text=TextContent(text=content), content_bytes=size)  # type: ignore[arg-type]


def delta(offset: int, new: str, message_id: str = "mt") -> SessionEvent:
    """Adds to a text."""
    end = offset + len(new.encode())
    return SessionEvent(part_delta=PartDelta(message_id=message_id, offset=offset, end_offset=end, text=new))


def show(*events: SessionEvent) -> None:
    """Prints what these events add to the turn `t`."""
    held, printer = Conversation("s"), Printer()
    for event in [SessionEvent(message_added=MessageAdded(message=answer())), *events]:
        held.apply(event)
        printer.show(Update(held, event), {"t"})
    printer.end(Turn(finish_reason=FinishReason.FINISH_REASON_STOP))


def test_each_byte_is_printed_once(capsys: Shown) -> None:
    """In deltas, snapshots and whole parts; without what controls a terminal."""
    show(
        SessionEvent(part_started=PartStarted(message_id="mt", part=text("", PART_STATUS_STREAMING))),
        delta(0, "für\x1b[2J "),
        SessionEvent(message_snapshot=MessageSnapshot(message=answer(text("für\x1b[2J alle ", PART_STATUS_STREAMING)))),
        delta(14, "und"),
        SessionEvent(part_finished=PartFinished(message_id="mt", part=text("für\x1b[2J alle und viele"))),
        SessionEvent(part_finished=PartFinished(message_id="mt", part=text("more\n", index=1))),
    )
    assert capsys.readouterr().out == "für[2J alle und viele\nmore\n"


def test_other_turns_are_not_printed(capsys: Shown) -> None:
    """Nor what is no answer."""
    show(SessionEvent(message_snapshot=MessageSnapshot(message=answer(text("no"), turn_id="u"))), delta(2, "!", "mu"))
    assert capsys.readouterr() == ("", "")


def test_calls_and_reasoning_are_lines_aside(capsys: Shown) -> None:
    """A call has one for its arguments and one for its result, which is cut."""
    call = ToolCallState(id="c", name="look", input_json='{"at":\n1}')
    done = ToolCallState(id="c", name="look", input_json=call.input_json, output="x" * 2 * MAX_LINE_CHARS)
    thought = Part(index=0, status=PART_STATUS_COMPLETE, reasoning=ReasoningContent(text="hm"))
    begun = Part(index=1, status=PART_STATUS_COMPLETE, tool_use=call)
    show(
        SessionEvent(part_finished=PartFinished(message_id="mt", part=thought)),
        SessionEvent(part_finished=PartFinished(message_id="mt", part=begun)),
        SessionEvent(tool_call_updated=ToolCallUpdated(message_id="mt", part_index=1, state=call)),
        SessionEvent(tool_call_updated=ToolCallUpdated(message_id="mt", part_index=1, state=done)),
    )
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[:2] == ["reasoning: hm", 'look {"at": 1}']
    assert [len(line) for line in lines[2:]] == [MAX_LINE_CHARS + 3]


@pytest.mark.parametrize(
    ("turn", "line"),
    [
        (Turn(finish_reason=FinishReason.FINISH_REASON_STOP), ""),
        (Turn(finish_reason=FinishReason.FINISH_REASON_LENGTH), "[length]\n"),
        (Turn(finish_reason=99), "[99]\n"),  # type: ignore[arg-type]
        (Turn(failure=Failure(reason="NO", message="not\x1b now")), "[NO: not now]\n"),
    ],
)
def test_an_end_that_is_none_is_explained(turn: Turn, line: str, capsys: Shown) -> None:
    """By a line of its own."""
    Printer().end(turn)
    assert capsys.readouterr().err == line


def test_a_lost_connection_is_told(capsys: Shown) -> None:
    """The messages that are read anew show the rest."""
    held, printer = Conversation("s"), Printer()
    printer.show(Update(held, problem=UnavailableError("gone")), {"t"})
    held.reset([answer(text("all of it")), answer(text("no"), turn_id="u")], sequence=1, resume_token="r")
    printer.show(Update(held), {"t"})
    assert capsys.readouterr() == ("all of it\n", "[connection lost, trying again: UNKNOWN: gone]\n")
