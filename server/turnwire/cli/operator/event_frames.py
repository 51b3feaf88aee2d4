"""Reads stored frames for an examination."""

from google.protobuf.message import DecodeError

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.message_pb2 import MessageList
from turnwire.api.wire import short_events
from turnwire.storage.sqlite.care.inspection import EventFacts


class ProtoFrames:
    """Implements `FrameReader` for the frames of `turnwire.api.wire.codec.ProtoCodec`."""

    def event(self, frame: bytes) -> EventFacts:
        """Returns the facts of an event."""
        if frame[:1] == short_events.MARK:
            return _facts(short_events.parsed(frame))
        try:
            events = WatchEventsResponse.FromString(frame).events
        except DecodeError as error:
            raise ValueError(str(error)) from None
        if len(events) != 1 or not events[0].WhichOneof("kind"):
            raise ValueError("not one event of a known kind")
        return _facts(events[0])

    def same_display(self, stored: bytes, made: bytes) -> bool:
        """Returns whether two display forms show the same."""
        try:
            return bool(MessageList.FromString(stored) == MessageList.FromString(made))
        except DecodeError:
            return False


def _facts(event: SessionEvent) -> EventFacts:
    kind = event.WhichOneof("kind") or ""
    revision = event.queue_changed.revision if kind == "queue_changed" else None
    return EventFacts(event.session_id, event.sequence, kind.title().replace("_", ""), revision)
