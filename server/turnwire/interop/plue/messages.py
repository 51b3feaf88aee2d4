"""Messages, parts, usage and cost as Plue's JSON text."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from opencode.message import content_pb2 as pb
from opencode.tool.tool_pb2 import ToolCallState
from turnwire.domain.money import usd
from turnwire.interop.forms import is_readable

_ENCODER = msgspec.json.Encoder(decimal_format="number")
_ROLES = {pb.MESSAGE_TYPE_USER: "user", pb.MESSAGE_TYPE_ASSISTANT: "assistant", pb.MESSAGE_TYPE_TOOL_RESULT: "tool"}
_SETTLED = frozenset({"success", "error", "cancelled"})


def messages_json(messages: Iterable[pb.SessionMessage], contents: Mapping[str, bytes] | None = None) -> str:
    """Returns a conversation in its order as a JSON array; `[]` for an empty one. As `message_json`."""
    return encoded([_message(message, contents or {}) for message in messages])


def message_json(message: pb.SessionMessage, contents: Mapping[str, bytes] | None = None) -> str:
    """Returns a message as a JSON object: `message_id, session_id, role, parts` and, where known, `usage` and `cost`.

    The parts come in their order and have its index there; results of calls follow behind them, so that an index of an
    update stays right. The same message gives the same bytes.

    Args:
        message: The message, as ListMessages answers it.
        contents: The bytes of its files by `sha256`, as DownloadFile answers them. Without them `content` is "".
    """
    return encoded(_message(message, contents or {}))


def shown_files(message: pb.SessionMessage) -> list[str]:
    """Returns the `sha256` of the files whose bytes `message_json` shows, in order."""
    return [part.file.sha256 for part in message.parts if part.HasField("file")]


def totals(value: pb.SessionMessage | Any) -> dict[str, object]:
    """Returns `usage` and `cost` of a message or a turn, each only where it is known."""
    found: dict[str, object] = {}
    if value.HasField("usage"):
        found["usage"] = usage_of(value.usage)
    if value.HasField("cost_pico_usd"):
        found["cost"] = Decimal(usd(value.cost_pico_usd))
    return found


def usage_of(usage: pb.TokenUsage) -> dict[str, int]:
    """Returns the counts. The whole prompt is input, reasoning is output; what was not reported counts as 0."""
    given = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    generated = usage.output_tokens + usage.reasoning_tokens
    return {"input_tokens": given, "output_tokens": generated, "total_tokens": given + generated}


def encoded(value: object) -> str:
    """Returns JSON text. Amounts are exact decimal numbers in USD."""
    return _ENCODER.encode(value).decode()


def _message(message: pb.SessionMessage, contents: Mapping[str, bytes]) -> dict[str, object]:
    parts = [_part(part, contents) for part in message.parts]
    results = [result for part in message.parts for result in _results(part)]
    return {
        "message_id": message.message_id,
        "session_id": message.session_id,
        "role": _ROLES.get(message.type, "system"),
        "parts": parts + results,
        **totals(message),
    }


def _part(part: pb.Part, contents: Mapping[str, bytes]) -> dict[str, object]:
    match part.WhichOneof("content"):
        case "text":
            return {"type": "text", "content": part.text.text}
        case "refusal":
            return {"type": "text", "content": part.refusal.text}
        case "file":
            content = contents.get(part.file.sha256, b"").decode(errors="replace")
            shown = {"type": "file", "path": part.file.path or part.file.filename, "content": content}
            return {**shown, "language": part.file.language} if part.file.language else {**shown}
        case "tool_use":
            return {
                "type": "tool_use",
                "tool_name": part.tool_use.name,
                "parameters": _parameters(part.tool_use.input_json),
                "tool_use_id": part.tool_use.id,
            }
        case "tool_result":
            result = part.tool_result
            failed = result.is_error
            return _result(result.tool_call_id or result.call_id, result.output, result.output if failed else None)
        case _:
            # Sealed reasoning, or something newer: it keeps its place, so that the parts behind it keep theirs.
            return {"type": "reasoning", "content": part.reasoning.text}


def _results(part: pb.Part) -> Iterator[dict[str, object]]:
    if part.HasField("tool_use") and part.tool_use.status in _SETTLED:
        call: ToolCallState = part.tool_use
        output = call.output if call.HasField("output") else None
        yield _result(call.id, output, call.error if call.HasField("error") else None)


def _result(tool_use_id: str, output: str | None, error: str | None) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": tool_use_id, "result": None if error else output, "error": error}


def _parameters(input_json: str) -> object:
    """Returns the arguments as the JSON that the model wrote, digit by digit, or as text when few could read that."""
    return msgspec.Raw(input_json.encode()) if is_readable(input_json) else input_json
