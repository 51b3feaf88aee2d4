"""The updates of one answer as Plue's JSON: a pure fold from the events of its turn.

A client that loses its connection goes on with the state of the fold: nothing is sent twice, and what it missed comes.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Self

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message import content_pb2 as pb
from opencode.turn.turn_pb2 import Turn
from turnwire_adapters.plue.codes import PlueCode, plue_code
from turnwire_adapters.plue.messages import totals

_CUT = frozenset({pb.FINISH_REASON_ABORTED, pb.FINISH_REASON_INTERRUPTED})


class Updates:
    """Folds the events of one turn. Nothing is sent twice, and deltas that did not come are made up for."""

    def __init__(self, turn_id: str, output_price: int | None = None) -> None:
        """Takes the turn that answers the message, whose events alone count.

        Args:
            turn_id: The turn.
            output_price: Of a million output tokens of its model in pico-USD; None when it is not known.
        """
        self._turn_id = turn_id
        self._output_price = output_price
        self._message_id = ""
        self._messages: set[str] = set()
        self._sent: dict[tuple[str, int], tuple[int, int]] = {}
        """Bytes (UTF-8) of each text part that were sent, as the contract counts them, and their CRC-32."""
        self._kept: dict[tuple[str, int], str] = {}
        """Texts of finished parts that are not what was sent: a server that is killed loses the end, or asks again."""
        self._calls: set[str] = set()
        self.code: PlueCode | None = None
        """None until the answer is done, then its outcome. The parts that came stay, whatever it is."""

    @classmethod
    def resumed(cls, turn_id: str, state: str, output_price: int | None = None) -> tuple[Self, str]:
        """Returns a fold in a state, and where its watch goes on.

        Raises:
            ValueError: it is no state of this turn.
        """
        try:
            turn, token, message_id, messages, sent, calls = json.loads(base64.urlsafe_b64decode(state))
            found = cls(turn_id, output_price)
            found._message_id, found._messages, found._calls = str(message_id), set(messages), set(calls)
            found._sent = {(str(name), int(index)): (int(count), int(crc)) for name, index, count, crc in sent}
        except (TypeError, OverflowError, RecursionError) as error:
            raise ValueError("it has another form") from error
        if turn != turn_id or not isinstance(token, str):
            raise ValueError("it is of another turn")
        return found, token

    def state(self, resume_token: str) -> str:
        """Returns the state as a short text; the watch goes on at the token."""
        sent = [[name, index, count, crc] for (name, index), (count, crc) in self._sent.items()]
        state = [self._turn_id, resume_token, self._message_id, sorted(self._messages), sent, sorted(self._calls)]
        return base64.urlsafe_b64encode(json.dumps(state, separators=(",", ":")).encode()).decode()

    def apply(self, event: SessionEvent) -> list[dict[str, object]]:
        """Returns the updates of an event; none after `done`, which comes exactly once."""
        return [] if self.code is not None else list(self._of(event))

    def catch_up(self, messages: Iterable[pb.SessionMessage]) -> list[dict[str, object]]:
        """Returns the updates of what messages have that was not sent yet."""
        found: list[dict[str, object]] = []
        for message in messages:
            self._begin(message)
            for part in message.parts:
                found += self._part(message.message_id, part)
        return found

    def end(self, turn: Turn) -> dict[str, object]:
        """Returns `done` for a turn that has ended, with `kept` where what was sent is not what is stored."""
        self.code = _outcome(turn)
        why = {"error": turn.failure.message} if turn.HasField("failure") else {}
        known = totals(turn, self._output_price)
        texts = [
            {"message_id": message_id, "part_index": index, "content": text}
            for (message_id, index), text in self._kept.items()
        ]
        kept = {"kept": texts} if texts else {}
        return {"type": "done", "message_id": self._message_id, **known, "code": int(self.code), **why, **kept}

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
                yield self.end(event.turn_ended.turn)

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
                yield from self._content(message_id, part, part.text.text)
            case "refusal":
                yield from self._content(message_id, part, part.refusal.text)
            case "tool_use" if part.status != pb.PART_STATUS_STREAMING and part.tool_use.id not in self._calls:
                self._calls.add(part.tool_use.id)
                yield {"type": "tool_use", "tool_use_id": part.tool_use.id, "message_id": message_id}

    def _content(self, message_id: str, part: pb.Part, whole: str) -> Iterator[dict[str, object]]:
        """Yields what a part has beyond what was sent, and tells from now on of its deltas."""
        key, data = (message_id, part.index), whole.encode()
        self._sent.setdefault(key, (0, 0))
        yield from self._delta(message_id, part.index, 0, whole)
        if part.status != pb.PART_STATUS_STREAMING and self._sent[key] != (len(data), zlib.crc32(data)):
            self._kept[key] = whole

    def _delta(self, message_id: str, index: int, offset: int, text: str) -> Iterator[dict[str, object]]:
        sent, crc = self._sent.get((message_id, index), (-1, 0))
        data = text.encode()
        if not 0 <= offset <= sent < offset + len(data):
            return  # another kind of part, nothing new, or a gap, which the finished part fills
        new = data[sent - offset :]
        self._sent[message_id, index] = offset + len(data), zlib.crc32(new, crc)
        # an answer that was asked for again may have other words, and half of a character here
        content = new.decode(errors="ignore")
        yield {"type": "content", "content": content, "message_id": message_id, "part_index": index}


def _outcome(turn: Turn) -> PlueCode:
    if turn.HasField("failure"):
        return plue_code(turn.failure.reason)
    return PlueCode.ABORTED if turn.finish_reason in _CUT else PlueCode.OK
