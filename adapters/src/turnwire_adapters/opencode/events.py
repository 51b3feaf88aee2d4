"""Turnwire's events, translated into those of OpenCode.

A `Translator` turns the events of all sessions of one caller into OpenCode's. It reads what an event does not have: the
session around a message, the question of an answer.
"""

import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from opencode.event.session_event_pb2 import (
    CONVERSATION_CHANGE_ALTERNATIVE_SELECTED,
    CONVERSATION_CHANGE_RESTORED,
    SessionEvent,
)
from opencode.message.content_pb2 import (
    FINISH_REASON_ABORTED,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_USER,
    PART_STATUS_STREAMING,
    Part,
    SessionMessage,
)
from opencode.question.question_pb2 import QUESTION_ACTION_ACCEPT
from opencode.session.session_pb2 import SESSION_STATUS_IDLE, SESSION_STATUS_RUNNING, SessionInfo, SessionStatus
from opencode.tool.tool_pb2 import PERMISSION_REPLY_ALWAYS, PERMISSION_REPLY_ONCE
from turnwire_adapters.doors import is_of_door
from turnwire_adapters.opencode.ids import shown
from turnwire_adapters.opencode.objects import (
    Json,
    aborted_json,
    directory_of,
    failure_json,
    message_id_of,
    permission_json,
    session_json,
)
from turnwire_adapters.opencode.questions import question_json
from turnwire_adapters.opencode.reading import Reader
from turnwire_client import NotFoundError

_KEPT_SESSIONS = 2_000
"""Sessions that a stream remembers; others are read again."""

_TRIES = 10
"""Reads of a session that changes all the time before one counts; a session changes a few times in a second."""

Told = tuple[str, Json]
"""Type and properties of an event."""


@dataclass(slots=True)
class _Growing:
    """A part whose text grows."""

    session_id: str
    message_id: str
    part_id: str
    size: int
    """Bytes that the client has."""


class Translator:
    """Tells the events of a watch of all sessions. One for each stream: it knows what that stream's client holds."""

    def __init__(self, reader: Reader) -> None:
        """Begins with nothing told."""
        self._reader = reader
        self._sessions: OrderedDict[str, SessionInfo] = OrderedDict()
        self._messages: dict[str, SessionMessage] = {}
        """Answers that are being written, without their parts."""
        self._growing: dict[tuple[str, int], _Growing] = {}
        self._settled: OrderedDict[str, int] = OrderedDict()
        """By session: the sequence up to which it was told what became of hidden messages."""
        self.read_through: dict[str, int] = {}
        """Sequences up to which a session was told by reading it."""

    async def directory(self, session_id: str) -> str:
        """Returns where a session's client runs; "/" when that is not known."""
        return directory_of(await self._session(session_id)) or "/"

    async def tell(self, event: SessionEvent) -> list[Told]:
        """Returns what a client is told of an event. May be empty."""
        kind = event.WhichOneof("kind")
        if event.sequence and event.sequence <= self.read_through.get(event.session_id, 0):
            return []
        tell = getattr(self, f"_on_{kind}", None)
        if tell is None:
            return []
        try:
            if event.session_id and await self._is_of_door(event):
                return []
            told: list[Told] = await tell(getattr(event, str(kind)), event)
        except NotFoundError:  # the session or the message went meanwhile, which is the next event
            return []
        return told

    async def tell_turn(self, session_id: str, user_message_id: str = "") -> list[Told]:
        """Returns the whole of the newest turn, or of all since a message, and whether it goes on.

        Events that this has told already are told no second time.
        """
        for _ in range(_TRIES):
            messages, sequence = await self._reader.turn(session_id, user_message_id)
            told = await self._updated(session_id)
            if self._sessions[session_id].head_sequence == sequence:
                break  # else it may be idle already, while these messages are still being written
        self.read_through[session_id] = sequence
        for message in messages:
            told += await self._whole(message)
        return [*told, *_told_status(session_id, self._sessions[session_id].status)]

    async def _session(self, session_id: str) -> SessionInfo:
        if session_id not in self._sessions:
            self._keep((await self._reader.session(session_id)).session)
        return self._sessions[session_id]

    async def _is_of_door(self, event: SessionEvent) -> bool:
        """Returns whether an event is about a session of a single request, of which clients know nothing."""
        if event.WhichOneof("kind") in ("session_created", "session_deleted"):  # it has the session, or there is none
            known = self._sessions.get(event.session_id)
            return known is not None and is_of_door(known)
        return is_of_door(await self._session(event.session_id))

    def _keep(self, session: SessionInfo) -> None:
        self._sessions[session.id] = session
        self._sessions.move_to_end(session.id)
        while len(self._sessions) > _KEPT_SESSIONS:
            self._sessions.popitem(last=False)

    async def _updated(self, session_id: str) -> list[Told]:
        """Tells a session as it is now; nothing of one that is not listed."""
        found = await self._reader.session(session_id)
        self._keep(found.session)
        if is_of_door(found.session):
            return []
        return [_told_session("session.updated", await self._reader.session_json(found))]

    def _settle(self, event: SessionEvent) -> None:
        self._settled[event.session_id] = event.sequence - 1  # what is hidden since this event is known at its sequence
        self._settled.move_to_end(event.session_id)
        while len(self._settled) > _KEPT_SESSIONS:
            self._settled.popitem(last=False)

    def _shown(self, message_id: str) -> str:
        """Returns the id by which clients know a message that may be gone."""
        known = self._reader.known.get(message_id)
        return known.message_id if known else shown(message_id)

    async def _info(self, message: SessionMessage) -> list[Told]:
        if message.type not in (MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT):
            return []
        info = await self._reader.info(message, await self._session(message.session_id))
        return [("message.updated", {"sessionID": message.session_id, "info": info})]

    async def _whole(self, message: SessionMessage) -> list[Told]:
        """Tells a message with all that it has; what grows goes on from there."""
        told = await self._info(message)
        if not told:
            return []
        lost = self._forget(message.message_id, kept={shown(part.part_id) for part in message.parts})
        if told[0][1]["info"]["role"] == "assistant" and "completed" not in told[0][1]["info"]["time"]:
            self._messages[message.message_id] = message
        told += [_told_part(message.session_id, part) for part in await self._reader.parts(message)]
        for part in message.parts:
            self._grow(message, part)
        return [*lost, *told]

    def _grow(self, message: SessionMessage, part: Part) -> None:
        if part.status == PART_STATUS_STREAMING and part.WhichOneof("content") in ("text", "reasoning", "refusal"):
            made = _Growing(message.session_id, message_id_of(message), shown(part.part_id), part.content_bytes)
            self._growing[message.message_id, part.index] = made

    def _forget(self, message_id: str, kept: Collection[str] = ()) -> list[Told]:
        """Forgets what grows of a message; returns the removal of parts that a server that was killed has lost."""
        self._messages.pop(message_id, None)
        gone = [self._growing.pop(place) for place in list(self._growing) if place[0] == message_id]
        return [_told_removal(growing) for growing in gone if growing.part_id not in kept]

    def _replaced(self, message_id: str, part: Part) -> list[Told]:
        """Returns the removal of a part that a server that was killed has lost, and writes again as another one."""
        growing = self._growing.get((message_id, part.index))
        if growing is None or growing.part_id == shown(part.part_id):
            return []
        del self._growing[message_id, part.index]
        return [_told_removal(growing)]

    async def _part(self, message_id: str, part: Part, session_id: str) -> list[Told]:
        message = self._messages.get(message_id)
        if message is None:
            if not session_id:
                return []
            message = SessionMessage(message_id=message_id, session_id=session_id, type=MESSAGE_TYPE_ASSISTANT)
            message.create_time.GetCurrentTime()
        copy = SessionMessage()
        copy.CopyFrom(message)
        copy.update_time.GetCurrentTime()
        made = await self._reader.part(copy, part)
        return [] if made is None else [_told_part(message.session_id, made)]

    async def _on_message_added(self, added: Any, _: SessionEvent) -> list[Told]:
        told = await self._whole(added.message)
        if added.session_title:
            told += await self._updated(added.message.session_id)
        return told

    async def _on_message_snapshot(self, snapshot: Any, _: SessionEvent) -> list[Told]:
        return await self._whole(snapshot.message)

    async def _on_message_replaced(self, replaced: Any, _: SessionEvent) -> list[Told]:
        return await self._whole(replaced.message)

    async def _on_message_finished(self, finished: Any, _: SessionEvent) -> list[Told]:
        lost = self._forget(finished.message.message_id)
        return [*lost, *await self._info(finished.message)]

    async def _on_message_removed(self, removed: Any, event: SessionEvent) -> list[Told]:
        return [_told_gone(event.session_id, self._shown(removed.message_id))]

    async def _on_part_started(self, started: Any, event: SessionEvent) -> list[Told]:
        message, place = self._messages.get(started.message_id), (started.message_id, started.part.index)
        lost = self._replaced(started.message_id, started.part)
        if message is None or place in self._growing:
            return lost
        self._grow(message, started.part)
        return [*lost, *await self._part(started.message_id, started.part, event.session_id)]

    async def _on_part_delta(self, delta: Any, _: SessionEvent) -> list[Told]:
        growing = self._growing.get((delta.message_id, delta.part_index))
        if growing is None or not delta.offset <= growing.size < delta.end_offset:
            return []
        text = delta.text.encode()[growing.size - delta.offset :].decode(errors="replace")
        growing.size = delta.end_offset
        properties = {
            "sessionID": growing.session_id,
            "messageID": growing.message_id,
            "partID": growing.part_id,
            "field": "text",
            "delta": text,
        }
        return [("message.part.delta", properties)]

    async def _on_part_finished(self, finished: Any, event: SessionEvent) -> list[Told]:
        lost = self._replaced(finished.message_id, finished.part)
        self._growing.pop((finished.message_id, finished.part.index), None)
        return [*lost, *await self._part(finished.message_id, finished.part, event.session_id)]

    async def _on_tool_call_updated(self, updated: Any, event: SessionEvent) -> list[Told]:
        part = Part(part_id=updated.state.id, index=updated.part_index, tool_use=updated.state)
        return await self._part(updated.message_id, part, event.session_id)

    async def _on_turn_started(self, _: Any, event: SessionEvent) -> list[Told]:
        sequence, hidden = self._reader.known.hidden(event.session_id)
        if not self._settled.get(event.session_id, 0) < sequence < event.sequence:
            return []
        self._settle(event)
        gone = [_told_gone(event.session_id, self._shown(message_id)) for message_id in hidden]
        return [*gone, *await self._updated(event.session_id)]

    async def _on_turn_ended(self, ended: Any, event: SessionEvent) -> list[Told]:
        told = await self._updated(event.session_id)
        turn = ended.turn
        if turn.finish_reason == FINISH_REASON_ABORTED:
            return [("session.error", {"sessionID": event.session_id, "error": aborted_json()}), *told]
        if turn.HasField("failure"):
            error = failure_json(turn.failure, turn.settings.model.provider_id)
            return [("session.error", {"sessionID": event.session_id, "error": error}), *told]
        return told

    async def _on_retry_scheduled(self, retry: Any, event: SessionEvent) -> list[Told]:
        due = int(time.time() * 1000) + retry.delay.ToMilliseconds()
        status = {"type": "retry", "attempt": retry.attempt, "message": retry.failure.message, "next": due}
        return [("session.status", {"sessionID": event.session_id, "status": status})]

    async def _on_session_status_changed(self, changed: Any, event: SessionEvent) -> list[Told]:
        return _told_status(event.session_id, changed.status)

    async def _on_session_created(self, created: Any, event: SessionEvent) -> list[Told]:
        self._keep(created.session)
        if is_of_door(created.session):
            return []
        info = session_json(created.session)
        return [_told_session("session.created", info), _told_session("session.updated", info)]

    async def _on_session_updated(self, _: Any, event: SessionEvent) -> list[Told]:
        return await self._updated(event.session_id)

    async def _on_session_deleted(self, _: Any, event: SessionEvent) -> list[Told]:
        session = self._sessions.pop(event.session_id, None) or SessionInfo(id=event.session_id)
        return [_told_session("session.deleted", session_json(session))]

    async def _on_context_compacted(self, _: Any, event: SessionEvent) -> list[Told]:
        return [("session.compacted", {"sessionID": event.session_id})]

    async def _on_conversation_changed(self, changed: Any, event: SessionEvent) -> list[Told]:
        self._settle(event)
        told = await self._updated(event.session_id)  # with what is taken back, which a client hides itself
        if changed.change in (CONVERSATION_CHANGE_RESTORED, CONVERSATION_CHANGE_ALTERNATIVE_SELECTED):
            messages, _ = await self._reader.conversation(event.session_id)
            for message in messages:
                told += await self._whole(message)
        return told

    async def _on_permission_asked(self, asked: Any, _: SessionEvent) -> list[Told]:
        return [("permission.asked", permission_json(asked.permission))]

    _on_permission_snapshot = _on_permission_asked

    async def _on_permission_replied(self, replied: Any, event: SessionEvent) -> list[Told]:
        reply = {PERMISSION_REPLY_ONCE: "once", PERMISSION_REPLY_ALWAYS: "always"}.get(replied.response, "reject")
        properties = {"sessionID": event.session_id, "requestID": replied.permission_id, "reply": reply}
        return [("permission.replied", properties)]

    async def _on_question_asked(self, asked: Any, _: SessionEvent) -> list[Told]:
        return [("question.asked", question_json(asked.question))]

    _on_question_snapshot = _on_question_asked

    async def _on_question_answered(self, answered: Any, event: SessionEvent) -> list[Told]:
        properties: Json = {"sessionID": event.session_id, "requestID": answered.question_id}
        if answered.action == QUESTION_ACTION_ACCEPT:  # Turnwire keeps no answers, so there are none to tell
            return [("question.replied", {**properties, "answers": []})]
        return [("question.rejected", properties)]


def _told_gone(session_id: str, message_id: str) -> Told:
    return "message.removed", {"sessionID": session_id, "messageID": message_id}


def _told_session(kind: str, info: Json) -> Told:
    return kind, {"sessionID": info["id"], "info": info}


def _told_status(session_id: str, status: "SessionStatus.ValueType") -> list[Told]:
    if status == SESSION_STATUS_RUNNING:
        return [("session.status", {"sessionID": session_id, "status": {"type": "busy"}})]
    if status == SESSION_STATUS_IDLE:
        idle = {"sessionID": session_id, "status": {"type": "idle"}}
        return [("session.status", idle), ("session.idle", {"sessionID": session_id})]
    return []


def _told_removal(growing: _Growing) -> Told:
    properties = {"sessionID": growing.session_id, "messageID": growing.message_id, "partID": growing.part_id}
    return "message.part.removed", properties


def _told_part(session_id: str, part: Json) -> Told:
    return "message.part.updated", {"sessionID": session_id, "part": part, "time": int(time.time() * 1000)}
