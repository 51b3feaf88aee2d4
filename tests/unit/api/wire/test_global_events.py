"""Changes of the simple stream, as a client of the fixed contract reads them."""

import pytest

from opencode.event import event_pb2 as pb
from opencode.message import content_pb2 as content
from tests.support.fakes.domain_values import NOW, make_answer, make_file, make_message, make_part
from turnwire.api.wire.answers import times, tools
from turnwire.api.wire.global_events import global_event, unmade_event
from turnwire.core.watches.conflated import Change, MessageChange, PartChange, PermissionChange
from turnwire.core.watches.unmade import LARGE_BYTES, Unmade
from turnwire.domain.conversation.messages import (
    Content,
    FinishReason,
    MessageType,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
)
from turnwire.domain.money import Usage

CALL = ToolUse(name="look", input_json="{}")


def _event(kind: MessageChange | PartChange | PermissionChange) -> pb.GlobalEvent | None:
    return global_event(Change("ses_1", "/work", kind))


def test_an_ended_answer_has_its_finish_and_its_tokens() -> None:
    """Cached tokens are part of the input; the output is what the provider says it is."""
    usage = Usage(input_tokens=1, cache_read_tokens=2, output_tokens=5, reasoning_tokens=3)
    answer = make_answer("msg_1", "text", usage=usage, finish_reason=FinishReason.LENGTH)
    milliseconds = times.milliseconds(NOW)
    assert _event(MessageChange(answer)) == pb.GlobalEvent(
        directory="/work",
        message_updated=pb.MessageUpdated(
            message_id="msg_1",
            role="assistant",
            finish="stop",
            created_at=milliseconds,
            updated_at=milliseconds,
            tokens=pb.MessageTokens(input=3, output=8, reasoning=3),
            session_id="ses_1",
            status=content.MESSAGE_STATUS_COMPLETE,
            finish_reason=content.FINISH_REASON_LENGTH,
        ),
    )


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (Usage(), pb.MessageTokens()),
        (Usage(input_tokens=2), pb.MessageTokens(input=2)),
        (Usage(output_tokens=2), pb.MessageTokens(output=2)),
        (Usage(output_tokens=2, reasoning_tokens=3), pb.MessageTokens(output=5, reasoning=3)),
    ],
)
def test_what_a_provider_does_not_count_is_zero(usage: Usage, tokens: pb.MessageTokens) -> None:
    """The fixed contract has no other word for it."""
    event = _event(MessageChange(make_answer("msg_1", usage=usage)))
    assert event is not None and event.message_updated.tokens == tokens


@pytest.mark.parametrize(
    ("kind", "role"),
    [(MessageType.USER, "user"), (MessageType.HOST, "system"), (MessageType.SYSTEM, "system")],
)
def test_who_speaks_is_told(kind: MessageType, role: str) -> None:
    """In the fixed contract's three words."""
    event = _event(MessageChange(make_message("msg_1", type=kind)))
    assert event is not None and event.message_updated.role == role


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        (Text("a"), {"text": pb.TextPartUpdated(text="a")}),
        (Text(""), {"text": pb.TextPartUpdated()}),
        (Refusal("no"), {"text": pb.TextPartUpdated(text="no")}),
        (Reasoning("so"), {"reasoning": pb.ReasoningPartUpdated(text="so")}),
        (CALL, {"tool": pb.ToolPartUpdated(state=tools.tool_call("prt_2", CALL))}),
    ],
)
def test_a_part_comes_as_it_stands(part: Content, fields: dict[str, object]) -> None:
    """All of its text, or the call with its result."""
    expected = pb.MessagePartUpdated(message_id="msg_1", session_id="ses_1", part_index=2, **fields)  # type: ignore[arg-type]
    event = _event(PartChange("msg_1", make_part(2, part)))
    assert event == pb.GlobalEvent(directory="/work", message_part_updated=expected)


@pytest.mark.parametrize("part", [make_file(b"a"), ToolResult(call_id="c", output=""), ProviderContent("search")])
def test_parts_that_the_fixed_contract_cannot_show_are_left_out(part: Content) -> None:
    """No event at all."""
    assert _event(PartChange("msg_1", make_part(0, part))) is None


def test_a_long_part_is_told_when_there_is_a_place() -> None:
    """All who are told of it have its text once until then; what the fixed contract cannot show is left out."""
    text = "x" * (LARGE_BYTES + 1)
    change = Change("ses_1", "/work", PartChange("msg_1", make_part(0, Text(text))))
    unmade = unmade_event(change)
    assert isinstance(unmade, Unmade)
    assert (unmade.shared is text, unmade.answer_bytes) == (True, len(text))
    assert pb.GlobalEvent.FromString(unmade.make()) == global_event(change)
    hidden = unmade_event(
        Change("ses_1", "/work", PartChange("msg_1", make_part(0, ToolResult(call_id="", output=text))))
    )
    assert isinstance(hidden, Unmade)
    assert hidden.make() == b""
    short = Change("ses_1", "/work", PartChange("msg_1", make_part(0, Text("short"))))
    assert unmade_event(short) == global_event(short)
