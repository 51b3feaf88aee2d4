"""What is drawn of the events of a session, and when."""

import itertools
from typing import Any

import pytest
from rich.console import RenderableType

from opencode.event.session_event_pb2 import (
    MessageAdded,
    MessageFinished,
    MessageSnapshot,
    PartDelta,
    PartFinished,
    PartStarted,
    SessionEvent,
    ToolCallUpdated,
    TurnEnded,
)
from opencode.message.content_pb2 import (
    FINISH_REASON_STOP,
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_STATUS_STREAMING,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_SYSTEM,
    MESSAGE_TYPE_TOOL_RESULT,
    MESSAGE_TYPE_USER,
    PART_STATUS_COMPLETE,
    PART_STATUS_STREAMING,
    MessageType,
    Part,
    ReasoningContent,
    SessionMessage,
    TextContent,
    ToolResultContent,
)
from opencode.tool.tool_pb2 import ToolCallState
from opencode.turn.turn_pb2 import Turn
from turnwire.cli.chat.view import drawings
from turnwire.cli.chat.view.canvas import draw
from turnwire.cli.chat.view.transcript import MAX_LIVE_CALLS, Transcript

STOPPED = SessionEvent(turn_ended=TurnEnded(turn=Turn(finish_reason=FINISH_REASON_STOP)))


def transcript(*events: SessionEvent, own: set[str] | None = None) -> Transcript:
    """Returns a transcript that took events, with a clock that counts by seconds."""
    made = Transcript(itertools.count().__next__, own or set())
    for event in events:
        made.apply(event)
    return made


def text_of(drawn: list[RenderableType]) -> str:
    """Returns drawings as text."""
    return draw(drawn, 80, styled=False)


def finished(*events: SessionEvent) -> str:
    """Returns what is drawn for good."""
    return text_of(transcript(*events).take(100_000))


def live(*events: SessionEvent) -> str:
    """Returns what is drawn as still changing, after what is finished was taken."""
    made = transcript(*events)
    made.take(100_000)
    return text_of(list(made.live()))


def started(part: Part) -> SessionEvent:
    """Announces a part."""
    return SessionEvent(part_started=PartStarted(message_id="m", part=part))


def delta(offset: int, text: str, index: int = 0) -> SessionEvent:
    """Adds text to a part."""
    return SessionEvent(part_delta=PartDelta(message_id="m", part_index=index, offset=offset, text=text))


def ended(part: Part) -> SessionEvent:
    """Gives a whole part."""
    return SessionEvent(part_finished=PartFinished(message_id="m", part=part))


def text(content: str, index: int = 0, status: int = PART_STATUS_COMPLETE) -> Part:
    """Returns a text part."""
    return Part(index=index, status=status, text=TextContent(text=content))  # type: ignore[arg-type]


def call(status: str, index: int = 0, call_id: str = "c", **fields: str) -> Part:
    """Returns a tool call."""
    state = ToolCallState(id=call_id, name="clock", input_json="{}", status=status, **fields)  # type: ignore[arg-type]
    return Part(index=index, status=PART_STATUS_COMPLETE, tool_use=state)


def updated(status: str, **fields: str) -> SessionEvent:
    """Changes the call."""
    return SessionEvent(tool_call_updated=ToolCallUpdated(message_id="m", state=call(status, **fields).tool_use))


def snapshot(*parts: Part) -> SessionEvent:
    """Gives a message as far as it is."""
    message = SessionMessage(message_id="m", type=MESSAGE_TYPE_ASSISTANT, status=MESSAGE_STATUS_STREAMING, parts=parts)
    return SessionEvent(message_snapshot=MessageSnapshot(message=message))


def test_complete_blocks_are_finished_and_the_open_one_is_live() -> None:
    """Each is drawn for good once."""
    events = (started(text("")), delta(0, "one\n\n"), delta(5, "two\nand"))
    assert finished(*events) == "\none\n"
    assert live(*events) == "\ntwo and\n"
    assert finished(*events, ended(text("one\n\ntwo\nand three"))) == "\none\n\ntwo and three\n"


def test_known_bytes_are_skipped_and_gaps_wait_for_the_whole_part() -> None:
    """The rule of `PartDelta`, in bytes of UTF-8."""
    events = (started(text("")), delta(0, "ab€"), delta(2, "€d"), delta(90, "zz"))
    assert live(*events) == "\nab€d\n"
    assert finished(*events, ended(text("ab€def"))) == "\nab€def\n"


def test_the_whole_part_wins_over_the_deltas() -> None:
    """What was drawn cannot be taken back, so it follows."""
    assert finished(started(text("")), delta(0, "wrong"), ended(text("right"))) == "\nwrong\n\nright\n"


def test_a_snapshot_goes_on_with_what_was_drawn() -> None:
    """As after a lost connection: nothing is drawn twice, and ended parts stay ended."""
    first = (
        started(text("")),
        delta(0, "one\n\ntw"),
        ended(text("one\n\ntwo")),
        started(text("", 1)),
        delta(0, "th", 1),
    )
    again = snapshot(text("one\n\ntwo"), text("three", 1, PART_STATUS_STREAMING))
    assert finished(*first, again, ended(text("three", 1))) == "\none\n\ntwo\n\nthree\n"


def test_text_that_a_killed_server_had_not_stored_is_not_drawn_twice() -> None:
    """The part that it kept is the beginning of what was shown."""
    assert finished(started(text("")), delta(0, "one two three"), ended(text("one two"))) == "\none two three\n"


def test_a_message_that_ends_ends_its_parts() -> None:
    """Also those whose end was lost."""
    over = SessionEvent(message_finished=MessageFinished(message=SessionMessage(message_id="m")))
    assert finished(started(text("")), delta(0, "half"), over) == "\nhalf\n"
    assert live(started(text("")), delta(0, "half"), over) == ""


def test_reasoning_is_one_line_and_kept_whole() -> None:
    """With its length and how long it took."""
    thought = Part(reasoning=ReasoningContent(text="hmm, yes"))
    made = transcript(started(Part(reasoning=ReasoningContent())), delta(0, "hmm, "), ended(thought))
    assert text_of(made.take(1000)) == "\n∴ reasoned for 1.0 s (8 characters, Ctrl-O shows them)\n"
    assert made.last_reasoning == "hmm, yes"
    assert live(started(Part(reasoning=ReasoningContent())), delta(0, "hmm")) == "\n∴ reasons … 3 bytes in 1.0 s\n"


def test_a_call_is_live_until_it_has_its_result() -> None:
    """Then it is drawn once, however often it is told."""
    events = (started(call("pending")), ended(call("pending")), updated("running"))
    assert live(*events) == "\n● clock {} running\n"
    assert finished(*events) == ""
    done = updated("success", output="noon")
    assert finished(*events, done, done, snapshot(call("success", output="noon"))) == "\n● clock {} success\n  noon\n"
    assert live(*events, done) == ""


def test_a_refused_call_shows_its_error() -> None:
    """The end of its part is all that is told of it."""
    assert finished(ended(call("error", error="no such tool"))) == "\n● clock {} error\n  no such tool\n"


def test_many_calls_take_few_lines_while_they_wait() -> None:
    """The rest is counted."""
    events = [ended(call("pending", index, f"c{index}")) for index in range(MAX_LIVE_CALLS + 5)]
    assert live(*events).count("● clock") == MAX_LIVE_CALLS
    assert live(*events).endswith("… and 5 more calls\n")


def test_the_end_of_a_turn_leaves_nothing_live_and_nothing_kept() -> None:
    """What was open is drawn as it is."""
    made = transcript(started(text("")), delta(0, "half"), ended(call("pending", 1)), STOPPED)
    assert text_of(made.take(1000)) == "\nhalf\n\n● clock {} pending\n"
    assert list(made.live()) == []
    assert not made.more


def test_messages_of_others_are_drawn_and_own_ones_are_not() -> None:
    """The terminal shows its own when they are sent."""

    def added(name: str) -> SessionEvent:
        message = SessionMessage(type=MESSAGE_TYPE_USER, request_id=name, sender="ann", parts=[text("hello")])
        return SessionEvent(message_added=MessageAdded(message=message))

    made = transcript(added("mine"), added("theirs"), added(""), own={"mine"})
    assert text_of(made.take(1000)) == "\nann > hello\n\nann > hello\n"


def test_results_without_their_call_are_drawn() -> None:
    """That of a known call is drawn with it."""

    def added(answers: str) -> SessionEvent:
        part = Part(tool_result=ToolResultContent(output="no", is_error=True, exit_code=2))
        message = SessionMessage(type=MESSAGE_TYPE_TOOL_RESULT, answers_message_id=answers, parts=[part])
        return SessionEvent(message_added=MessageAdded(message=message))

    assert text_of(transcript(added(""), added("msg_1")).take(1000)) == "\n● result failed, exit code 2\n  no\n"


@pytest.mark.parametrize(
    ("message_type", "content"),
    [
        (MESSAGE_TYPE_USER, {"text": TextContent(text="words")}),
        (MESSAGE_TYPE_ASSISTANT, {"text": TextContent(text="words")}),
        (MESSAGE_TYPE_HOST, {"text": TextContent(text="words")}),
        (MESSAGE_TYPE_SYSTEM, {"text": TextContent(text="words")}),
        (MESSAGE_TYPE_TOOL_RESULT, {"tool_result": ToolResultContent(call_id="call_1", output="words")}),
    ],
)
def test_messages_of_every_type_are_drawn(message_type: MessageType.ValueType, content: dict[str, Any]) -> None:
    """Whether they carry metadata or not."""
    for metadata in ("", '{"from": "a host"}'):
        message = SessionMessage(type=message_type, metadata_json=metadata, parts=[Part(**content)])
        assert "words" in finished(SessionEvent(message_added=MessageAdded(message=message)))


def test_what_the_server_reports_of_a_turn_is_drawn_by_its_own_event() -> None:
    """Its note would say the end of the turn a second time."""
    note = SessionMessage(
        type=MESSAGE_TYPE_HOST, turn_id="turn_1", metadata_json="{}", parts=[text("The turn failed.")]
    )
    assert finished(SessionEvent(message_added=MessageAdded(message=note))) == ""


def test_remarks_do_not_wait_for_a_text_that_grows() -> None:
    """Other drawings do."""
    made = transcript(started(text("")), delta(0, "half"))
    made.add(drawings.note("after"))
    made.remark(drawings.note("now"))
    assert text_of(made.take(1000)) == "now\n"
    made.apply(ended(text("half")))
    assert text_of(made.take(1000)) == "\nhalf\nafter\n"


def test_a_long_answer_is_taken_in_pieces() -> None:
    """So that keys are read between two frames."""
    made = transcript(ended(text("word\n\n" * 50_000)))
    assert len(text_of(made.take(10_000))) < 30_000
    assert made.more


def test_older_messages_are_recalled_and_a_waiting_one_goes_on() -> None:
    """The snapshot of the message that waits draws nothing again."""
    older = SessionMessage(
        message_id="a", type=MESSAGE_TYPE_USER, status=MESSAGE_STATUS_COMPLETE, parts=[text("hello")]
    )
    parts = [text("I look."), call("pending", 1)]
    waits = SessionMessage(message_id="m", type=MESSAGE_TYPE_ASSISTANT, status=MESSAGE_STATUS_COMPLETE, parts=parts)
    made = transcript()
    made.recall([older, waits])
    made.apply(snapshot(*parts))
    assert text_of(made.take(1000)) == "\n> hello\n\nI look.\n"
    assert text_of(list(made.live())) == "\n● clock {} pending\n"


def test_newer_events_are_skipped() -> None:
    """A server may be newer than its client."""
    assert finished(SessionEvent(sequence=1)) == ""
