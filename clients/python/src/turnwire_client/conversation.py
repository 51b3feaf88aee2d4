"""The fold: events of one session in, the conversation as the server stores it out.

`Conversation` follows the table of the contract's "How a watch runs" and knows no network. A growing text is kept in
pieces and joined when somebody looks at it, so an event costs the same however long the text is.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import (
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_STATUS_QUEUED,
    PART_STATUS_STREAMING,
    Part,
    SessionMessage,
)
from opencode.question.question_pb2 import Question
from opencode.session.session_pb2 import SESSION_STATUS_UNSPECIFIED, SessionInfo, SessionStatus
from opencode.tool.tool_pb2 import PermissionRequest
from opencode.turn.turn_pb2 import TURN_STATUS_ENDED, Turn

_KEPT_TURNS = 256
"""Ended turns that are remembered, the newest ones."""


def text_of(message: SessionMessage) -> str:
    """Returns what a message says: its text parts, joined. Reasoning, refusals and calls are not part of it."""
    return "".join(part.text.text for part in message.parts if part.HasField("text"))


class Conversation:
    """State of one session as a client holds it. Not safe for several threads at once.

    The messages, requests and turns that it hands out belong to it: read them, do not change them. They change with
    the next event; copy what must not.
    """

    def __init__(self, session_id: str) -> None:
        """Begins with nothing."""
        self.session_id = session_id
        self.resume_token = ""
        """Where a watch goes on; "" before there is such a place."""
        self.sequence = 0
        """The greatest sequence that was seen. Events up to it are skipped."""
        self.session: SessionInfo | None = None
        """The session as it was told last; None until it was."""
        self.status: SessionStatus.ValueType = SESSION_STATUS_UNSPECIFIED
        """Whether a turn runs."""
        self.permissions: dict[str, PermissionRequest] = {}
        """Open permission requests by id, oldest first."""
        self.questions: dict[str, Question] = {}
        """Open questions of tools by id, oldest first."""
        self.queue_revision = 0
        """Grows with every change of the waiting messages."""
        self.ended_turns: dict[str, Turn] = {}
        """The newest turns that ended while this was watched, by id: why each ended and what it used."""
        self.running_turn: Turn | None = None
        """The turn that was seen to start and not to end."""
        self.deleted = False
        """The session is deleted: nothing else is held any more."""
        self.needs_reread = False
        """The state differs from the server's: read the list again with `reset`, and watch from its token."""
        self._messages: dict[str, SessionMessage] = {}
        self._parts: dict[str, dict[int, Part]] = {}
        """The parts of each message by index: the same objects that the message has."""
        self._waiting: list[str] = []
        self._growing: dict[tuple[str, int], _Growing] = {}

    @property
    def messages(self) -> list[SessionMessage]:
        """The messages in the order of the conversation, without those that wait. May be empty."""
        self._join_texts()
        waiting = set(self._waiting)
        return [
            message
            for message_id, message in self._messages.items()
            if message_id not in waiting and message.status != MESSAGE_STATUS_QUEUED
        ]

    @property
    def waiting(self) -> list[SessionMessage]:
        """The messages that wait behind the running turn, next first, as far as they are held."""
        return [self._messages[message_id] for message_id in self._waiting if message_id in self._messages]

    @property
    def waiting_ids(self) -> list[str]:
        """The ids of the messages that wait, next first, held or not."""
        return list(self._waiting)

    def has_all_of(self, turn: Turn) -> bool:
        """Returns whether a turn has ended, with its end in this conversation: one that is read later may have ended
        behind it, and the rest of it is still to come.
        """
        return turn.status == TURN_STATUS_ENDED and turn.end_sequence <= self.sequence

    def message(self, message_id: str) -> SessionMessage | None:
        """Returns a message with all that it has so far; None when it is not held."""
        message = self._messages.get(message_id)
        if message is not None and self._growing:
            for index in list(self._parts[message_id]):
                self._join_text(message_id, index)
        return message

    def part(self, message_id: str, index: int) -> Part | None:
        """Returns one part with all that it has so far; None when it is not held."""
        part = self._parts.get(message_id, {}).get(index)
        if part is not None:
            self._join_text(message_id, index)
        return part

    def held_message(self, message_id: str) -> SessionMessage | None:
        """Returns a message at once, without the newest text of a part that grows; None when it is not held."""
        return self._messages.get(message_id)

    def held_part(self, message_id: str, index: int) -> Part | None:
        """Returns a part at once, without its newest text while it grows; None when it is not held."""
        return self._parts.get(message_id, {}).get(index)

    def text(self, message_id: str) -> str:
        """Returns the text parts of a message, joined; "" when it has none or is not held."""
        texts = []
        for index, part in sorted(self._parts.get(message_id, {}).items()):
            if part.HasField("text"):
                growing = self._growing.get((message_id, index))
                texts.append(part.text.text if growing is None else growing.joined())
        return texts[0] if len(texts) == 1 else "".join(texts)

    def reset(self, messages: Iterable[SessionMessage], *, sequence: int, resume_token: str) -> None:
        """Replaces all that is held by what ListMessages answered; the session as it was told last stays.

        Args:
            messages: Those of all pages, in their order. They are taken over, not copied.
            sequence: Of the first page.
            resume_token: Of the first page.
        """
        self._clear()
        for message in messages:
            self._put(message)
        self._waiting = [m.message_id for m in self._messages.values() if m.status == MESSAGE_STATUS_QUEUED]
        self.sequence, self.resume_token, self.needs_reread = sequence, resume_token, False

    def apply(self, event: SessionEvent) -> bool:
        """Takes in the next event.

        Returns:
            Whether it counts; False for one that was seen before, that is of another session, or that comes while
            `needs_reread` is set.
        """
        kind = event.WhichOneof("kind")
        if kind == "part_delta":  # most events are
            self._on_part_delta(event.part_delta)
            return True
        if self.deleted or self.needs_reread or event.session_id not in (self.session_id, ""):
            return False
        if sequence := event.sequence:
            if sequence <= self.sequence and kind != "session_deleted":
                return False
            self.sequence = max(sequence, self.sequence)
        if kind is None:
            self.needs_reread = event.reread_if_unknown
        elif (take := _TAKES.get(kind)) is not None:
            take(self, getattr(event, kind))
        return True

    def _clear(self) -> None:
        for held in (self._messages, self._parts, self._waiting, self._growing, self.permissions, self.questions):
            held.clear()
        self.queue_revision, self.running_turn = 0, None

    def _put(self, message: SessionMessage) -> None:
        """Holds a message in its place, or as the last one."""
        message_id = message.message_id
        self._forget_growing(message_id)
        self._messages[message_id] = message
        self._parts[message_id] = {part.index: part for part in message.parts}

    def _replace(self, message: SessionMessage) -> None:
        """Holds a copy, so that the event stays as it came."""
        copy = SessionMessage()
        copy.CopyFrom(message)
        self._put(copy)

    def _drop(self, message_id: str) -> None:
        if self._messages.pop(message_id, None) is not None:
            self._forget_growing(message_id)
            del self._parts[message_id]

    def _put_part(self, message_id: str, part: Part) -> None:
        message = self._messages.get(message_id)
        if message is None:
            return
        parts = self._parts[message_id]
        held = parts.get(part.index)
        if held is not None:
            self._growing.pop((message_id, part.index), None)
            held.CopyFrom(part)
        elif all(index < part.index for index in parts):
            parts[part.index] = added = message.parts.add()
            added.CopyFrom(part)
        else:
            self._join_texts()
            ordered = sorted([*message.parts, part], key=lambda one: one.index)
            message.ClearField("parts")
            message.parts.extend(ordered)
            self._parts[message_id] = {one.index: one for one in message.parts}

    def _on_part_delta(self, delta: Any) -> None:
        place = delta.message_id, delta.part_index
        growing = self._growing.get(place)
        if growing is None:
            part = self._parts.get(place[0], {}).get(place[1])
            if part is None:
                return
            growing = self._growing[place] = _Growing(part)
        offset, end = delta.offset, delta.end_offset
        if offset == growing.size:
            growing.texts.append(delta.text)
            growing.size = end
        elif offset < growing.size < end:
            growing.texts.append(delta.text.encode()[growing.size - offset :].decode(errors="replace"))
            growing.size = end

    def _on_part_started(self, started: Any) -> None:
        if started.part.index not in self._parts.get(started.message_id, ()):
            self._put_part(started.message_id, started.part)

    def _on_part_finished(self, finished: Any) -> None:
        self._put_part(finished.message_id, finished.part)

    def _on_message_added(self, added: Any) -> None:
        message = added.message
        if added.session_title and self.session is not None:
            self.session.title, self.session.title_from_message = added.session_title, True
        if message.message_id in self._messages:
            return
        self._replace(message)
        if message.status == MESSAGE_STATUS_QUEUED and message.message_id not in self._waiting:
            self._waiting.append(message.message_id)

    def _on_message_finished(self, finished: Any) -> None:
        held = self._messages.get(finished.message.message_id)
        if held is None:
            return
        parts = [part for part in held.parts if part.status != PART_STATUS_STREAMING]
        copy = SessionMessage()
        copy.CopyFrom(finished.message)
        copy.ClearField("parts")
        copy.parts.extend(parts)
        self._put(copy)

    def _on_message_snapshot(self, snapshot: Any) -> None:
        self._replace(snapshot.message)

    def _on_message_replaced(self, replaced: Any) -> None:
        if replaced.message.message_id in self._messages:
            self._replace(replaced.message)

    def _on_message_removed(self, removed: Any) -> None:
        self._drop(removed.message_id)
        if removed.message_id in self._waiting:
            self._waiting.remove(removed.message_id)

    def _on_tool_call_updated(self, updated: Any) -> None:
        part = self.part(updated.message_id, updated.part_index)
        if part is not None:
            part.tool_use.CopyFrom(updated.state)

    def _on_tool_log(self, line: Any) -> None:
        part = self.part(line.message_id, line.part_index)
        if part is not None and line.line_index == len(part.tool_use.logs):
            part.tool_use.logs.append(line.text)

    def _on_turn_started(self, started: Any) -> None:
        self.running_turn = _copied_turn(started.turn)
        self._stop_waiting(started.turn.user_message_id)

    def _on_turn_steered(self, steered: Any) -> None:
        self._stop_waiting(steered.user_message_id)

    def _stop_waiting(self, message_id: str) -> None:
        """Moves a message behind the last one that does not wait."""
        waited = message_id in self._waiting
        if waited:
            self._waiting.remove(message_id)
        message = self._messages.pop(message_id, None)
        if message is None:
            return
        if waited or message.status == MESSAGE_STATUS_QUEUED:
            message.previous_message_id = next((o for o in reversed(self._messages) if self._is_told(o)), "")
        message.status = MESSAGE_STATUS_COMPLETE
        self._messages[message_id] = message

    def _is_queued(self, message_id: str) -> bool:
        """Returns whether a message is held with the status of those that wait."""
        return message_id in self._messages and self._messages[message_id].status == MESSAGE_STATUS_QUEUED

    def _is_told(self, message_id: str) -> bool:
        """Returns whether a held message is part of the conversation, and does not wait."""
        return message_id not in self._waiting and not self._is_queued(message_id)

    def _on_turn_ended(self, ended: Any) -> None:
        turn = _copied_turn(ended.turn)
        self.ended_turns[turn.turn_id] = turn
        while len(self.ended_turns) > _KEPT_TURNS:
            del self.ended_turns[next(iter(self.ended_turns))]
        if self.running_turn is not None and self.running_turn.turn_id == turn.turn_id:
            self.running_turn = None

    def _on_queue_changed(self, changed: Any) -> None:
        if changed.revision >= self.queue_revision:  # a snapshot can be ahead of the changes that follow it
            self.queue_revision = changed.revision
            self._waiting = [entry.message_id for entry in changed.entries]

    def _on_conversation_changed(self, changed: Any) -> None:
        if changed.reread:  # what is held is shown until the list is there
            self.needs_reread = True
            return
        kept = changed.kept_through_message_id
        told = [message_id for message_id in self._messages if self._is_told(message_id)]
        for message_id in told[told.index(kept) + 1 :] if kept in told else told:
            self._drop(message_id)

    def _on_permission(self, asked: Any) -> None:
        self.permissions.setdefault(asked.permission.id, asked.permission)

    def _on_permission_replied(self, replied: Any) -> None:
        self.permissions.pop(replied.permission_id, None)

    def _on_question(self, asked: Any) -> None:
        self.questions.setdefault(asked.question.question_id, asked.question)

    def _on_question_answered(self, answered: Any) -> None:
        self.questions.pop(answered.question_id, None)

    def _on_session(self, told: Any) -> None:
        self.session = SessionInfo()
        self.session.CopyFrom(told.session)
        self.status = told.session.status

    def _on_session_snapshot(self, snapshot: Any) -> None:
        self._on_session(snapshot)
        told = [entry.message_id for entry in snapshot.queue]
        left_out = [one for one in self._waiting if one not in told and self._is_queued(one)]
        self._waiting = left_out + told  # the events that end the wait of those follow
        self.queue_revision = snapshot.queue_revision

    def _on_session_status_changed(self, changed: Any) -> None:
        self.status = changed.status
        if self.session is not None:
            self.session.status = changed.status

    def _on_session_deleted(self, _: Any) -> None:
        self._clear()
        self.session, self.status, self.deleted = None, SESSION_STATUS_UNSPECIFIED, True

    def _on_resync(self, _: Any) -> None:
        self.needs_reread = True

    def _forget_growing(self, message_id: str) -> None:
        if self._growing:
            for index in self._parts.get(message_id, ()):
                self._growing.pop((message_id, index), None)

    def _join_texts(self) -> None:
        for message_id, index in list(self._growing):
            self._join_text(message_id, index)

    def _join_text(self, message_id: str, index: int) -> None:
        growing = self._growing.pop((message_id, index), None)
        if growing is not None:
            part = self._parts[message_id][index]
            _set_text(part, growing.joined())
            part.content_bytes = growing.size


class _Growing:
    """The text of a part while deltas come, with its size in bytes, which nobody has to count."""

    __slots__ = ("size", "texts")

    def __init__(self, part: Part) -> None:
        self.texts = [_text(part)]
        self.size = part.content_bytes

    def joined(self) -> str:
        """Returns all of the text, and keeps it as one piece."""
        if len(self.texts) > 1:
            self.texts = ["".join(self.texts)]
        return self.texts[0]


_TAKES: Mapping[str, Callable[[Conversation, Any], None]] = {
    name.removeprefix("_on_"): take
    for name, take in vars(Conversation).items()
    if name.startswith("_on_") and name not in ("_on_permission", "_on_question", "_on_session")
} | {
    "permission_asked": Conversation._on_permission,
    "permission_snapshot": Conversation._on_permission,
    "question_asked": Conversation._on_question,
    "question_snapshot": Conversation._on_question,
    "session_created": Conversation._on_session,
    "session_updated": Conversation._on_session,
}
"""Handlers of events by their kind. The other kinds change nothing."""


def _copied_turn(turn: Turn) -> Turn:
    copy = Turn()
    copy.CopyFrom(turn)
    return copy


def _text(part: Part) -> str:
    content = part.WhichOneof("content")
    if content == "tool_use":
        return part.tool_use.input_json
    text: str = getattr(part, content).text if content in ("text", "reasoning", "refusal") else ""
    return text


def _set_text(part: Part, text: str) -> None:
    content = part.WhichOneof("content")
    if content == "tool_use":
        part.tool_use.input_json = text
    elif content in ("text", "reasoning", "refusal"):
        getattr(part, content).text = text


def replace_with(target: Conversation, other: Conversation) -> None:
    """Makes one conversation all that another one is, at once; the other must not be used any more."""
    target.__dict__.update(other.__dict__)
