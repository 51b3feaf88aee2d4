"""The events of one turn, out of the watch of its session."""

import contextlib
from collections.abc import AsyncGenerator, Iterable, Iterator
from functools import partial

from opencode.event import event_pb2
from opencode.event import session_event_pb2 as pb
from turnwire.api.wire.codec import resume_token
from turnwire.api.wire.framing import frame
from turnwire.core.intake.requests import Receipt
from turnwire.core.use_cases.turns import TurnWatch
from turnwire.core.watches.unmade import Unmade
from turnwire.core.watches.watch import Batch, Watches, WatchRequest
from turnwire.domain.principal import Principal


async def events_of_turn(watches: Watches, principal: Principal, watch: TurnWatch) -> AsyncGenerator[Batch]:
    """Yields batches with the events of a turn, and ends after its turn_ended.

    A message that waits behind another turn first brings the events that its own turn has meanwhile: none, until it
    starts. When the message joins the running turn, that turn's further events follow, to its end. Ends early when the
    session is deleted.

    Raises:
        EventsCompacted: events of the turn are no longer kept.
    """
    selection = _TurnSelection(watch.turn_id, has_begun=watch.has_begun)
    async with contextlib.aclosing(watches.watch(principal, watch.request)) as batches:
        async for batch in batches:
            if isinstance(batch, Unmade):
                yield Unmade(batch.answer_bytes, partial(_made, selection, batch), batch.shared)
            elif wanted := selection.selected(batch):
                yield wanted
            if selection.ended:
                return


def _made(selection: "_TurnSelection", batch: Unmade) -> bytes:
    return selection.selected(batch.make())


def answered_by(receipt: Receipt) -> TurnWatch:
    """Returns where the events of a message's turn are to be found, from the message on."""
    request = WatchRequest(session_id=receipt.session_id, after=receipt.sequence, fail_if_compacted=True)
    return TurnWatch(receipt.turn_id, False, request)


class _TurnSelection:
    """Picks the events of one turn: durable ones by turn id, the others by the messages of the turn."""

    def __init__(self, turn_id: str, *, has_begun: bool) -> None:
        self._turn_id = turn_id
        self._messages: set[str] = set()
        self._started = has_begun
        self.ended = False

    def selected(self, batch: bytes) -> bytes:
        """Returns what of a batch is of the turn, as a batch; empty when nothing is."""
        response = event_pb2.WatchEventsResponse.FromString(batch)
        wanted = b"".join(frame(event.SerializeToString()) for event in self.of(response.events))
        return wanted + resume_token(response.resume_token) if wanted else b""

    def of(self, events: Iterable[pb.SessionEvent]) -> Iterator[pb.SessionEvent]:
        """Yields the events of the turn, up to its end."""
        for event in events:
            self._note(event)
            if self._is_wanted(event):
                yield event
            if event.turn_id == self._turn_id and event.HasField("turn_ended"):
                if not (merged := event.turn_ended.turn.merged_into_turn_id):
                    self.ended = True
                    return
                self._turn_id, self._started = merged, True

    def _note(self, event: pb.SessionEvent) -> None:
        """Remembers what tells the turn's own hints from those of others."""
        if event.HasField("message_snapshot") and event.message_snapshot.message.turn_id == self._turn_id:
            self._messages.add(event.message_snapshot.message.message_id)
        if event.turn_id == self._turn_id:
            if event.HasField("message_added"):
                self._messages.add(event.message_added.message.message_id)
            elif event.HasField("turn_started"):
                self._started = True

    def _is_wanted(self, event: pb.SessionEvent) -> bool:
        match event.WhichOneof("kind"):
            case "part_delta" | "part_started" | "tool_log" | "retry_scheduled" as kind:
                return getattr(event, kind).message_id in self._messages
            case "message_snapshot":
                return event.message_snapshot.message.turn_id == self._turn_id
            case "permission_snapshot" | "question_snapshot":
                asked = event.permission_snapshot.permission, event.question_snapshot.question
                return self._turn_id in [one.turn_id for one in asked]
            case "compaction_started":  # of the turn that runs
                return self._started
            case "heartbeat":
                return True
            case _:
                return event.turn_id == self._turn_id
