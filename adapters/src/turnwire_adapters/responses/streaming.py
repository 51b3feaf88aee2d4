"""The events of a turn as the events of a response.

`sequence_number` is a place in the response: each event counts one, and each character of a text counts one. It is
made of what Turnwire has stored alone, so the same place has the same number on every connection and after every
restart, and `starting_after` needs nothing that was written down. It grows, and has gaps.

Parts are told in the order of the message, whatever the order in which they came, and a call once it is known whether
it asks a person first: a call that does belongs to the next response, when it is allowed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import (
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_TYPE_ASSISTANT,
    PART_STATUS_INTERRUPTED,
    PART_STATUS_STREAMING,
    Part,
    SessionMessage,
)
from opencode.tool.tool_pb2 import PERMISSION_REPLY_ALWAYS, PERMISSION_REPLY_ONCE, ToolCallState
from turnwire_adapters.responses import items
from turnwire_adapters.responses.items import Item
from turnwire_adapters.responses.objects import Outcome, facts_of

LOST_CHARACTERS = 1 << 20
"""Added to the place behind a text that was cut: a client may have got characters that a server that was killed had not
stored, and what follows must have a greater number than those."""

Event = dict[str, Any]


@dataclass(slots=True)
class _PartState:
    """One part of the message that is told now."""

    index: int
    kind: str = ""
    """`text`, `refusal`, `reasoning`, `tool_use`, or "" for what is not told."""
    data: bytes = b""
    """The text so far, in UTF-8."""
    finished: bool = False
    interrupted: bool = False
    call: ToolCallState | None = None
    ready: bool = False
    """Whether a call no longer waits for a person's answer, or never did."""
    asked: bool = False
    """Whether a person is, or was, asked if the call may run."""
    allowed: bool | None = None
    """The person's answer; None until there is one."""
    item: Item | None = None
    """The item whose beginning is out."""
    is_open: bool = False
    """Whether the events of a text's content have begun."""
    base: int = 0
    """The place at which its text began."""
    sent: int = 0
    """Characters that are out."""

    def text(self) -> str:
        """Returns the text so far."""
        return self.data.decode("utf-8", "ignore")


@dataclass(slots=True)
class _MessageState:
    """The answer of one step. It is told in one response; the calls that a person allowed, in the next one."""

    message_id: str
    parts: dict[int, _PartState] = field(default_factory=dict)
    finished: bool = False
    complete: bool = True
    next: int = 0
    """The part to tell next, in the first of both."""
    allowed_calls: list[_PartState] | None = None
    """The calls to tell in the second; None in the first."""
    waiting: list[Item] = field(default_factory=list)
    """Calls and questions that the client has to answer before the turn continues."""
    ended_seconds: int = 0
    """When the answer ended."""
    decided_seconds: int = 0
    """When a person last decided about its calls."""

    def part(self, index: int) -> _PartState:
        """Returns the state of a part."""
        return self.parts.setdefault(index, _PartState(index))


class ResponseStream:
    """Folds the events of one turn, from its beginning, and gives those of one response of it."""

    def __init__(
        self,
        session_id: str,
        segment: int,
        client_tools: Iterable[str],
        show: Callable[[Outcome, dict[str, Any]], dict[str, Any]],
        *,
        after: int = -1,
    ) -> None:
        """Args:
        session_id: The session.
        segment: Which response of the turn, from 0.
        client_tools: Names of the tools that the client runs.
        show: Returns the response object of an outcome, with the facts that the client left with results.
        after: Leaves out the events up to this place.
        """
        self.outcome = Outcome()
        """State of the response; before it has begun, that of an earlier one."""
        self.begun = False
        """Whether the response is there: the turn has come so far."""
        self.ended = False
        """Whether the response has ended: nothing follows."""
        self.waiting: list[Item] = []
        """Calls and questions for which the turn waits; empty unless the response ended because of them."""
        self.awaited: list[Item] = []
        """The calls and questions at the end of the response before, whose answers begin this one."""
        self.facts: dict[str, Any] = {}
        """Facts that came with the results that began the response; {} in the first response of a turn."""
        self.decisions: dict[str, bool] = {}
        """Decisions of people by the ids of the questions: True where a call may run."""
        self._session_id = session_id
        self._target = segment
        self._client_tools = frozenset(client_tools)
        self._show = show
        self._after = after
        self._number = -1
        self._segment = 0
        self._message: _MessageState | None = None
        self._out: list[Event] = []
        self._begin_segment()

    def feed(self, events: Iterable[SessionEvent]) -> list[Event]:
        """Takes a batch of the turn's events, and returns the events of the response that follow from it."""
        for event in events:
            if self.ended:
                break
            self._take(event)
        if not self.ended:
            self._tell_message()
        out, self._out = self._out, []
        return out

    def output(self) -> list[Item]:
        """Returns the items so far, the one that is being written included."""
        output = list(self.outcome.output)
        for part in self._message.parts.values() if self._message else ():
            if part.item is not None and part.item["status"] == "in_progress" and self.begun and not self.ended:
                if part.kind == "tool_use":
                    output.append(part.item)
                else:
                    output.append(items.text_item(self._place(part), part.kind, part.text(), "in_progress"))
        return output

    # What happened.

    def _take(self, event: SessionEvent) -> None:
        kind = event.WhichOneof("kind")
        if kind == "message_added" and event.message_added.message.type == MESSAGE_TYPE_ASSISTANT:
            self._tell_message()
            self._message = _MessageState(event.message_added.message.message_id)
        elif kind == "message_snapshot":
            self._take_snapshot(event.message_snapshot.message)
        elif kind == "turn_ended":
            self._tell_message(is_last=True)
            if self._tells() and not self.ended:  # no later response begins with the end
                self.outcome.end_with(event.turn_ended.turn)
                self._end_segment()
        elif kind is not None and self._message is not None:
            self._take_of_message(self._message, kind, event)

    def _take_of_message(self, message: _MessageState, kind: str, event: SessionEvent) -> None:
        value = getattr(event, kind)
        if kind == "permission_asked":
            self._call(message, value.permission.tool_call_id).asked = True
        elif kind == "permission_replied":
            part = self._call(message, value.tool_call_id)
            part.asked, part.ready = True, True
            message.decided_seconds = event.event_time.seconds
            part.allowed = value.response in (PERMISSION_REPLY_ONCE, PERMISSION_REPLY_ALWAYS)
            if part.call is not None:
                self.decisions[items.approval_request(self._place(part), part.call)["id"]] = part.allowed
        elif kind == "message_finished" and value.message.message_id == message.message_id:
            message.finished, message.ended_seconds = True, event.event_time.seconds
            message.complete = value.message.status == MESSAGE_STATUS_COMPLETE
            message.parts = {index: part for index, part in message.parts.items() if part.finished}
            self.outcome.usage.add(value.message)
        elif getattr(value, "message_id", "") != message.message_id:
            return
        elif kind in ("part_started", "part_finished"):
            self._take_part(message, value.part)
        elif kind == "part_delta":
            part = message.part(value.part_index)
            held = len(part.data)
            if value.offset <= held < value.end_offset:
                part.data += value.text.encode()[held - value.offset :]
        elif kind == "tool_call_updated":
            part = message.part(value.part_index)
            part.kind, part.call = "tool_use", value.state
            part.asked = part.asked or bool(value.state.permission_id)
            # A replayed event has the call as it is now: one that became ready later than this waited for an answer.
            happened = event.event_time.ToMilliseconds()
            part.ready = part.ready or (not part.asked and value.state.started_at <= happened)

    def _take_part(self, message: _MessageState, given: Part) -> None:
        part = message.part(given.index)
        part.kind = given.WhichOneof("content") or ""
        part.finished = given.status != PART_STATUS_STREAMING
        part.interrupted = given.status == PART_STATUS_INTERRUPTED
        if (read := items.part_text(given)) is not None:
            part.data = read[1].encode()
        elif part.kind == "tool_use":
            part.call = given.tool_use

    def _take_snapshot(self, shown: SessionMessage) -> None:
        if shown.type != MESSAGE_TYPE_ASSISTANT:
            return
        if self._message is None or self._message.message_id != shown.message_id:
            self._tell_message()
            self._message = _MessageState(shown.message_id)
        for part in shown.parts:
            if not self._message.part(part.index).finished:
                self._take_part(self._message, part)

    def _call(self, message: _MessageState, tool_call_id: str) -> _PartState:
        found = (part for part in message.parts.values() if part.call is not None and part.call.id == tool_call_id)
        return next(found, _PartState(-1))

    # What is told of it.

    def _tell_message(self, *, is_last: bool = False) -> None:
        """Tells of the message what can be told. `is_last`: nothing more will be known of its calls."""
        message = self._message
        if message is None or self.ended:
            return
        if message.allowed_calls is None:
            while message.next in message.parts or (
                message.finished and message.next <= max(message.parts, default=-1)
            ):
                part = message.parts.get(message.next)
                if part is not None and not self._tell_part(message, part, is_last=is_last):
                    return
                message.next += 1
            if not message.finished:
                return
            message.allowed_calls = [part for part in message.parts.values() if part.asked and part.call is not None]
            message.allowed_calls.sort(key=lambda part: part.index)
            self._wait_for_client(message, has_decided=False)
        while message.allowed_calls and not self.ended:
            part = message.allowed_calls[0]
            if not (part.ready or is_last) or not self._tell_call(message, part, is_last=is_last):
                return
            message.allowed_calls.pop(0)
            if not message.allowed_calls:
                self._wait_for_client(message, has_decided=True)

    def _wait_for_client(self, message: _MessageState, *, has_decided: bool) -> None:
        """Ends the response when the turn waits for the client now, or did."""
        if message.waiting and not self.ended:
            waiting, message.waiting = message.waiting, []
            # Of what has happened by now, only this decides: of a replay, all that came later is known, too.
            seconds = message.decided_seconds if has_decided else message.ended_seconds
            self.outcome.status, self.outcome.completed_at = "completed", seconds or None
            self._end_segment(waiting)

    def _tell_part(self, message: _MessageState, part: _PartState, *, is_last: bool) -> bool:
        """Tells a part as far as it can be. Returns whether all of it is told."""
        if part.kind in ("text", "refusal", "reasoning"):
            return self._tell_text(message, part)
        if part.kind != "tool_use" or part.call is None:
            return part.finished
        if not message.finished or not (part.ready or part.asked or is_last):
            return False
        if not part.asked:
            return self._tell_call(message, part, is_last=is_last)
        question = items.approval_request(self._place(part), part.call)
        message.waiting.append(question)
        self._emit("response.output_item.added", output_index=len(self.outcome.output), item=question)
        self._finish_item(question)
        return True

    def _tell_text(self, message: _MessageState, part: _PartState) -> bool:
        names = _NAMES[part.kind]
        if part.item is None:
            part.item = items.text_item(self._place(part), part.kind, "", "in_progress")
            added = {**part.item, "content": []} if part.kind != "reasoning" else part.item
            self._emit("response.output_item.added", output_index=len(self.outcome.output), item=added)
        place = {"item_id": part.item["id"], "output_index": len(self.outcome.output), names.index: 0}
        text = part.text()
        if text and not part.is_open:
            part.is_open = True
            self._emit(f"response.{names.part}.added", **place, part=names.content(""))
            part.base = self._number
        if part.is_open:
            self._tell_characters(part, f"response.{names.text}.delta", place, text)
        if not part.finished:
            return False
        if part.is_open:
            self._number = part.base + len(text) + (LOST_CHARACTERS if part.interrupted else 0)
            self._emit(f"response.{names.text}.done", **place, **names.done(text))
            self._emit(f"response.{names.part}.done", **place, part=names.content(text))
        status = "incomplete" if part.interrupted else "completed"
        part.item = items.text_item(self._place(part), part.kind, text, status)
        self._finish_item(part.item)
        return True

    def _tell_characters(self, part: _PartState, kind: str, place: Event, text: str) -> None:
        start = max(part.sent, self._after - part.base, 0)
        part.sent = max(part.sent, len(text))
        self._number = part.base + part.sent
        if start < len(text) and self._tells():
            more: Event = {"logprobs": []} if kind == "response.output_text.delta" else {}
            event = {"type": kind, "sequence_number": self._number, **place, "delta": text[start:], **more}
            self._out.append(event)

    def _tell_call(self, message: _MessageState, part: _PartState, *, is_last: bool) -> bool:
        call = part.call
        assert call is not None
        is_client = call.name in self._client_tools and part.allowed is not False
        place = self._place(part)
        if part.item is None:
            make = items.function_call if is_client else items.mcp_call
            part.item = {**make(place, call, "in_progress"), "arguments": ""}
            if not is_client:
                part.item |= {"output": None, "error": None}
            self._emit("response.output_item.added", output_index=len(self.outcome.output), item=part.item)
        at = {"item_id": part.item["id"], "output_index": len(self.outcome.output)}
        if is_client:
            self._tell_arguments("response.function_call_arguments", at, call)
            item = items.function_call(place, call, "completed" if message.complete else "incomplete")
            message.waiting.append(item)
            self._finish_item(item)
            return True
        if call.status not in items.SETTLED and not is_last:
            return False
        self._tell_arguments("response.mcp_call_arguments", at, call)
        self._emit("response.mcp_call.completed" if call.status == "success" else "response.mcp_call.failed", **at)
        status = items.call_status(call)
        self._finish_item(items.mcp_call(place, call, "incomplete" if status == "in_progress" else status))
        return True

    def _tell_arguments(self, kind: str, at: Event, call: ToolCallState) -> None:
        if call.input_json:
            self._emit(f"{kind}.delta", **at, delta=call.input_json)
        named = {"name": call.name} if kind.startswith("response.function") else {}
        self._emit(f"{kind}.done", **at, arguments=call.input_json, **named)

    def _finish_item(self, item: Item) -> None:
        self._emit("response.output_item.done", output_index=len(self.outcome.output), item=item)
        self.outcome.output.append(item)

    def _begin_segment(self) -> None:
        if self._segment == self._target:
            self.begun = True
            self._emit("response.created", response=self._show(self.outcome, self.facts))
            self._emit("response.in_progress", response=self._show(self.outcome, self.facts))

    def _end_segment(self, waiting: list[Item] | None = None) -> None:
        if self._segment == self._target:
            self.ended, self.waiting = True, waiting or []
            ending = self.outcome.status if self.outcome.status in ("completed", "failed") else "incomplete"
            self._emit(f"response.{ending}", response=self._show(self.outcome, self.facts))
        else:
            self._segment += 1
            self.awaited = waiting or []
            ended_at, self.outcome = self.outcome.completed_at, Outcome()
            calls = [part.call for part in self._message.parts.values() if part.call] if self._message else []
            found = (facts for call in calls if (facts := facts_of(call.metadata_json)))
            self.facts = {"created_at": ended_at, **next(found, {})}
            self._begin_segment()

    def _emit(self, kind: str, **data: Any) -> None:
        if not self._tells():
            return
        self._number += 1
        if self._number > self._after:
            self._out.append({"type": kind, "sequence_number": self._number, **data})

    def _tells(self) -> bool:
        return self._segment == self._target

    def _place(self, part: _PartState) -> tuple[str, str, int]:
        assert self._message is not None
        return self._session_id, self._message.message_id, part.index


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of the events of one kind of text."""

    part: str
    text: str
    index: str
    content: Callable[[str], Item]
    done: Callable[[str], Event]


_NAMES = {
    "text": _Names(
        "content_part",
        "output_text",
        "content_index",
        lambda text: items.content_part("text", text),
        lambda text: {"text": text, "logprobs": []},
    ),
    "refusal": _Names(
        "content_part",
        "refusal",
        "content_index",
        lambda text: items.content_part("refusal", text),
        lambda text: {"refusal": text},
    ),
    "reasoning": _Names(
        "reasoning_summary_part",
        "reasoning_summary_text",
        "summary_index",
        items.summary_part,
        lambda text: {"text": text},
    ),
}
