"""Changes of the simple stream, as a client of the fixed contract reads them."""

from opencode.event import event_pb2 as pb
from tests.support.fakes.domain_values import make_part
from turnwire.api.wire.global_events import global_event, unmade_event
from turnwire.core.watches.conflated import Change, PartChange
from turnwire.core.watches.unmade import LARGE_BYTES
from turnwire.domain.conversation.messages import Text, ToolResult


def test_a_long_part_is_told_when_there_is_a_place() -> None:
    """All who are told of it have its text once until then; what the fixed contract cannot show is left out."""
    text = "x" * (LARGE_BYTES + 1)
    change = Change("ses_1", "/work", PartChange("msg_1", make_part(0, Text(text))))
    unmade = unmade_event(change)
    assert (unmade.shared is text, unmade.answer_bytes) == (True, len(text))
    assert pb.GlobalEvent.FromString(unmade.make()) == global_event(change)
    hidden = unmade_event(
        Change("ses_1", "/work", PartChange("msg_1", make_part(0, ToolResult(call_id="", output=text))))
    )
    assert hidden.make() == b""
    short = Change("ses_1", "/work", PartChange("msg_1", make_part(0, Text("short"))))
    assert unmade_event(short) == global_event(short)
