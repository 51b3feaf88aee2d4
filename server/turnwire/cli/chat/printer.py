"""Prints the messages of a turn while they are written."""

import sys
from typing import TextIO

from opencode.message.content_pb2 import (
    MESSAGE_TYPE_ASSISTANT,
    PART_STATUS_STREAMING,
    FinishReason,
    Part,
    SessionMessage,
)
from opencode.turn.turn_pb2 import Turn
from turnwire.cli.visible_text import one_line, visible
from turnwire_client import Update

MAX_LINE_CHARS = 1000
"""Maximum length of a tool call or its result on the screen; the console shows them whole."""


def beside_answer() -> TextIO:
    """Returns where all but the answer goes: standard output if a person reads it, else standard error."""
    return sys.stdout if sys.stdout.isatty() else sys.stderr


class Printer:
    """Prints each byte once, whether it comes in deltas, snapshots or whole parts."""

    def __init__(self, aside: TextIO | None = None) -> None:
        """The answer goes to standard output, and all else aside; by default as `beside_answer` says."""
        self._out = sys.stdout
        self._aside = aside or beside_answer()
        self._shown: dict[tuple[str, int], int] = {}
        """Bytes (UTF-8) of each text that were printed, by message and part."""
        self._calls: set[str] = set()
        """The lines of tool calls that were printed: a call changes more often than that."""
        self._open: TextIO | None = None
        """Where a line was begun and has not ended."""

    def show(self, update: Update, turn_ids: set[str]) -> None:
        """Prints what an update adds to the answers of turns, and that the connection was lost."""
        held, event = update.conversation, update.event
        message_ids: list[str] = []
        if update.problem is not None:
            self.line(f"[connection lost, trying again: {update.problem}]")
        elif event is None:  # all was read anew
            message_ids = [message.message_id for message in held.messages]
        elif event.HasField("part_delta"):
            delta = event.part_delta
            part = held.held_part(delta.message_id, delta.part_index)
            if part is not None and _is_answer(held.held_message(delta.message_id), turn_ids):
                self._add(delta.message_id, part, delta.text, delta.offset)
        elif event.HasField("message_snapshot"):
            message_ids = [event.message_snapshot.message.message_id]
        elif update.kind in ("part_finished", "tool_call_updated"):
            message_ids = [getattr(event, update.kind).message_id]
        for message_id in message_ids:
            message = held.message(message_id)
            if message is not None and _is_answer(message, turn_ids):
                self.message(message)

    def message(self, message: SessionMessage) -> None:
        """Prints what was not printed yet of a message."""
        for part in message.parts:
            content, is_whole = part.WhichOneof("content"), part.status != PART_STATUS_STREAMING
            if content in ("text", "reasoning", "refusal"):
                self._add(message.message_id, part, getattr(part, content).text, 0)
                if is_whole:
                    self._end_line()
            elif content == "tool_use" and is_whole:
                call = part.tool_use
                self._line_of_call(call.id, f"{call.name} {call.input_json}")
                if call.HasField("output") or call.HasField("error"):
                    said = f"failed: {call.error}" if call.HasField("error") else call.output
                    self._line_of_call(call.id, f"{call.name} -> {said}")

    def end(self, turn: Turn) -> None:
        """Ends the last line, and says why a turn ended unless the answer is complete."""
        self._end_line()
        if turn.HasField("failure"):
            self.line(f"[{turn.failure.reason}: {turn.failure.message}]")
        elif turn.finish_reason != FinishReason.FINISH_REASON_STOP:
            known = FinishReason.DESCRIPTOR.values_by_number.get(turn.finish_reason)
            self.line(f"[{known.name.removeprefix('FINISH_REASON_').lower() if known else turn.finish_reason}]")

    def line(self, text: str) -> None:
        """Prints what is not part of the answer, on lines of its own."""
        self._end_line()
        print(visible(text), file=self._aside, flush=True)

    def _add(self, message_id: str, part: Part, text: str, offset: int) -> None:
        """Prints what a text has beyond what was printed."""
        place, data = (message_id, part.index), text.encode()
        shown = self._shown.get(place, 0)
        if not offset <= shown < offset + len(data):
            return
        self._shown[place] = offset + len(data)
        new, is_aside = data[shown - offset :].decode(errors="replace"), part.HasField("reasoning")
        if shown == 0:
            self._end_line()
            new = f"reasoning: {new}" if is_aside else new
        stream = self._aside if is_aside else self._out
        stream.write(visible(new))
        stream.flush()
        self._open = None if new.endswith("\n") else stream

    def _line_of_call(self, call_id: str, text: str) -> None:
        text = one_line(text)
        if f"{call_id} {text}" not in self._calls:
            self._calls.add(f"{call_id} {text}")
            self.line(text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]}...")

    def _end_line(self) -> None:
        if self._open is not None:
            print(file=self._open, flush=True)
            self._open = None


def _is_answer(message: SessionMessage | None, turn_ids: set[str]) -> bool:
    return message is not None and message.type == MESSAGE_TYPE_ASSISTANT and message.turn_id in turn_ids
