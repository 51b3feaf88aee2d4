"""Shows a request to the offline provider in readable form, because there is no API whose form it could have."""

from collections.abc import Sequence
from typing import Any

import msgspec

from turnwire.domain.conversation.messages import (
    File,
    Message,
    MessageType,
    Part,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
)
from turnwire.domain.conversation.turns import GenerationOptions
from turnwire.domain.repairs import RepairReason
from turnwire.ports.provider import PreparedRequest, ProviderRequest, Unwritten
from turnwire.providers.request.content import strict_object
from turnwire.providers.request.encoding import encoded_in_pieces
from turnwire.providers.request.history import HistoryWriter, Members, Pieces
from turnwire.providers.request.reader import RequestReader
from turnwire.providers.request.repairs import RepairList
from turnwire.providers.request.wire_names import CallIds

_PIECE_CHARACTERS = 64 * 1024

_IGNORED_OPTIONS = ("temperature", "top_p", "stop_sequences", "reasoning_effort")


class OfflineRequest(PreparedRequest, frozen=True, kw_only=True):
    """A request with the counts for the offline models."""

    prompt_words: int


class OfflineWriter(HistoryWriter):
    """Writes the requests of one conversation: JSON objects that show all of it except the bytes of files."""

    def __init__(self) -> None:
        """Accepts what any model wrote."""
        self._words: list[int] = []
        """Words of the messages up to and including each."""
        super().__init__(RequestReader("offline", "offline", CallIds(max_chars=64)), [], self._words)

    def prepare(self, request: ProviderRequest) -> OfflineRequest:
        """See `RequestWriter.prepare`."""
        prepared = super().prepare(request)
        words = _words_in(request.system) + (self._words[-1] if self._words else 0)
        return OfflineRequest(request=request, pieces=prepared.pieces, repairs=prepared.repairs, prompt_words=words)

    def unwritten(self, request: ProviderRequest) -> Unwritten:
        """See `RequestWriter.unwritten`. Files are named, not shown."""
        return Unwritten(super().unwritten(request).messages, frozenset())

    def _write_from(self, first: int, messages: Sequence[Message]) -> int:
        for message in messages[first:]:
            self._begin(message)
            words = _words_of(message)
            self._words.append((self._words[-1] if self._words else 0) + words)
            if shown := _message(message, self.reader.repairs):
                beginning, *others = encoded_in_pieces(shown)
                self.pieces += (b"," + beginning, *others)
            self._end()
        return len(messages)

    def _members(self, request: ProviderRequest) -> Members:
        messages = [self.pieces[0][1:], *self.pieces[1:]] if self.pieces else []
        tools = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": strict_object(tool.input_schema_json) or tool.input_schema_json,
            }
            for tool in request.tools
        ]
        return [
            ("model", request.model_id),
            ("system", request.system),
            ("messages", Pieces([b"[", *messages, b"]"])),
            ("tools", tools),
            ("options", _options(request.options, self.reader.repairs)),
        ]


def _words_of(message: Message) -> int:
    """Counts the words of a message: runs without white space. Files count as zero."""
    count = 0
    for part in message.parts:
        match part.content:
            case Text(text) | Reasoning(text) | Refusal(text) | ToolResult(output=text):
                count += _words_in(text)
            case ToolUse(input_json=arguments, output=output, error=error):
                for text in (arguments, output or "", error or ""):
                    count += _words_in(text)
    return count


def _words_in(text: str) -> int:
    """Counts the words of a text that may have millions."""
    count, is_within = 0, False
    for start in range(0, len(text), _PIECE_CHARACTERS):
        piece = text[start : start + _PIECE_CHARACTERS]
        count += len(piece.split()) - (is_within and not piece[0].isspace())
        is_within = not piece[-1].isspace()
    return count


def _options(options: GenerationOptions, repairs: RepairList) -> dict[str, Any]:
    for name in _IGNORED_OPTIONS:
        value = getattr(options, name)
        if value not in (None, (), ""):
            why = "offline models ignore it"
            repairs.dropped(RepairReason.OPTION_NOT_TAKEN, option=name, value=value, why=why)
    taken = {name: getattr(options, name) for name in ("max_output_tokens", "tool_choice", "response_format")}
    return {name: msgspec.to_builtins(value) for name, value in taken.items() if value is not None}


def _message(message: Message, repairs: RepairList) -> dict[str, Any] | None:
    if message.type is MessageType.HOST:
        repairs.dropped(RepairReason.HOST_MESSAGE, message)
        return None
    shown: dict[str, Any] = {"role": str(message.type)}
    for part in message.parts:
        for name, value in _part(message, part, repairs).items():
            shown.setdefault(name, []).append(value)
    return shown


def _part(message: Message, part: Part, repairs: RepairList) -> dict[str, Any]:
    """Returns the part under the name of its kind; {} for parts that offline models do not read."""
    shown: dict[str, Any] = {}
    match part.content:
        case Text(text):
            shown["text"] = text
        case Reasoning(text) if text:
            shown["reasoning"] = text
        case Refusal(text):
            shown["refusal"] = text
        case File() as file:
            shown["files"] = _file(file)
        case ToolUse() as call:
            shown["tool_calls"] = _call(call)
        case ToolResult() as result:
            code = {} if result.exit_code is None else {"exit_code": result.exit_code}
            said = {"call_id": result.call_id, "output": result.output, "is_error": result.is_error}
            shown["tool_results"] = said | code
        case Reasoning():
            repairs.dropped(RepairReason.REASONING_OF_ANOTHER_MODEL, message, part)
        case ProviderContent():
            repairs.dropped(RepairReason.STATE_OF_ANOTHER_MODEL, message, part)
    return shown


def _file(file: File) -> dict[str, Any]:
    return {"name": file.path or file.filename, "mime": file.mime, "size_bytes": file.size_bytes}


def _call(call: ToolUse) -> dict[str, Any]:
    shown: dict[str, Any] = {"call_id": call.call_id, "name": call.name, "arguments": call.input_json}
    outcome = {"status": str(call.status), "output": call.output, "error": call.error}
    shown |= {name: value for name, value in outcome.items() if value is not None}
    if call.files:
        shown["files"] = [_file(file) for file in call.files]
    return shown
