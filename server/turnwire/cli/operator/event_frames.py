"""Reads stored frames for an examination."""

from google.protobuf.message import DecodeError

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.message.message_pb2 import MessageList
from turnwire.storage.sqlite.care.inspection import EventFacts


class ProtoFrames:
    """Implements `FrameReader` for the frames of `turnwire.api.wire.codec.ProtoCodec`."""

    def event(self, frame: bytes) -> EventFacts:
        """Returns the facts of an event."""
        try:
            events = WatchEventsResponse.FromString(frame).events
        except DecodeError as error:
            raise ValueError(str(error)) from None
        if len(events) != 1 or not (kind := events[0].WhichOneof("kind")):
            raise ValueError("not one event of a known kind")
        [event] = events
        revision = event.queue_changed.revision if kind == "queue_changed" else None
        return EventFacts(event.session_id, event.sequence, kind.title().replace("_", ""), revision)

    def same_display(self, stored: bytes, made: bytes) -> bool:
        """Returns whether two display forms show the same."""
        try:
            return bool(MessageList.FromString(stored) == MessageList.FromString(made))
        except DecodeError:
            return False
