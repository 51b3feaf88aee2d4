"""Events a second that the Python client folds: one long answer, as clients/vectors/README.md describes it."""

import time
from collections.abc import Iterator
from pathlib import Path

from bench import report
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
from turnwire_client import Conversation

EVENTS = 100_000
PER_BATCH = 100
SESSION, MESSAGE = "ses_1", "msg_1"
WANTED = 100_000.0


async def measure(_: Path, quick: bool) -> None:
    """Folds the stream some times and prints the best rates."""
    report.title("client_fold", f"{EVENTS:,} events of one answer, folded by the Python client")
    batches = [WatchEventsResponse.FromString(batch) for batch in _batches()]
    for looks, name in ((False, "without looking"), (True, "the text is read after each batch")):
        seconds = min(_fold(batches, looks=looks) for _ in range(2 if quick else 5))
        report.show([report.Figure(name, EVENTS / seconds, None, "events/s", wanted=WANTED)])


def _fold(batches: list[WatchEventsResponse], *, looks: bool) -> float:
    """Returns the seconds that the whole stream takes."""
    held = Conversation(SESSION)
    began = time.perf_counter()
    for batch in batches:
        for event in batch.events:
            held.apply(event)
        if looks:
            held.text(MESSAGE)
    seconds = time.perf_counter() - began
    if not held.text(MESSAGE).endswith(_piece(EVENTS - 5)):
        raise AssertionError("the text is not complete")
    return seconds


def _piece(number: int) -> str:
    return f"delta {number:07} "


def _batches() -> Iterator[bytes]:
    events = list(_events())
    for first in range(0, EVENTS, PER_BATCH):
        yield WatchEventsResponse(events=events[first : first + PER_BATCH]).SerializeToString()


def _events() -> Iterator[SessionEvent]:
    message = SessionMessage(
        message_id=MESSAGE, session_id=SESSION, type=MESSAGE_TYPE_ASSISTANT, status=MESSAGE_STATUS_STREAMING
    )
    yield SessionEvent(sequence=1, session_id=SESSION, message_added=MessageAdded(message=message))
    part = Part(part_id="prt_1", status=PART_STATUS_STREAMING, text=TextContent())
    yield SessionEvent(part_started=PartStarted(message_id=MESSAGE, part=part))
    texts = [_piece(number) for number in range(EVENTS - 4)]
    offset = 0
    for text in texts:
        delta = PartDelta(message_id=MESSAGE, offset=offset, text=text, end_offset=offset + len(text))
        offset += len(text)
        yield SessionEvent(part_delta=delta)
    whole = Part(
        part_id="prt_1", status=PART_STATUS_COMPLETE, text=TextContent(text="".join(texts)), content_bytes=offset
    )
    yield SessionEvent(sequence=2, session_id=SESSION, part_finished=PartFinished(message_id=MESSAGE, part=whole))
    message.status, message.finish_reason = MESSAGE_STATUS_COMPLETE, FINISH_REASON_STOP
    yield SessionEvent(sequence=3, session_id=SESSION, message_finished=MessageFinished(message=message))
