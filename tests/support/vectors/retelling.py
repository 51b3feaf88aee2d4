"""Tells a recording again, so that it is the same each time it is made: names, times, deltas, batches and tokens."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from google.protobuf.message import Message

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import PART_STATUS_STREAMING, Part
from opencode.message.message_pb2 import ListMessagesResponse
from tests.support.oracles.fold import held_text
from tests.support.vectors.growth import Growing
from tests.support.vectors.names import START_SECONDS, Names
from tests.support.vectors.recording import Cut, Recording, Want

MAX_BATCH = 6
"""Events in one batch."""

_TIMELESS = ("part_delta",)
_PLACES = ("caught_up", "heartbeat")
"""Kinds that come with a token although they have no sequence."""


@dataclass
class Retold:
    """A vector, ready to be written."""

    description: str
    start: ListMessagesResponse | None
    batches: list[WatchEventsResponse]
    want: Want
    resume_token: str


def retell(recording: Recording, seed: str) -> Retold:
    """Returns the vector of a recording; the same one for the same events, whenever and however they came."""
    rng, names = random.Random(seed), Names()
    start = _copy(recording.start) if recording.start is not None else None
    if start is not None:
        names.rename(start)
        start.resume_token = f"token-{start.sequence}"
    head = start.sequence if start is not None else 0
    batches: list[WatchEventsResponse] = []
    told = _Telling(recording.cut, rng, start)
    for watch in recording.watches:
        events = [_copy(event) for event in told.again(watch)]
        for event in events:
            names.rename(event)
            _set_time(event)
        for batch in _batches(events, rng):
            head = _set_token(batch, head)
            batches.append(batch)
    want = recording.want
    told.shorten(want)
    for message in _messages(want):
        names.rename(message)
    for ids in (want.waiting, want.permissions, want.questions):
        ids[:] = [names.text(one) for one in ids]
    tokens = [start.resume_token if start is not None else "", *(batch.resume_token for batch in batches)]
    return Retold(recording.description, start, batches, want, next((t for t in reversed(tokens) if t), ""))


def _messages(want: Want) -> Iterator[Message]:
    yield from want.messages
    yield from want.waiting_messages
    if want.session is not None:
        yield want.session


def _copy(message: Message) -> Message:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _set_time(event: SessionEvent) -> None:
    """Sets the time of an event by its sequence; the brief kinds have none."""
    if event.sequence:
        event.event_time.seconds = START_SECONDS + event.sequence
    elif event.WhichOneof("kind") in _TIMELESS:
        event.ClearField("event_time")
    else:
        event.event_time.seconds = START_SECONDS


def _batches(events: list[SessionEvent], rng: random.Random) -> Iterator[WatchEventsResponse]:
    place = 0
    while place < len(events):
        size = rng.randint(1, MAX_BATCH)
        yield WatchEventsResponse(events=events[place : place + size])
        place += size


def _set_token(batch: WatchEventsResponse, head: int) -> int:
    """Gives a batch that moves the place a token, and returns the head behind it."""
    moves = False
    for event in batch.events:
        kind = event.WhichOneof("kind")
        if event.sequence or kind in _PLACES:
            moves = True
            head = max(head, event.sequence, event.caught_up.head_sequence, event.heartbeat.head_sequence)
    batch.resume_token = f"token-{head}" if moves else ""
    return head


class _Telling:
    """Follows what grows through the watches of a recording."""

    def __init__(self, cut: Cut, rng: random.Random, start: ListMessagesResponse | None) -> None:
        self._cut = cut
        self._rng = rng
        self._growing: dict[tuple[str, int], Growing] = {}
        for message in start.messages if start is not None else ():
            for part in message.parts:
                if part.status == PART_STATUS_STREAMING:
                    self._holds(message.message_id, part)

    def shorten(self, want: Want) -> None:
        """Cuts the texts that still grow to what a client holds before the first gap."""
        for message in want.messages:
            for part in message.parts:
                growing = self._growing.get((message.message_id, part.index))
                if self._cut is Cut.WITH_GAPS and growing is not None and part.status == PART_STATUS_STREAMING:
                    part.text.text = part.text.text.encode()[: growing.held_bytes].decode()
                    part.content_bytes = growing.held_bytes

    def again(self, watch: Iterable[SessionEvent]) -> Iterator[SessionEvent]:
        """Returns the events of one watch with new deltas. What grew comes before the next event of its message."""
        early: list[SessionEvent] = []
        events = list(watch)
        last = max((at for at, event in enumerate(events) if event.WhichOneof("kind") == "heartbeat"), default=None)
        for at, event in enumerate(events):
            kind = event.WhichOneof("kind")
            if kind in ("part_started", "part_delta") and self._cut is Cut.LEFT_OUT:
                continue
            if kind == "part_delta":
                growing = self._growing.get((event.part_delta.message_id, event.part_delta.part_index))
                if growing is not None:
                    growing.reaches(event.part_delta)
                continue
            if kind == "heartbeat" and at != last:  # there are as many as there was time for
                continue
            if kind == "part_started":
                self._after(event, kind)
                early.append(event)
            else:
                yield from self._before(event, kind)
                yield event
                self._after(event, kind)
            yield from self._due(early)
        yield from early
        yield from self._told(tuple(self._growing))

    def _due(self, early: list[SessionEvent]) -> Iterator[SessionEvent]:
        """Takes out each part_started whose message has no earlier part that grows: it may come early."""
        for event in tuple(early):
            started = event.part_started
            places = [place for place in self._growing if place[0] == started.message_id]
            if not any(index < started.part.index for _, index in places):
                early.remove(event)
                yield event

    def _before(self, event: SessionEvent, kind: str | None) -> Iterator[SessionEvent]:
        if kind == "part_finished":
            place = event.part_finished.message_id, event.part_finished.part.index
            if place in self._growing:
                self._growing[place].text = held_text(event.part_finished.part)
            yield from self._told([place])
        elif kind in ("message_finished", "message_snapshot", "message_replaced"):
            message_id = getattr(event, kind).message.message_id
            yield from self._told([place for place in self._growing if place[0] == message_id])
        elif kind in ("conversation_changed", "turn_ended", "session_deleted"):
            yield from self._told(tuple(self._growing))

    def _told(self, places: Iterable[tuple[str, int]]) -> Iterator[SessionEvent]:
        for place in places if self._cut is not Cut.LEFT_OUT else ():
            if place in self._growing:
                for delta in self._growing[place].deltas(self._rng, self._cut):
                    yield SessionEvent(part_delta=delta)

    def _after(self, event: SessionEvent, kind: str | None) -> None:
        if kind == "part_started":
            self._holds(event.part_started.message_id, event.part_started.part)
        elif kind == "part_finished":
            self._growing.pop((event.part_finished.message_id, event.part_finished.part.index), None)
        elif kind == "message_snapshot":
            for part in event.message_snapshot.message.parts:
                if part.status == PART_STATUS_STREAMING:
                    self._holds(event.message_snapshot.message.message_id, part)

    def _holds(self, message_id: str, part: Part) -> None:
        text = held_text(part)
        size = len(text.encode())
        self._growing[message_id, part.index] = Growing(message_id, part.index, text, size, size)
