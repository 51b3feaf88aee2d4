"""What frames say about themselves."""

import pytest

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import Failure
from opencode.message.message_pb2 import DisplayMessage, MessageList
from tests.support.fakes.domain_values import NOW, make_message
from turnwire.api.wire.codec import ProtoCodec
from turnwire.api.wire.framing import frame
from turnwire.cli.operator.event_frames import ProtoFrames
from turnwire.domain.conversation import events as e
from turnwire.storage.sqlite.care.inspection import EventFacts


@pytest.mark.parametrize(
    ("kind", "name", "revision"),
    [
        (e.MessageAdded(make_message()), "MessageAdded", None),
        (e.SessionDeleted(), "SessionDeleted", None),
        (e.QueueChanged((), 7), "QueueChanged", 7),
    ],
)
def test_event_names_its_place_and_kind(kind: e.DurableKind, name: str, revision: int | None) -> None:
    """The kind as the store files it."""
    encoded = ProtoCodec().encode_event(e.Event(session_id="ses_1", kind=kind, at=NOW, sequence=5))
    assert ProtoFrames().event(encoded) == EventFacts("ses_1", 5, name, revision)


@pytest.mark.parametrize("broken", [b"\xff", b"", frame(b""), frame(SessionEvent(sequence=1).SerializeToString())])
def test_what_is_no_event_is_an_error(broken: bytes) -> None:
    """Also one of a kind that is not known here."""
    with pytest.raises(ValueError, match=r"\w"):
        ProtoFrames().event(broken)


def test_display_forms_are_compared_by_what_they_show() -> None:
    """Not by their bytes: the order of a map is free."""
    metadata = [b"\x1a\x06\n\x01" + name + b"\x12\x01x" for name in (b"a", b"b")]
    one, other = (Failure.FromString(b"".join(order)) for order in (metadata, metadata[::-1]))
    if one.metadata != {"a": "x", "b": "x"}:
        pytest.fail("the field has another number")
    shown = [MessageList(messages=[DisplayMessage(failure=failure)]).SerializeToString() for failure in (one, other)]
    assert ProtoFrames().same_display(*shown)
    assert not ProtoFrames().same_display(shown[0], MessageList().SerializeToString())
    assert not ProtoFrames().same_display(b"\xff", shown[0])
