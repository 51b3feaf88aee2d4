"""The large stream of clients/vectors/README.md, which is made at run time."""

from collections.abc import Iterator

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.event.session_event_pb2 import (
    MessageAdded,
    MessageFinished,
    PartDelta,
    PartFinished,
    PartStarted,
    SessionEvent,
)
from opencode.message.content_pb2 import (
    FINISH_REASON_STOP,
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_STATUS_STREAMING,
    MESSAGE_TYPE_ASSISTANT,
    PART_STATUS_COMPLETE,
    PART_STATUS_STREAMING,
    Part,
    SessionMessage,
    TextContent,
)

EVENTS = 100_000
DELTAS = EVENTS - 4
CONTENT_BYTES = 14 * DELTAS
BATCH = 100


def large_stream() -> list[WatchEventsResponse]:
    """Returns the batches."""
    events = list(_events())
    return [WatchEventsResponse(events=events[place : place + BATCH]) for place in range(0, EVENTS, BATCH)]


def _events() -> Iterator[SessionEvent]:
    message = SessionMessage(
        message_id="msg_1", session_id="ses_1", type=MESSAGE_TYPE_ASSISTANT, status=MESSAGE_STATUS_STREAMING
    )
    yield SessionEvent(sequence=1, session_id="ses_1", message_added=MessageAdded(message=message))
    part = Part(part_id="prt_1", status=PART_STATUS_STREAMING, text=TextContent())
    yield SessionEvent(part_started=PartStarted(message_id="msg_1", part=part))
    for number in range(DELTAS):
        yield SessionEvent(
            part_delta=PartDelta(
                message_id="msg_1", offset=14 * number, text=f"delta {number:07} ", end_offset=14 * (number + 1)
            )
        )
    part.status = PART_STATUS_COMPLETE
    part.text.text = "".join(f"delta {number:07} " for number in range(DELTAS))
    part.content_bytes = CONTENT_BYTES
    yield SessionEvent(sequence=2, session_id="ses_1", part_finished=PartFinished(message_id="msg_1", part=part))
    message.status = MESSAGE_STATUS_COMPLETE
    message.finish_reason = FINISH_REASON_STOP
    yield SessionEvent(sequence=3, session_id="ses_1", message_finished=MessageFinished(message=message))
