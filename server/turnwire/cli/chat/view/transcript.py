"""Follows the events of a session and says what to draw: what is finished once, what still changes again and again."""

from collections import deque
from collections.abc import Callable, Iterator

from rich.console import RenderableType

from opencode.event.session_event_pb2 import ConversationChange, PartDelta, SessionEvent
from opencode.message.content_pb2 import MessageStatus, MessageType, Part, PartStatus, SessionMessage
from opencode.tool.tool_pb2 import ToolCallState
from turnwire.cli.chat.view import drawings
from turnwire.cli.chat.view.growing_part import GrowingPart

MAX_LIVE_CALLS = 6

_OPEN_CALL = ("pending", "running")

_Key = tuple[str, int]
"""A part: its message and its index."""


class Transcript:
    """One session as it goes on. What was taken is forgotten, so memory is that of the running turn."""

    def __init__(self, clock: Callable[[], float], own_requests: set[str]) -> None:
        """Args:
        clock: Seconds, to measure how long a model reasons.
        own_requests: Names (`request_id`) of messages that the terminal shows already.
        """
        self._clock = clock
        self._own_requests = own_requests
        self._parts: dict[_Key, GrowingPart] = {}
        """Parts that still grow."""
        self._done: set[_Key] = set()
        """Parts of the running turn that have ended: a snapshot after a reconnect brings them again."""
        self._calls: dict[str, ToolCallState] = {}
        """Calls without a result, by id."""
        self._settled: set[str] = set()
        """Calls of the running turn that have their result."""
        self._queue: deque[RenderableType | GrowingPart] = deque()
        """What is to be drawn, in order: nothing passes a text that still grows."""
        self._remarks: deque[RenderableType] = deque()
        """What is drawn before all that, at once."""
        self.last_reasoning = ""
        """All of the newest reasoning."""

    def remark(self, *drawn: RenderableType) -> None:
        """Adds drawings of the chat's own, which do not wait for the end of a text."""
        self._remarks.extend(drawn)

    def add(self, *drawn: RenderableType) -> None:
        """Adds drawings behind what happened before."""
        self._queue.extend(drawn)

    def recall(self, messages: list[SessionMessage]) -> None:
        """Adds messages of before, oldest first: ended ones shortened, one that goes on as far as it is."""
        for message in messages:
            calls = [part.tool_use for part in message.parts if part.WhichOneof("content") == "tool_use"]
            waits = any(call.status in _OPEN_CALL for call in calls)
            if message.status == MessageStatus.MESSAGE_STATUS_STREAMING or waits:
                self._catch_up(message)
            else:
                self.add(*drawings.recalled(message))
                for part in message.parts:
                    self.last_reasoning = part.reasoning.text or self.last_reasoning

    def apply(self, event: SessionEvent) -> None:
        """Takes the next event. Kinds that it does not know, or that show nothing, change nothing."""
        kind = event.WhichOneof("kind")
        match kind:
            case "part_started":
                self._part(event.part_started.message_id, event.part_started.part)
            case "part_delta":
                self._grow(event.part_delta)
            case "part_finished":
                self._finish(event.part_finished.message_id, event.part_finished.part)
            case "message_snapshot":
                self._catch_up(event.message_snapshot.message)
            case "message_finished":
                self._end_parts(event.message_finished.message.message_id)
            case "tool_call_updated":
                self._update_call(event.tool_call_updated.state)
            case "message_added":
                self._show_added(event.message_added.message)
            case "turn_ended":
                self._end_turn()
                self.add(*drawings.turn_end(event.turn_ended.turn))
            case _:
                self._remark(event)

    def take(self, max_chars: int) -> list[RenderableType]:
        """Returns what can be drawn for good and forgets it: about `max_chars` of text at most, the rest next time."""
        taken = list(self._remarks)
        self._remarks.clear()
        while self._queue and max_chars > 0:
            first = self._queue[0]
            if not isinstance(first, GrowingPart):
                taken.append(first)
                max_chars -= 100
            else:
                drawn, chars = first.take(max_chars)
                taken += drawn
                max_chars -= chars
                if not first.drawn:
                    break
            self._queue.popleft()
        return taken

    def live(self) -> Iterator[RenderableType]:
        """Yields what still changes: the open block of a text, reasoning in one line, calls without a result."""
        for part in self._parts.values():
            yield from part.live(self._clock())
        for number, call in enumerate(self._calls.values()):
            if number == MAX_LIVE_CALLS:
                yield drawings.note(f"… and {len(self._calls) - number} more calls")
                return
            yield drawings.call(call)

    @property
    def more(self) -> bool:
        """Whether `take` has more to return now."""
        first = self._queue[0] if self._queue else None
        return first is not None and (not isinstance(first, GrowingPart) or first.ready)

    def _part(self, message_id: str, part: Part) -> GrowingPart | None:
        """Returns the part that grows, a new one if it is not known; None when it has ended already."""
        key = (message_id, part.index)
        if key in self._done:
            return None
        if key not in self._parts:
            self._parts[key] = GrowingPart(part, self._clock())
            # The place is taken now: the end of a part is stored first, and may come after the next one has begun.
            self._queue.append(self._parts[key])
        return self._parts[key]

    def _grow(self, delta: PartDelta) -> None:
        part = self._parts.get((delta.message_id, delta.part_index))
        if part is not None:
            part.grow(delta)

    def _finish(self, message_id: str, part: Part) -> None:
        known = self._part(message_id, part)
        if known is None:
            return
        known.become(part)
        self._end_part((message_id, part.index))
        if known.kind == "tool_use":
            self._update_call(part.tool_use)

    def _catch_up(self, message: SessionMessage) -> None:
        for part in message.parts:
            if part.status == PartStatus.PART_STATUS_STREAMING:
                known = self._part(message.message_id, part)
                if known is not None:
                    known.become(part)
            elif (message.message_id, part.index) in self._done and part.WhichOneof("content") == "tool_use":
                self._update_call(part.tool_use)
            else:
                self._finish(message.message_id, part)

    def _end_part(self, key: _Key) -> None:
        part = self._parts.pop(key)
        self._done.add(key)
        part.end(self._clock())
        if part.kind == "reasoning":
            self.last_reasoning = part.text()

    def _end_parts(self, message_id: str) -> None:
        """Ends the parts that got no end of their own: what a killed server had not stored is lost."""
        for key in [key for key in self._parts if key[0] == message_id]:
            self._end_part(key)

    def _update_call(self, call: ToolCallState) -> None:
        if call.id in self._settled:
            return
        if call.status in _OPEN_CALL:
            self._calls[call.id] = call
        else:
            self._calls.pop(call.id, None)
            self._settled.add(call.id)
            self.add(drawings.call(call))

    def _end_turn(self) -> None:
        for key in list(self._parts):
            self._end_part(key)
        self.add(*map(drawings.call, self._calls.values()))
        self._calls.clear()
        self._done.clear()
        self._settled.clear()

    def _show_added(self, message: SessionMessage) -> None:
        if message.request_id and message.request_id in self._own_requests:
            self._own_requests.discard(message.request_id)
        elif not (
            # Answers, reports and summaries of the server and results of known calls have events of their own.
            (message.turn_id and message.type in (MessageType.MESSAGE_TYPE_ASSISTANT, MessageType.MESSAGE_TYPE_HOST))
            or message.HasField("compaction")
            or (message.type == MessageType.MESSAGE_TYPE_TOOL_RESULT and message.answers_message_id)
        ):
            self.add(*drawings.recalled(message))

    def _remark(self, event: SessionEvent) -> None:
        match event.WhichOneof("kind"):
            case "retry_scheduled":
                retry = event.retry_scheduled
                when = (
                    f"in {drawings.duration(retry.delay.ToSeconds())}" if retry.HasField("delay") else "another model"
                )
                self.add(drawings.note(f"[{retry.failure.message}; asks again {when}]", "yellow"))
            case "compaction_started":
                self.add(
                    drawings.note(f"[{event.compaction_started.message_count} older messages are being summarised]")
                )
            case "context_compacted":
                self.add(drawings.note("[older messages are summarised for the model]"))
            case "conversation_changed":
                self.add(drawings.note(f"[the conversation {_changed(event.conversation_changed.change)}]"))


def _changed(number: int) -> str:
    known = ConversationChange.DESCRIPTOR.values_by_number.get(number)
    return f"was {known.name.removeprefix('CONVERSATION_CHANGE_').lower()}" if known else "changed"
