"""The updates of one answer as Plue's JSON: a pure fold from the events of its turn.

updates = Updates(turn_id)
for event in events:                      # of StreamMessage, or of WatchEvents
    for update in updates.apply(event):   # JSON text, one for each callback
        callback(update)
return updates.code                       # what plue_message_stream_response returned
"""

from collections.abc import Iterator

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message import content_pb2 as pb
from opencode.turn.turn_pb2 import Turn
from turnwire.interop.plue.codes import PlueCode, plue_code
from turnwire.interop.plue.messages import encoded, totals

_CUT = frozenset({pb.FINISH_REASON_ABORTED, pb.FINISH_REASON_INTERRUPTED})


class Updates:
    """Folds the events of one turn. Nothing is sent twice, and deltas that did not come are made up for."""

    def __init__(self, turn_id: str) -> None:
        """Takes the turn that answers the message: `SendMessageResponse.turn_id`. Events of others are skipped."""
        self._turn_id = turn_id
        self._message_id = ""
        self._messages: set[str] = set()
        self._sent: dict[tuple[str, int], int] = {}
        # bytes (UTF-8) of each text part that were sent, as the contract counts them
        self._calls: set[str] = set()
        self.code: PlueCode | None = None
        """None until the answer is done, then its outcome. The parts that came stay, whatever it is."""

    def apply(self, event: SessionEvent) -> list[str]:
        """Returns the updates of an event as JSON text; none after `done`, which comes exactly once."""
        if self.code is not None:
            return []
        return [encoded(update) for update in self._of(event)]

    def _of(self, event: SessionEvent) -> Iterator[dict[str, object]]:
        match event.WhichOneof("kind"):
            case "message_added":
                self._begin(event.message_added.message)
            case "message_snapshot":
                self._begin(event.message_snapshot.message)
                for part in event.message_snapshot.message.parts:
                    yield from self._part(event.message_snapshot.message.message_id, part)
            case "part_started":
                yield from self._part(event.part_started.message_id, event.part_started.part)
            case "part_delta":
                delta = event.part_delta
                yield from self._delta(delta.message_id, delta.part_index, delta.offset, delta.text)
            case "part_finished":
                yield from self._part(event.part_finished.message_id, event.part_finished.part)
            case "turn_ended" if event.turn_ended.turn.turn_id == self._turn_id:
                turn = event.turn_ended.turn
                self.code = _outcome(turn)
                yield {"type": "done", "message_id": self._message_id, **totals(turn)}

    def _begin(self, message: pb.SessionMessage) -> None:
        if message.turn_id == self._turn_id and message.type == pb.MESSAGE_TYPE_ASSISTANT:
            self._message_id = message.message_id
            self._messages.add(message.message_id)

    def _part(self, message_id: str, part: pb.Part) -> Iterator[dict[str, object]]:
        """Yields what of a part was not sent yet."""
        if message_id not in self._messages:
            return
        match part.WhichOneof("content"):
            case "text":
                yield from self._content(message_id, part.index, part.text.text)
            case "refusal":
                yield from self._content(message_id, part.index, part.refusal.text)
            case "tool_use" if part.status != pb.PART_STATUS_STREAMING and part.tool_use.id not in self._calls:
                self._calls.add(part.tool_use.id)
                yield {"type": "tool_use", "tool_use_id": part.tool_use.id, "message_id": message_id}

    def _content(self, message_id: str, index: int, whole: str) -> Iterator[dict[str, object]]:
        """Yields what a part has beyond what was sent, and tells from now on of its deltas."""
        self._sent.setdefault((message_id, index), 0)
        yield from self._delta(message_id, index, 0, whole)

    def _delta(self, message_id: str, index: int, offset: int, text: str) -> Iterator[dict[str, object]]:
        sent = self._sent.get((message_id, index))
        data = text.encode()
        if sent is None or not offset <= sent < offset + len(data):
            return  # another kind of part, nothing new, or a gap, which the finished part fills
        self._sent[message_id, index] = offset + len(data)
        new = data[sent - offset :].decode()
        yield {"type": "content", "content": new, "message_id": message_id, "part_index": index}


def _outcome(turn: Turn) -> PlueCode:
    if turn.HasField("failure"):
        return plue_code(turn.failure.reason)
    return PlueCode.ABORTED if turn.finish_reason in _CUT else PlueCode.OK
