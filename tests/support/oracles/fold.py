"""A client of a watch: the Python client's fold, and the promises of the stream itself.

`Conversation` of the Python client is the one oracle of what a client holds; `clients/vectors` holds it to what the
server has stored. What stands here checks each event by the comments of `opencode/event/session_event.proto`, and
raises `ContractBroken` where the stream breaks them.
"""

import copy
from collections.abc import Iterable
from typing import Any

from opencode.event.session_event_pb2 import RESYNC_REASON_UNSPECIFIED, EventKind, PartDelta, SessionEvent
from opencode.message.content_pb2 import (
    MESSAGE_STATUS_QUEUED,
    MESSAGE_STATUS_STREAMING,
    PART_STATUS_STREAMING,
    Part,
    SessionMessage,
)
from opencode.question.question_pb2 import Question
from opencode.session.session_pb2 import SESSION_STATUS_IDLE
from opencode.tool.tool_pb2 import PermissionRequest
from turnwire_client.conversation import Conversation

DURABLE = frozenset(name.removeprefix("EVENT_KIND_").lower() for name, number in EventKind.items() if number)
"""Field names of the durable kinds."""


BRIEF = frozenset({"part_delta", "part_started", "tool_log"})
"""The kinds that need not name their session, turn and time: their message was told before."""


class ContractBroken(AssertionError):
    """The stream did what the contract says it never does."""


class SessionFold:
    """State of one session as a client holds it."""

    def __init__(
        self, session_id: str, head: int | None = 0, messages: Iterable[SessionMessage] = (), *, filtered: bool = False
    ) -> None:
        """Args:
        session_id: The session.
        head: The sequence that the client holds; None when it does not know one.
        messages: What it holds at that sequence, such as an answer of ListMessages. They are copied.
        filtered: Sequences may have gaps, because only some kinds were asked for.
        """
        self.session_id = session_id
        self.head = head
        self.filtered = filtered
        self.client = Conversation(session_id)
        self.client.reset(copies(messages), sequence=0, resume_token="")
        self.left_out: set[str] = set()
        """Messages that waited and were not in the queue of the last snapshot: the end of it follows."""
        self.queue_revision = 0
        """That of the last change that was told; a snapshot may have been ahead."""
        self.open_turns: set[str] = set()
        self.ended_turns: dict[str, int] = {}
        """Turn id -> its finish reason."""
        self.caught_up: list[int] = []
        self.heartbeats: list[int] = []
        self.resyncs: list[int] = []
        """Why the client dropped all and has to read ListMessages, each time: numbers of ResyncReason."""
        self.earliest = 0
        """The sequence after which events are kept, by the last resync."""
        self.rereads = 0
        """Number of times that the client had to read ListMessages because a conversation changed."""
        self.waited = 0
        """Deltas that came too early: the client waits for a snapshot. A stream without loss has none."""
        self.deltas = 0
        self._sizes: dict[tuple[str, int], int] = {}
        """Size in bytes of each part to which deltas were added since the last event of another kind."""

    @property
    def queue(self) -> list[str]:
        """The ids of the messages that wait, next first."""
        return self.client.waiting_ids

    @property
    def status(self) -> int:
        """The status of the session that was told last."""
        return self.client.status

    @property
    def deleted(self) -> bool:
        """Whether the session is gone."""
        return self.client.deleted

    @property
    def permissions(self) -> dict[str, PermissionRequest]:
        """The open permission requests by id."""
        return self.client.permissions

    @property
    def questions(self) -> dict[str, Question]:
        """The open questions by id."""
        return self.client.questions

    def apply(self, event: SessionEvent) -> None:
        """Takes in one event.

        Raises:
            ContractBroken: sequences repeat or have a gap, the event is of another session, or it cannot be true.
        """
        kind = event.WhichOneof("kind")
        if kind is None:  # newer than this reader
            self.head = max(self.head or 0, event.sequence) if event.sequence else self.head
            if event.reread_if_unknown:
                self._drop_all(RESYNC_REASON_UNSPECIFIED)
            return
        self._check(event, kind)
        if kind == "part_delta":
            self._check_part_delta(event.part_delta)
        else:
            self._sizes.clear()
            if (check := getattr(self, f"_check_{kind}", None)) is not None:
                check(event, getattr(event, kind))
        if event.conversation_changed.reread:  # goes on with what is left, though a client would read the list
            event = copy.deepcopy(event)
            event.conversation_changed.reread = False
        if kind != "resync":
            self.client.apply(event)

    def listed(self) -> list[SessionMessage]:
        """Returns the messages in conversation order, queued ones last, next first."""
        return [*self.client.messages, *self.client.waiting]

    def text(self, message_id: str) -> str:
        """Returns the text parts of one message, joined."""
        return self.client.text(message_id)

    def __deepcopy__(self, _memo: object) -> "SessionFold":
        made = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | set | list):
                setattr(made, name, copy.copy(value))
        made.client = copied(self.client)
        return made

    def _check(self, event: SessionEvent, kind: str) -> None:
        if event.session_id != self.session_id and not (kind in BRIEF and not event.session_id):
            raise ContractBroken(f"an event of session {event.session_id!r} in {self.session_id!r}")
        if self.deleted and kind != "resync":  # that comes when a backup of before is restored
            raise ContractBroken(f"{kind} after session_deleted")
        if kind not in DURABLE:
            if event.sequence:
                raise ContractBroken(f"{kind} has sequence {event.sequence}")
            return
        if not event.sequence:
            raise ContractBroken(f"{kind} has no sequence")
        if self.head is not None:
            expected = self.head + 1
            if event.sequence < expected:
                raise ContractBroken(f"sequence {event.sequence} ({kind}) again, the client holds {self.head}")
            if event.sequence > expected and not self.filtered:
                raise ContractBroken(f"sequence {event.sequence} ({kind}) after {self.head}: a gap")
        self.head = event.sequence
        if event.turn_id in self.ended_turns:
            raise ContractBroken(f"{kind} of turn {event.turn_id} after its turn_ended")

    def _check_part_delta(self, delta: PartDelta) -> None:
        self.deltas += 1
        place = delta.message_id, delta.part_index
        size = self._sizes.get(place)
        if size is None:
            part = self.client.part(*place)
            size = -1 if part is None else part.content_bytes
        if delta.offset > size:
            self.waited += 1
        else:
            self._sizes[place] = max(size, delta.end_offset)

    def _check_part_finished(self, _: SessionEvent, finished: Any) -> None:
        held = self.client.held_part(finished.message_id, finished.part.index)
        if held is not None and held.part_id != finished.part.part_id and held.status != PART_STATUS_STREAMING:
            raise ContractBroken(f"part {finished.part.index} of {finished.message_id} has two ids")

    def _check_message_finished(self, _: SessionEvent, finished: Any) -> None:
        if finished.message.parts:
            raise ContractBroken("message_finished carries parts")

    def _check_turn_started(self, event: SessionEvent, started: Any) -> None:
        self.open_turns.add(event.turn_id)
        if started.turn.start_sequence != event.sequence or started.turn.turn_id != event.turn_id:
            raise ContractBroken(f"turn_started {event.sequence} carries {started.turn}")

    def _check_turn_ended(self, event: SessionEvent, ended: Any) -> None:
        self.open_turns.discard(event.turn_id)
        if ended.turn.end_sequence != event.sequence or ended.turn.turn_id != event.turn_id:
            raise ContractBroken(f"turn_ended {event.sequence} carries {ended.turn}")
        self.ended_turns[event.turn_id] = ended.turn.finish_reason

    def _check_conversation_changed(self, _: SessionEvent, changed: Any) -> None:
        self.rereads += changed.reread

    def _check_session_status_changed(self, _: SessionEvent, changed: Any) -> None:
        if changed.status == SESSION_STATUS_IDLE and self.open_turns:
            raise ContractBroken("the session is idle while a turn is open")

    def _check_session_created(self, _: SessionEvent, created: Any) -> None:
        if created.session.id != self.session_id:
            raise ContractBroken("session_created names another session")

    def _check_session_updated(self, _: SessionEvent, updated: Any) -> None:
        if updated.session.id != self.session_id:
            raise ContractBroken("session_updated names another session")

    def _check_queue_changed(self, _: SessionEvent, changed: Any) -> None:
        if changed.revision <= self.queue_revision:
            raise ContractBroken(f"the queue has revision {changed.revision} after {self.queue_revision}")
        self.queue_revision = changed.revision
        self.left_out.clear()

    def _check_session_snapshot(self, _: SessionEvent, snapshot: Any) -> None:
        if snapshot.queue_revision < self.queue_revision:
            raise ContractBroken(f"the queue has revision {snapshot.queue_revision} after {self.queue_revision}")
        waited = {one.message_id for one in self.client.waiting if one.status == MESSAGE_STATUS_QUEUED}
        self.left_out = waited - {entry.message_id for entry in snapshot.queue}

    def _check_caught_up(self, _: SessionEvent, caught_up: Any) -> None:
        self.caught_up.append(caught_up.head_sequence)
        if self.head is None:
            self.head = caught_up.head_sequence
        elif not self.filtered and caught_up.head_sequence != self.head:
            raise ContractBroken(f"caught up at {caught_up.head_sequence} with {self.head} delivered")

    def _check_heartbeat(self, _: SessionEvent, heartbeat: Any) -> None:
        self.heartbeats.append(heartbeat.head_sequence)
        if self.head is not None and not self.filtered and heartbeat.head_sequence != self.head:
            raise ContractBroken(f"heartbeat with head {heartbeat.head_sequence} while {self.head} was delivered")

    def _check_retry_scheduled(self, _: SessionEvent, scheduled: Any) -> None:
        if scheduled.attempt < 1:
            raise ContractBroken("a retry before the first attempt")

    def _check_compaction_started(self, _: SessionEvent, started: Any) -> None:
        if not started.message_count:
            raise ContractBroken("nothing is being summarised")

    def _check_context_compacted(self, _: SessionEvent, compacted: Any) -> None:
        held = self.client.held_message(compacted.message_id)
        if held is not None and held.compaction != compacted.compaction:
            raise ContractBroken("the summary stands for something else than the event says")

    def _check_resync(self, _: SessionEvent, resync: Any) -> None:
        self.earliest = resync.earliest_sequence
        self.head = None
        self._drop_all(resync.reason)

    def _drop_all(self, reason: int) -> None:
        self.resyncs.append(reason)
        self.client = Conversation(self.session_id)
        self.open_turns = set()


class Fold:
    """State of a client that watches all sessions."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionFold] = {}
        self.resyncs: list[int] = []
        """Why the client dropped all sessions, each time: numbers of ResyncReason."""

    def apply(self, event: SessionEvent) -> None:
        """Takes in one event; raises as `SessionFold.apply`."""
        kind = event.WhichOneof("kind")
        session_id = event.session_id or (self._session_of(getattr(event, kind).message_id) if kind in BRIEF else "")
        if session_id:
            known_from_start = event.HasField("session_created")
            self.sessions.setdefault(session_id, SessionFold(session_id, 0 if known_from_start else None)).apply(event)
        elif kind == "resync":
            self.resyncs.append(event.resync.reason)
            self.sessions.clear()
        elif kind in ("caught_up", "heartbeat"):
            if getattr(event, kind).HasField("head_sequence"):
                raise ContractBroken(f"{kind} of all sessions has a sequence")
        elif kind is not None or event.reread_if_unknown:
            raise ContractBroken(f"{kind} names no session")

    def _session_of(self, message_id: str) -> str:
        """Returns the session that holds a message; "" for none."""
        holding = (one.session_id for one in self.sessions.values() if one.client.held_message(message_id))
        return next(holding, "")


def comparable(messages: Iterable[SessionMessage]) -> list[SessionMessage]:
    """Returns copies without the time of last change: a write of growing text changes it without an event."""
    found = copies(messages)
    for message in found:
        message.ClearField("update_time")
    return found


def compared(messages: Iterable[SessionMessage]) -> list[SessionMessage]:
    """Returns copies without what is stored without an event: as `comparable`, and what a streaming answer used."""
    found = comparable(messages)
    for message in found:
        if message.status == MESSAGE_STATUS_STREAMING:
            message.ClearField("usage")
            message.ClearField("model_run")
    return found


def copies(messages: Iterable[SessionMessage]) -> list[SessionMessage]:
    """Returns copies of messages."""
    return [copy.deepcopy(message) for message in messages]


def copied(held: Conversation) -> Conversation:
    """Returns a copy of what a client holds, which goes its own way."""
    made = Conversation(held.session_id)
    made.reset(copies([*held.messages, *held.waiting]), sequence=held.sequence, resume_token=held.resume_token)
    made.permissions, made.questions = dict(held.permissions), dict(held.questions)
    made.queue_revision, made.deleted, made.status = held.queue_revision, held.deleted, held.status
    return made


def held_text(part: Part) -> str:
    """Returns the text of a part that deltas add to."""
    content = part.WhichOneof("content")
    if content == "tool_use":
        return part.tool_use.input_json
    return getattr(part, content).text if content in ("text", "reasoning", "refusal") else ""
