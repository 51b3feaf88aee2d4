"""Shows a request to the offline provider in readable form, because there is no API to give it a form."""

from typing import Any

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
from turnwire.ports.provider import PreparedRequest, ProviderRequest
from turnwire.providers.request.content import strict_object
from turnwire.providers.request.repairs import RepairList

_IGNORED_OPTIONS = ("temperature", "top_p", "stop_sequences", "reasoning_effort")


def build_offline_request(request: ProviderRequest) -> PreparedRequest:
    """Returns the request with a JSON object that shows all of it except the bytes of files."""
    repairs = RepairList(request.messages)
    body = {
        "model": request.model_id,
        "system": request.system,
        "messages": [shown for message in request.messages if (shown := _message(message, repairs))],
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": strict_object(tool.input_schema_json) or tool.input_schema_json,
            }
            for tool in request.tools
        ],
        "options": _options(request.options, repairs),
    }
    return PreparedRequest(request=request, body=body, repairs=repairs.in_order())


def _options(options: GenerationOptions, repairs: RepairList) -> dict[str, Any]:
    for name in _IGNORED_OPTIONS:
        value = getattr(options, name)
        if value not in (None, (), ""):
            why = "offline models ignore it"
            repairs.dropped(RepairReason.OPTION_NOT_TAKEN, option=name, value=value, why=why)
    limit = options.max_output_tokens
    return {} if limit is None else {"max_output_tokens": limit}


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
            shown["tool_results"] = {"call_id": result.call_id, "output": result.output, "is_error": result.is_error}
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
