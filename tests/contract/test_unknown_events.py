"""A client that was generated from today's contract keeps a right conversation when newer kinds of events come."""

import pytest

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.event.session_event_pb2 import MessageAdded, PartDelta, SessionEvent
from opencode.message.content_pb2 import Part, SessionMessage, TextContent
from tests.support.oracles.fold import Fold, SessionFold

UNKNOWN_KIND = 999


def _newer(sequence: int, *, reread: bool) -> bytes:
    """Returns an event of a kind that no reader of today knows, as a newer server sends it."""
    known = SessionEvent(session_id="ses_1", sequence=sequence, reread_if_unknown=reread).SerializeToString()
    body = b"\x0a\x03new"
    tag = UNKNOWN_KIND << 3 | 2  # length-delimited
    return known + bytes((tag & 0x7F | 0x80, tag >> 7, len(body))) + body


def _added(sequence: int, message_id: str, text: str) -> bytes:
    part = Part(part_id=f"prt_{message_id}", text=TextContent(text=text), content_bytes=len(text))
    message = SessionMessage(message_id=message_id, parts=[part])
    event = SessionEvent(session_id="ses_1", sequence=sequence, message_added=MessageAdded(message=message))
    return event.SerializeToString()


def _read(*events: bytes) -> WatchEventsResponse:
    """Returns what a client reads of a batch."""
    return WatchEventsResponse.FromString(b"".join(b"\x0a" + bytes((len(event),)) + event for event in events))


@pytest.mark.parametrize(("reread", "left"), [(False, ["a", "b"]), (True, ["b"])])
def test_an_unknown_kind_is_skipped_or_read_anew(reread: bool, left: list[str]) -> None:
    """As its bit says. Its sequence counts, and what comes after it is folded."""
    batch = _read(_added(1, "a", "one"), _newer(2, reread=reread), _added(3, "b", "two"))
    assert batch.events[1].WhichOneof("kind") is None
    for fold in (SessionFold("ses_1"), Fold()):
        for event in batch.events:
            fold.apply(event)
        one = fold if isinstance(fold, SessionFold) else fold.sessions["ses_1"]
        assert [message.message_id for message in one.listed()] == left
        assert (one.head, len(one.resyncs)) == (3, int(reread))


def test_a_delta_that_names_no_session_is_folded() -> None:
    """By its message, which was told before."""
    fold = Fold()
    for event in _read(_added(1, "a", "one")).events:
        fold.apply(event)
    fold.apply(SessionEvent(part_delta=PartDelta(message_id="a", offset=3, text="!", end_offset=4)))
    assert fold.sessions["ses_1"].text("a") == "one!"
