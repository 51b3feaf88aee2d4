"""Messages, parts, usage and cost as Plue's JSON."""

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opencode.message import content_pb2 as pb
from opencode.tool.tool_pb2 import ToolCallState
from opencode.turn.turn_pb2 import Turn
from turnwire_adapters.forms import is_readable

PICO_USD = 10**12

_ROLES = {pb.MESSAGE_TYPE_USER: "user", pb.MESSAGE_TYPE_ASSISTANT: "assistant", pb.MESSAGE_TYPE_TOOL_RESULT: "user"}
_SETTLED = frozenset({"success", "error", "cancelled"})
_MARK = secrets.token_hex(16)
"""Stands around JSON that is written as it is; nobody who writes a text knows it."""

_MARKED = re.compile(f'"{_MARK}(.*?){_MARK}"')


@dataclass(frozen=True)
class Raw:
    """JSON text that is written digit by digit."""

    text: str


Prices = Mapping[tuple[str, str], int]
"""Known prices of a million output tokens in pico-USD, by provider and model."""


def encoded(value: object) -> str:
    """Returns JSON text. Amounts are exact decimal numbers."""
    raws: list[str] = []

    def mark(raw: object) -> str:
        if not isinstance(raw, Raw):
            raise TypeError(f"{type(raw).__name__} is no JSON")
        raws.append(raw.text)
        return f"{_MARK}{len(raws) - 1}{_MARK}"

    text = json.dumps(value, ensure_ascii=False, default=mark, separators=(",", ":"))
    return _MARKED.sub(lambda found: raws[int(found[1])], text)


def message_json(
    message: pb.SessionMessage, contents: Mapping[str, bytes] | None = None, prices: Prices | None = None
) -> dict[str, object]:
    """Returns a message: `id, session_id, role, parts, created_at, updated_at, provider_info, usage, cost`.

    The parts come in their order and have its index there; results of calls follow behind them, so that an index of an
    update stays right. The last three are there where they are known. The same message gives the same bytes.

    Args:
        message: The message, as ListMessages answers it.
        contents: The bytes of its files by `sha256`, as DownloadFile answers them. Without them `content` is "".
        prices: Of models, which divide its cost.
    """
    run = message.model_run
    results = [result for part in message.parts for result in _results(part)]
    maker = {"provider_id": run.provider_id, "model_id": run.model_requested, "request_id": run.response_id or None}
    return {
        "id": message.message_id,
        "message_id": message.message_id,
        "session_id": message.session_id,
        "role": _ROLES.get(message.type, "system"),
        "parts": [_part(part, contents or {}) for part in message.parts] + results,
        "created_at": message.create_time.ToMilliseconds(),
        "updated_at": message.update_time.ToMilliseconds(),
        **({"provider_info": maker} if message.HasField("model_run") else {}),
        **totals(message, (prices or {}).get((run.provider_id, run.model_requested))),
    }


def shown_files(message: pb.SessionMessage) -> list[str]:
    """Returns the `sha256` of the files whose bytes `message_json` shows, in order."""
    return [part.file.sha256 for part in message.parts if part.HasField("file")]


def totals(value: pb.SessionMessage | Turn, output_price: int | None) -> dict[str, object]:
    """Returns `usage` and `cost` of a message or a turn, each only where it is known.

    `cost` has `total_cost`, and `input_cost` and `output_cost` where the price of a million output tokens is known.
    """
    found: dict[str, object] = {}
    if value.HasField("usage"):
        found["usage"] = usage_of(value.usage)
    if value.HasField("cost_pico_usd"):
        total = value.cost_pico_usd
        cost = {"total_cost": _usd(total)}
        if output_price is not None and value.HasField("usage"):
            generated = value.usage.output_tokens + value.usage.reasoning_tokens
            output = -(-generated * output_price // 1_000_000)
            if output <= total:
                cost = {"input_cost": _usd(total - output), "output_cost": _usd(output), **cost}
        found["cost"] = cost
    return found


def usage_of(usage: pb.TokenUsage) -> dict[str, int]:
    """Returns the counts. The whole prompt is input, reasoning is output; what was not reported counts as 0."""
    given = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    generated = usage.output_tokens + usage.reasoning_tokens
    return {"input_tokens": given, "output_tokens": generated, "total_tokens": given + generated}


def _usd(pico: int) -> Raw:
    whole, rest = divmod(pico, PICO_USD)
    digits = f"{rest:012}".rstrip("0")
    return Raw(f"{whole}.{digits}" if digits else f"{whole}")


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
                "parameters": _value(part.tool_use.input_json),
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
    """Returns a result: what a tool wrote as JSON, an object or an array, is JSON here too."""
    found = None if error or output is None else _value(output) if output.lstrip()[:1] in ("{", "[") else output
    return {"type": "tool_result", "tool_use_id": tool_use_id, "result": found, "error": error}


def _value(text: str) -> object:
    """Returns JSON as a model or a tool wrote it, digit by digit, or text when few could read that."""
    return Raw(text) if is_readable(text) else text
