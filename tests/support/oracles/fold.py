"""A client's fold of WatchEvents: from events alone to the messages that ListMessages would answer.

Written by the comments of `opencode/event/session_event.proto` and by nothing else. It also checks what the contract
promises about the stream itself, and raises `ContractBroken` where the stream breaks it.
"""

import copy
from collections.abc import Iterable

from opencode.event.session_event_pb2 import RESYNC_REASON_UNSPECIFIED, EventKind, PartDelta, SessionEvent
from opencode.message.content_pb2 import (
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_STATUS_QUEUED,
    PART_STATUS_STREAMING,
    Part,
    SessionMessage,
)
from opencode.question.question_pb2 import Question
from opencode.session.session_pb2 import SESSION_STATUS_IDLE, SESSION_STATUS_UNSPECIFIED
from opencode.tool.tool_pb2 import PermissionRequest

DURABLE = frozenset(name.removeprefix("EVENT_KIND_").lower() for name, number in EventKind.items() if number)
"""Field names of the durable kinds."""


BRIEF = frozenset({"part_delta", "part_started", "tool_log"})
"""The kinds that need not name their session, turn and time: their message was told before."""


class ContractBroken(AssertionError):
    """The stream did what the contract says it never does."""


class SessionFold:
    """State of one session as a client holds it."""

    def __init__(
        self,
        session_id: str,
        head: int | None = 0,
        messages: Iterable[SessionMessage] = (),
        *,
        filtered: bool = False,
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
        self.messages: dict[str, SessionMessage] = {one.message_id: copy.deepcopy(one) for one in messages}
        self.queue: list[str] = [m.message_id for m in self.messages.values() if m.status == MESSAGE_STATUS_QUEUED]
        self.left_out: set[str] = set()
        """Messages that waited and were not in the queue of the last snapshot: the end of it follows."""
        self.queue_revision = 0
        self.status = SESSION_STATUS_UNSPECIFIED
        self._growing: dict[tuple[str, int], _Growing] = {}
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
        """How often the client had to read ListMessages because a conversation changed."""
        self.waited = 0
        """Deltas that came too early: the client waits for a snapshot. A stream without loss has none."""
        self.deltas = 0
        self.deleted = False
        self.permissions: dict[str, PermissionRequest] = {}
        self.questions: dict[str, Question] = {}
        """The open permission requests."""

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
        getattr(self, f"_on_{kind}")(event, getattr(event, kind))

    def listed(self) -> list[SessionMessage]:
        """Returns the messages in conversation order, queued ones last, next first."""
        for message_id, index in list(self._growing):
            self._part(message_id, index)
        waiting = [self.messages[message_id] for message_id in self.queue if message_id in self.messages]
        others = [message for message_id, message in self.messages.items() if message_id not in self.queue]
        return others + waiting

    def text(self, message_id: str) -> str:
        """Returns the text parts of one message, joined."""
        self.listed()
        return "".join(part.text.text for part in self.messages[message_id].parts)

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

    def _part(self, message_id: str, index: int) -> Part | None:
        message = self.messages.get(message_id)
        grown = self._growing.pop((message_id, index), None)
        if message is not None:
            for part in message.parts:
                if part.index == index:
                    if grown is not None:
                        _set_held(part, "".join(grown.texts))
                        part.content_bytes = grown.size
                    return part
        return None

    def _put_part(self, message_id: str, part: Part) -> None:
        message = self.messages.get(message_id)
        if message is None:
            return  # a client that began without a position does not hold it
        held = self._part(message_id, part.index)
        if held is not None:
            if held.part_id != part.part_id and held.status != PART_STATUS_STREAMING:
                raise ContractBroken(f"part {part.index} of {message_id} has two ids")
            held.CopyFrom(part)
            return
        parts = sorted([*message.parts, part], key=lambda one: one.index)
        del message.parts[:]
        message.parts.extend(parts)

    def _on_part_delta(self, _: SessionEvent, delta: object) -> None:
        self.deltas += 1
        place = delta.message_id, delta.part_index
        grown = self._growing.get(place)
        if grown is None:
            part = self._part(*place)
            if part is None:
                self.waited += 1
                return
            grown = self._growing[place] = _Growing(part)
        if delta.offset > grown.size:
            self.waited += 1
        elif delta.end_offset > grown.size:
            grown.add(delta)

    def _on_part_started(self, _: SessionEvent, started: object) -> None:
        if self._part(started.message_id, started.part.index) is None:
            self._put_part(started.message_id, started.part)

    def _on_part_finished(self, _: SessionEvent, finished: object) -> None:
        self._put_part(finished.message_id, finished.part)

    def _on_message_added(self, _: SessionEvent, added: object) -> None:
        message = added.message
        held = self.messages.get(message.message_id)
        if held is None:
            self.messages[message.message_id] = SessionMessage()
            self.messages[message.message_id].CopyFrom(message)

    def _on_message_finished(self, _: SessionEvent, finished: object) -> None:
        held = self.messages.get(finished.message.message_id)
        if finished.message.parts:
            raise ContractBroken("message_finished carries parts")
        if held is not None:
            parts = [part for part in held.parts if part.status != PART_STATUS_STREAMING]
            self._forget_growing(held)
            held.CopyFrom(finished.message)
            held.parts.extend(parts)

    def _on_tool_call_updated(self, _: SessionEvent, updated: object) -> None:
        part = self._part(updated.message_id, updated.part_index)
        if part is not None:
            part.tool_use.CopyFrom(updated.state)

    def _on_turn_started(self, event: SessionEvent, started: object) -> None:
        self.open_turns.add(event.turn_id)
        if started.turn.start_sequence != event.sequence or started.turn.turn_id != event.turn_id:
            raise ContractBroken(f"turn_started {event.sequence} carries {started.turn}")
        self._stop_waiting(started.turn.user_message_id)

    def _on_turn_steered(self, _: SessionEvent, steered: object) -> None:
        self._stop_waiting(steered.user_message_id)

    def _stop_waiting(self, message_id: str) -> None:
        if message_id in self.queue:
            self.queue.remove(message_id)
        message = self.messages.pop(message_id, None)
        if message is not None:
            if message.status == MESSAGE_STATUS_QUEUED:  # it waited
                message.previous_message_id = next((o for o in reversed(self.messages) if o not in self.queue), "")
            message.status = MESSAGE_STATUS_COMPLETE
            self.messages[message_id] = message

    def _on_message_replaced(self, _: SessionEvent, replaced: object) -> None:
        held = self.messages.get(replaced.message.message_id)
        if held is not None:
            self._forget_growing(held)
            held.CopyFrom(replaced.message)

    def _on_conversation_changed(self, _: SessionEvent, changed: object) -> None:
        kept = changed.kept_through_message_id
        others = [message_id for message_id in self.messages if message_id not in self.queue]
        dropped = others[others.index(kept) + 1 :] if kept in others else others
        for message_id in dropped:
            self._forget_growing(self.messages.pop(message_id))
        if changed.reread:
            self.rereads += 1

    def _forget_growing(self, message: SessionMessage) -> None:
        for part in message.parts:
            self._growing.pop((message.message_id, part.index), None)

    def _on_turn_ended(self, event: SessionEvent, ended: object) -> None:
        self.open_turns.discard(event.turn_id)
        if ended.turn.end_sequence != event.sequence or ended.turn.turn_id != event.turn_id:
            raise ContractBroken(f"turn_ended {event.sequence} carries {ended.turn}")
        self.ended_turns[event.turn_id] = ended.turn.finish_reason

    def _on_session_status_changed(self, _: SessionEvent, changed: object) -> None:
        if changed.status == SESSION_STATUS_IDLE and self.open_turns:
            raise ContractBroken("the session is idle while a turn is open")
        self.status = changed.status

    def _on_session_created(self, _: SessionEvent, created: object) -> None:
        if created.session.id != self.session_id:
            raise ContractBroken("session_created names another session")

    def _on_session_updated(self, _: SessionEvent, updated: object) -> None:
        if updated.session.id != self.session_id:
            raise ContractBroken("session_updated names another session")

    def _on_session_deleted(self, _: SessionEvent, __: object) -> None:
        self.deleted = True

    def _on_message_removed(self, _: SessionEvent, removed: object) -> None:
        self.messages.pop(removed.message_id, None)
        if removed.message_id in self.queue:
            self.queue.remove(removed.message_id)

    def _on_queue_changed(self, _: SessionEvent, changed: object) -> None:
        if changed.revision <= self.queue_revision:
            raise ContractBroken(f"the queue has revision {changed.revision} after {self.queue_revision}")
        self.queue_revision = changed.revision  # a snapshot may have been ahead
        self.queue = [entry.message_id for entry in changed.entries]
        self.left_out.clear()

    def _on_message_snapshot(self, _: SessionEvent, snapshot: object) -> None:
        for part in snapshot.message.parts:
            self._growing.pop((snapshot.message.message_id, part.index), None)
        held = self.messages.setdefault(snapshot.message.message_id, SessionMessage())
        held.CopyFrom(snapshot.message)

    def _on_session_snapshot(self, _: SessionEvent, snapshot: object) -> None:
        if snapshot.queue_revision < self.queue_revision:
            raise ContractBroken(f"the queue has revision {snapshot.queue_revision} after {self.queue_revision}")
        told = [entry.message_id for entry in snapshot.queue]
        self.left_out = {i for i in self.queue if i not in told and self._is_queued(i)}
        self.queue = [i for i in self.queue if i in self.left_out] + told
        self.status = snapshot.session.status

    def _is_queued(self, message_id: str) -> bool:
        return message_id in self.messages and self.messages[message_id].status == MESSAGE_STATUS_QUEUED

    def _on_caught_up(self, _: SessionEvent, caught_up: object) -> None:
        self.caught_up.append(caught_up.head_sequence)
        if self.head is None:
            self.head = caught_up.head_sequence
        elif not self.filtered and caught_up.head_sequence != self.head:
            raise ContractBroken(f"caught up at {caught_up.head_sequence} with {self.head} delivered")

    def _on_heartbeat(self, _: SessionEvent, heartbeat: object) -> None:
        self.heartbeats.append(heartbeat.head_sequence)
        if self.head is not None and not self.filtered and heartbeat.head_sequence != self.head:
            raise ContractBroken(f"heartbeat with head {heartbeat.head_sequence} while {self.head} was delivered")

    def _on_tool_log(self, _: SessionEvent, line: object) -> None:
        part = self._part(line.message_id, line.part_index)
        if part is not None and line.line_index == len(part.tool_use.logs):
            part.tool_use.logs.append(line.text)

    def _on_permission_asked(self, _: SessionEvent, asked: object) -> None:
        self.permissions[asked.permission.id] = asked.permission

    def _on_permission_snapshot(self, _: SessionEvent, snapshot: object) -> None:
        self.permissions[snapshot.permission.id] = snapshot.permission

    def _on_permission_replied(self, _: SessionEvent, replied: object) -> None:
        self.permissions.pop(replied.permission_id, None)

    def _on_question_asked(self, _: SessionEvent, asked: object) -> None:
        self.questions[asked.question.question_id] = asked.question

    def _on_question_snapshot(self, _: SessionEvent, snapshot: object) -> None:
        self.questions[snapshot.question.question_id] = snapshot.question

    def _on_question_answered(self, _: SessionEvent, answered: object) -> None:
        self.questions.pop(answered.question_id, None)

    def _on_retry_scheduled(self, _: SessionEvent, scheduled: object) -> None:
        if scheduled.attempt < 1:
            raise ContractBroken("a retry before the first attempt")

    def _on_compaction_started(self, _: SessionEvent, started: object) -> None:
        if not started.message_count:
            raise ContractBroken("nothing is being summarised")

    def _on_context_compacted(self, _: SessionEvent, compacted: object) -> None:
        held = self.messages.get(compacted.message_id)
        if held is not None and held.compaction != compacted.compaction:
            raise ContractBroken("the summary stands for something else than the event says")

    def _on_resync(self, _: SessionEvent, resync: object) -> None:
        self.earliest = resync.earliest_sequence
        self.head = None
        self._drop_all(resync.reason)

    def _drop_all(self, reason: int) -> None:
        self.resyncs.append(reason)
        self.permissions, self.questions, self.messages, self.queue = {}, {}, {}, []
        self.open_turns, self.status = set(), SESSION_STATUS_UNSPECIFIED
        self._growing.clear()


class _Growing:
    """The text of a part while deltas come, with its size in bytes, which nobody needs to count."""

    def __init__(self, part: Part) -> None:
        self.texts = [held_text(part)]
        self.size = part.content_bytes

    def add(self, delta: PartDelta) -> None:
        """Takes in a delta that begins within what is held, or just behind it, and reaches further."""
        text = delta.text
        if delta.offset < self.size:
            text = text.encode()[self.size - delta.offset :].decode()
        self.texts.append(text)
        self.size = delta.end_offset


class Fold:
    """State of a client that watches all sessions."""

    def __init__(self) -> None:
        """Begins with nothing."""
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
        return next((one.session_id for one in self.sessions.values() if message_id in one.messages), "")


def comparable(messages: Iterable[SessionMessage]) -> list[SessionMessage]:
    """Returns copies without the time of last change: a write of growing text changes it without an event."""
    copies = []
    for message in messages:
        copies.append(SessionMessage())
        copies[-1].CopyFrom(message)
        copies[-1].ClearField("update_time")
    return copies


def held_text(part: Part) -> str:
    """Returns the text of a part that deltas add to."""
    content = part.WhichOneof("content")
    if content == "tool_use":
        return part.tool_use.input_json
    return getattr(part, content).text if content in ("text", "reasoning", "refusal") else ""


def _set_held(part: Part, text: str) -> None:
    content = part.WhichOneof("content")
    if content == "tool_use":
        part.tool_use.input_json = text
    else:
        getattr(part, content).text = text
