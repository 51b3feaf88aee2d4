"""Prints a turn as its events arrive: the simplest form of what every client of the event stream does."""

from collections.abc import Iterable

from rich.console import Console
from rich.segment import Segment, Segments

from opencode.event.session_event_pb2 import PartDelta, SessionEvent
from opencode.message.content_pb2 import FinishReason, Part
from opencode.tool.tool_pb2 import ToolCallState
from opencode.turn.turn_pb2 import Turn
from turnwire.cli.visible_text import visible

_STYLES = {"reasoning": "dim italic", "refusal": "yellow", "tool_use": "cyan"}

_ANSWER = ("text", "refusal")
"""The kinds of parts that are the answer itself."""


class TurnPrinter:
    """Prints the parts of one turn's answer. Make a new one for each turn."""

    def __init__(self, console: Console, aside: Console | None = None) -> None:
        """Args:
        console: Where the answer is printed.
        aside: Where reasoning, tool calls and remarks are printed; None for the same console.
        """
        self._console = console
        self._aside = aside or console
        self._kinds: dict[tuple[str, int], str] = {}
        """The kind of each part by message and index, by its field name in `Part`."""
        self._printed: dict[tuple[str, int], bytes] = {}
        self._open_line: Console | None = None
        """Where a line was begun and has not ended."""
        self.ended: Turn | None = None
        """The turn as it ended; None until then."""

    def show(self, events: Iterable[SessionEvent]) -> None:
        """Prints what the events add. Unknown kinds of events and parts are skipped."""
        for event in events:
            kind = event.WhichOneof("kind")
            if kind == "part_started":
                self._open(event.part_started.message_id, event.part_started.part)
            elif kind == "part_delta":
                self._append(event.part_delta)
            elif kind == "part_finished":
                self._finish(event.part_finished.message_id, event.part_finished.part)
            elif kind == "message_snapshot":
                for part in event.message_snapshot.message.parts:
                    self._catch_up(event.message_snapshot.message.message_id, part)
            elif kind == "tool_call_updated":
                self._show_result(event.tool_call_updated.state)
            elif kind == "turn_ended":
                self.ended = event.turn_ended.turn
                self._show_end(self.ended)

    def _open(self, message_id: str, part: Part) -> None:
        key = (message_id, part.index)
        if key not in self._kinds:
            self._kinds[key] = part.WhichOneof("content") or ""
            self._printed.setdefault(key, b"")
            self._break_line()
            if self._kinds[key] == "tool_use":
                self._out(f"{part.tool_use.name} ", "tool_use")

    def _append(self, delta: PartDelta) -> None:
        """Follows the rule of `PartDelta`: append, skip what is known, wait when something is missing."""
        key = (delta.message_id, delta.part_index)
        known = len(self._printed.setdefault(key, b""))
        if delta.offset > known:
            return
        new = delta.text.encode()[known - delta.offset :]
        self._add(key, new.decode(errors="ignore"))
        self._printed[key] += new

    def _finish(self, message_id: str, part: Part) -> None:
        self._catch_up(message_id, part)
        self._break_line()
        self._show_result(part.tool_use)  # a refused or cut call gets no further event

    def _catch_up(self, message_id: str, part: Part) -> None:
        """Prints what the part holds beyond what was printed. The whole part wins over the deltas."""
        self._open(message_id, part)
        key = (message_id, part.index)
        whole, printed = text_of(part).encode(), self._printed[key]
        if whole.startswith(printed):
            self._add(key, whole[len(printed) :].decode(errors="ignore"))
        else:
            self._break_line()
            self._out(whole.decode(), self._kinds[key])
        self._printed[key] = whole

    def _add(self, key: tuple[str, int], text: str) -> None:
        """Prints what comes next of a part."""
        kind = self._kinds.get(key, "text")
        if kind == "reasoning" and text and not self._printed[key] and self._aside.color_system is None:
            text = f"reasoning: {text}"  # without a look of its own it would read as the answer
        self._out(text, kind)

    def _show_result(self, state: ToolCallState) -> None:
        if state.HasField("output") or state.HasField("error"):
            self._break_line()
            said = f"failed: {state.error}" if state.HasField("error") else state.output
            self._out(f"{state.name} -> {said}", "tool_use")
            self._break_line()

    def _show_end(self, ended: Turn) -> None:
        self._break_line()
        if ended.HasField("failure"):
            self._note(f"{ended.failure.reason}: {ended.failure.message}")
        elif ended.finish_reason != FinishReason.FINISH_REASON_STOP:
            self._note(finish_reason_name(ended.finish_reason))

    def _note(self, text: str) -> None:
        self._aside.out(f"[{visible(text)}]", style="red", highlight=False)

    def _out(self, text: str, kind: str) -> None:
        if text:
            console = self._console if kind in _ANSWER else self._aside
            # A segment, because printing a string would expand tabs as if each piece began a line.
            segment = Segment(visible(text), console.get_style(_STYLES.get(kind, "none")))
            console.print(Segments([segment]), end="", crop=False)
            console.file.flush()
            self._open_line = None if text.endswith("\n") else console

    def _break_line(self) -> None:
        if self._open_line is not None:
            self._open_line.print()
            self._open_line = None


def finish_reason_name(number: int) -> str:
    """Returns the reason in words; for an unknown reason, its number."""
    known = FinishReason.DESCRIPTOR.values_by_number.get(number)
    return known.name.removeprefix("FINISH_REASON_").lower() if known else f"finish reason {number}"


def text_of(part: Part) -> str:
    """Returns the text that the part's deltas add up to."""
    match part.WhichOneof("content"):
        case "text":
            return part.text.text
        case "reasoning":
            return part.reasoning.text
        case "refusal":
            return part.refusal.text
        case "tool_use":
            return part.tool_use.input_json
    return ""
