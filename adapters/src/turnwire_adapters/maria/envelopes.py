"""The events of a session as Maria's envelopes: a pure fold from what a watch brings.

    envelopes = Envelopes(session_id, messages, sequence)  # of ListMessages, all pages
    publish(envelopes.opening())                           # the queue, before anything else
    for event in watch:                                    # from there on
        publish(*envelopes.apply(event))

An envelope has the same id wherever a subscription began, so what comes twice can be recognised.

Order for each message that a model answers: MessageQueued, PreConversation, MessageUnqueued, MessageAdded (user), then
for each step RequestCompleted and for each of its calls, in their order, PreToolCall, PostToolCall and MessageAdded
(tool); at last PostConversation. A call that ends before an earlier one of its step is held back until that one has
ended. After each change of the queue comes its snapshot.
"""

import json
import uuid
from collections.abc import Iterable, Iterator

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message import content_pb2 as pb
from opencode.tool.tool_pb2 import ToolCallState
from turnwire_adapters.forms import Json, is_readable
from turnwire_adapters.maria.conversations import SETTLED, messages_json, result_text
from turnwire_adapters.maria.ids import uuid_of
from turnwire_adapters.maria.messages import call_id, joined, message_json, tool_call_json, tool_json, usage_json

QUEUE = "queued_messages.synchronized"
"""`msg` of the snapshot of the queue: `{"msg", "id", "queued_messages": [{"id", "message"}]}`, next first."""

_NAMESPACE = uuid.UUID("6f0c2a0e-6f6d-5a39-9d27-8d3f0c1f7b52")
"""Namespace of the ids of envelopes, which are UUIDs of version 5."""


class Envelopes:
    """Folds the events of one session. Not for two threads at once."""

    def __init__(self, session_id: str, messages: Iterable[pb.SessionMessage] = (), sequence: int = 0) -> None:
        """Starts at a place.

        Args:
            session_id: The session; events of other sessions are skipped.
            messages: The conversation at that place, as ListMessages answers it; nothing for a new session.
            sequence: The place; durable events up to it are skipped.
        """
        self._session_id = session_id
        self._sequence = sequence
        self._queue: dict[str, pb.SessionMessage] = {}
        self._answers: dict[str, _Answer] = {}
        for message in messages:
            if message.status == pb.MESSAGE_STATUS_QUEUED:
                self._queue[message.message_id] = message
            elif message.type == pb.MESSAGE_TYPE_ASSISTANT:
                answer = _Answer(message)
                answer.skip_settled()
                if answer.open:
                    self._answers[message.message_id] = answer

    def opening(self) -> Json:
        """Returns the snapshot of the queue that begins a subscription."""
        return self._snapshot()

    def apply(self, event: SessionEvent) -> list[Json]:
        """Returns the envelopes of an event, in order; none for most.

        After `resync`, and after `conversation_changed` with `reread`, list the messages and start a new fold: messages
        came without events.
        """
        if not event.sequence or event.sequence <= self._sequence or event.session_id != self._session_id:
            return []
        self._sequence = event.sequence
        return list(self._of(event))

    def _of(self, event: SessionEvent) -> Iterator[Json]:
        match event.WhichOneof("kind"):
            case "turn_started":
                yield self._envelope("PreConversation", event.turn_id)
                yield from self._joined(event.turn_started.turn.user_message_id)
            case "turn_steered":
                yield from self._joined(event.turn_steered.user_message_id)
            case "turn_ended":
                if event.turn_ended.turn.HasField("start_time"):  # else it was dropped while it waited
                    yield self._envelope("PostConversation", event.turn_id)
            case "queue_changed":
                yield from self._ordered([entry.message_id for entry in event.queue_changed.entries])
            case _:
                yield from self._of_message(event)

    def _of_message(self, event: SessionEvent) -> Iterator[Json]:
        match event.WhichOneof("kind"):
            case "message_added":
                yield from self._added(event.message_added.message)
            case "part_finished":
                if answer := self._answers.get(event.part_finished.message_id):
                    answer.take(event.part_finished.part)
            case "message_finished":
                yield from self._finished(event.message_finished.message)
            case "tool_call_updated":
                updated = event.tool_call_updated
                if answer := self._answers.get(updated.message_id):
                    answer.update(updated.part_index, updated.state)
                    yield from self._calls(answer)
            case "message_removed":
                yield from self._removed(event.message_removed.message_id)
            case "message_replaced":
                message = event.message_replaced.message
                if message.message_id in self._queue:
                    self._queue[message.message_id] = message
                    yield self._snapshot()

    def _added(self, message: pb.SessionMessage) -> Iterator[Json]:
        if message.type == pb.MESSAGE_TYPE_ASSISTANT:
            answer = self._answers[message.message_id] = _Answer(message)
            if message.status == pb.MESSAGE_STATUS_COMPLETE:  # a client reports what its own model said
                yield self._envelope("MessageAdded", f"{message.message_id}/0", message=message_json(message))
                yield from self._calls(answer)
        elif message.type == pb.MESSAGE_TYPE_USER and message.turn_id:
            self._queue[message.message_id] = message
            entry = {"id": uuid_of(message.message_id), "message": message_json(message)}
            yield self._envelope("MessageQueued", message.message_id, message=entry)
            yield self._snapshot()
        else:
            for index, written in enumerate(messages_json(message)):
                yield self._envelope("MessageAdded", f"{message.message_id}/{index}", message=written)

    def _joined(self, message_id: str) -> Iterator[Json]:
        message = self._queue.pop(message_id, None)
        if message is not None:
            yield self._envelope("MessageUnqueued", message_id, message={"id": uuid_of(message_id)})
            yield self._snapshot()
            yield self._envelope("MessageAdded", f"{message_id}/0", message=message_json(message))

    def _removed(self, message_id: str) -> Iterator[Json]:
        if self._queue.pop(message_id, None) is not None:
            yield self._envelope("MessageUnqueued", message_id, message={"id": uuid_of(message_id)})
            yield self._snapshot()

    def _ordered(self, message_ids: list[str]) -> Iterator[Json]:
        before = list(self._queue)
        waiting = [message_id for message_id in message_ids if message_id in self._queue]
        order = [message_id for message_id in before if message_id not in waiting] + waiting
        if order != before:
            self._queue = {message_id: self._queue[message_id] for message_id in order}
            yield self._snapshot()

    def _finished(self, message: pb.SessionMessage) -> Iterator[Json]:
        answer = self._answers.setdefault(message.message_id, _Answer(message))
        answer.finish(message)
        written = message_json(answer.message)
        flat = {
            "role": "assistant",
            "content": joined(written["content"]),
            "tool_calls": written.get("tool_calls", []),
        }
        usage = usage_json(message.usage) if message.HasField("usage") else None
        yield self._envelope("RequestCompleted", message.message_id, usage=usage and [usage], message=flat)
        yield from self._calls(answer)

    def _calls(self, answer: "_Answer") -> Iterator[Json]:
        """Yields what is due of an answer's calls, and forgets the answer when all have their results."""
        while (call := answer.next_due()) is not None:
            about = {"tool_call": tool_call_json(call), "name": call.name, "args": _arguments(call)}
            if not answer.announced:
                answer.announced = True
                yield self._envelope("PreToolCall", call.id, **about)
            if call.status not in SETTLED:
                return
            text = result_text(call)
            outcome = {"result": text} if call.status == "success" else {"error": text}
            yield self._envelope("PostToolCall", call.id, **about, **outcome, text=text)
            yield self._envelope("MessageAdded", call.id, message=tool_json(call_id(call), text))
            answer.settle_next()
        if not answer.open:
            self._answers.pop(answer.message.message_id, None)

    def _snapshot(self) -> Json:
        return self._envelope(QUEUE, str(self._sequence), queued_messages=queued_json(self._queue.values()))

    def _envelope(self, msg: str, subject: str, **fields: object) -> Json:
        """Returns an envelope. Its id follows from what it is about: a snapshot is about a place in the events."""
        return {"msg": msg, "id": str(uuid.uuid5(_NAMESPACE, f"{self._session_id}/{msg}/{subject}")), **fields}


def queued_json(messages: Iterable[pb.SessionMessage]) -> list[Json]:
    """Returns messages that wait, in their order."""
    return [{"id": uuid_of(message.message_id), "message": message_json(message)} for message in messages]


class _Answer:
    """An assistant message that is being written, or whose calls wait for results."""

    def __init__(self, message: pb.SessionMessage) -> None:
        self.message = pb.SessionMessage()
        self.message.CopyFrom(message)
        self._parts = {part.index: part for part in message.parts if part.status != pb.PART_STATUS_STREAMING}
        self._settled = 0
        self.announced = False
        """Whether the next call had its PreToolCall."""

    @property
    def open(self) -> bool:
        """True while more can come: text, or results."""
        return self.message.status == pb.MESSAGE_STATUS_STREAMING or self._settled < len(self._calls())

    def take(self, part: pb.Part) -> None:
        """Keeps a part that is finished."""
        self._parts[part.index] = part

    def update(self, index: int, state: ToolCallState) -> None:
        """Keeps the state of a call."""
        part = self._parts.setdefault(index, pb.Part(index=index))
        part.tool_use.CopyFrom(state)

    def finish(self, message: pb.SessionMessage) -> None:
        """Takes the finished message, which has no parts, with those that were finished before."""
        self.message = pb.SessionMessage()
        self.message.CopyFrom(message)
        del self.message.parts[:]
        self.message.parts.extend(part for _, part in sorted(self._parts.items()))

    def skip_settled(self) -> None:
        """Passes over the calls that have their results: an earlier subscription reported them."""
        while self._settled < len(self._calls()) and self._calls()[self._settled].status in SETTLED:
            self._settled += 1

    def next_due(self) -> ToolCallState | None:
        """Returns the next call when it has begun or ended; None while it has not, or when all have their results."""
        calls = self._calls()
        if self.message.status == pb.MESSAGE_STATUS_STREAMING or self._settled == len(calls):
            return None
        call = calls[self._settled]
        begun = call.HasField("started_at") and not call.permission_id
        return call if begun or call.status in SETTLED else None

    def settle_next(self) -> None:
        """Goes on to the call after the next one."""
        self._settled += 1
        self.announced = False

    def _calls(self) -> list[ToolCallState]:
        return [part.tool_use for _, part in sorted(self._parts.items()) if part.HasField("tool_use")]


def _arguments(call: ToolCallState) -> object:
    """Returns the arguments as JSON, or as the text that the model wrote when that is none that all can read."""
    try:
        return json.loads(call.input_json) if is_readable(call.input_json) else call.input_json
    except ValueError:  # a number of thousands of digits
        return call.input_json
