"""Parts of requests that several methods share, as values of the core, checked for form."""

import math
from collections.abc import Callable, Sequence

import msgspec
from google.protobuf.message import Message

from opencode.message import content_pb2, message_pb2
from opencode.model import model_pb2, selection_pb2
from opencode.session import session_pb2
from opencode.tool import tool_pb2
from opencode.turn import turn_pb2
from turnwire.api.wire.requests.checks import MAX_NAME_CHARACTERS, Checks
from turnwire.core.intake.requests import ModelReport, NewFile, NewPart, NewText
from turnwire.domain.conversation.limits import (
    MAX_NUMBER,
    MAX_PARTS,
    MAX_PROMPT_CHARACTERS,
    MAX_SESSION_TOOLS_BYTES,
    MAX_STOP_CHARACTERS,
    MAX_STOP_SEQUENCES,
    REASONING_EFFORTS,
)
from turnwire.domain.conversation.messages import (
    FinishReason,
    MessageType,
    ModelRef,
    ModelRun,
    Reasoning,
    Refusal,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.sessions import Budget
from turnwire.domain.conversation.turns import (
    MAX_TOOLS,
    GenerationOptions,
    ResponseFormat,
    ResponseFormatKind,
    ToolChoice,
    ToolChoiceMode,
    ToolDefinition,
)
from turnwire.domain.money import Usage

_TOOL_CHOICE_MODES = {
    turn_pb2.TOOL_CHOICE_MODE_UNSPECIFIED: ToolChoiceMode.AUTO,
    turn_pb2.TOOL_CHOICE_MODE_AUTO: ToolChoiceMode.AUTO,
    turn_pb2.TOOL_CHOICE_MODE_NONE: ToolChoiceMode.NONE,
    turn_pb2.TOOL_CHOICE_MODE_REQUIRED: ToolChoiceMode.REQUIRED,
}
_RESPONSE_FORMATS = {
    turn_pb2.RESPONSE_FORMAT_KIND_UNSPECIFIED: ResponseFormatKind.TEXT,
    turn_pb2.RESPONSE_FORMAT_KIND_TEXT: ResponseFormatKind.TEXT,
    turn_pb2.RESPONSE_FORMAT_KIND_JSON: ResponseFormatKind.JSON,
    turn_pb2.RESPONSE_FORMAT_KIND_JSON_SCHEMA: ResponseFormatKind.JSON_SCHEMA,
}
_COUNTS = ("max_output_tokens", "max_steps", "max_turn_tokens", "max_turn_cost_pico_usd")
"""Options that are at least 1 when they are present."""

_REPORTED_ENDINGS = {
    content_pb2.FINISH_REASON_STOP: FinishReason.STOP,
    content_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
    content_pb2.FINISH_REASON_TOOL_USE: FinishReason.TOOL_USE,
    content_pb2.FINISH_REASON_REFUSAL: FinishReason.REFUSAL,
    content_pb2.FINISH_REASON_CONTENT_FILTER: FinishReason.CONTENT_FILTER,
}
"""The others are those of turns, and of answers that this server saw end."""

_CONTENT_FOR = {
    MessageType.USER: ("text", "file"),
    MessageType.ASSISTANT: ("text", "reasoning", "refusal", "file", "tool_call"),
    MessageType.SYSTEM: ("text",),
    MessageType.HOST: ("text",),
    MessageType.TOOL_RESULT: ("tool_result",),
}


def parts(
    checks: Checks, sent: Sequence[message_pb2.MessagePart], kind: MessageType, name: str = "parts"
) -> tuple[NewPart, ...]:
    """Returns the parts of a message of some type, from the field of a name; at least one."""
    if not sent:
        checks.fail(name, "is empty: a message has at least one part", "REQUIRED")
    if len(sent) > MAX_PARTS:
        checks.fail(name, f"has more than {MAX_PARTS} parts", "TOO_MANY", MAX_PARTS)
        return ()
    found: list[NewPart] = []
    for index, part in enumerate(sent):
        field, content = f"{name}[{index}]", part.WhichOneof("content")
        if content is None:
            checks.fail(field, "has no content", "REQUIRED")
        elif content == "provider":
            checks.fail(f"{field}.provider", "is for the provider that made it only")
        elif content not in _CONTENT_FOR[kind]:
            checks.fail(f"{field}.{content}", f"is not for a message of type {kind.value}")
        elif kind is MessageType.ASSISTANT and content != "file":
            found.append(_answer_part(checks, field, part))
        elif content == "text":
            text = part.text.text  # each look makes another one, which may have megabytes
            if not text or text.isspace():
                checks.fail(f"{field}.text.text", "is empty", "REQUIRED")
            found.append(NewText(text))
        elif content == "file":
            found.append(file(checks, f"{field}.file", part.file))
        else:
            found.append(tool_result(checks, f"{field}.tool_result", part.tool_result))
    if kind is MessageType.ASSISTANT:
        _check_call_ids(checks, sent, name)
    named = [part.file.upload_id if part.WhichOneof("content") == "file" else "" for part in sent]
    check_uploads(checks, named, lambda index: f"{name}[{index}].file")
    return tuple(found)


def check_uploads(checks: Checks, named: Sequence[str], field_of: Callable[[int], str]) -> None:
    """Refuses an upload that a request names twice: it can be used once.

    Args:
        checks: Collects the problems.
        named: The upload that each file names, or "".
        field_of: Returns the path of a file by its index.
    """
    seen = set[str]()
    for index, upload_id in enumerate(named):
        if upload_id in seen:
            checks.fail(f"{field_of(index)}.upload_id", "is named twice", "DUPLICATE")
        seen |= {upload_id} - {""}


def _answer_part(checks: Checks, field: str, part: message_pb2.MessagePart) -> NewPart:
    """Returns a part of an answer: models write white space, and it is kept as it is."""
    content: str = part.WhichOneof("content") or ""
    if content == "tool_call":
        return _tool_call(checks, f"{field}.tool_call", part.tool_call)
    text: str = getattr(part, content).text  # each look makes another one, which may have megabytes
    if not text:
        checks.fail(f"{field}.{content}.text", "is empty", "REQUIRED")
    if content == "reasoning":
        return Reasoning(text)
    return Refusal(text) if content == "refusal" else NewText(text)


def _tool_call(checks: Checks, field: str, sent: message_pb2.AppendedToolCall) -> ToolUse:
    """Returns a call as its model wrote it, open unless it has its result."""
    call = ToolUse(
        name=checks.required(f"{field}.name", sent.name),
        call_id=checks.at_most(f"{field}.call_id", sent.call_id, MAX_NAME_CHARACTERS),
        input_json=sent.input_json,
    )
    if not sent.HasField("result"):
        return call
    result = sent.result
    return msgspec.structs.replace(
        call,
        status=ToolStatus.ERROR if result.is_error else ToolStatus.SUCCESS,
        output=None if result.is_error else result.output,
        error=result.output if result.is_error else None,
        metadata_json=checks.json_object(f"{field}.result.metadata_json", result.metadata_json),
    )


def _check_call_ids(checks: Checks, sent: Sequence[message_pb2.MessagePart], name: str) -> None:
    """Refuses a second call with the id of another one: a result could not name it."""
    seen = set[str]()
    for index, part in enumerate(sent):
        call_id = part.tool_call.call_id if part.HasField("tool_call") else ""
        if call_id in seen:
            checks.fail(f"{name}[{index}].tool_call.call_id", "is the id of another call of the message", "DUPLICATE")
        seen |= {call_id} - {""}


def report(checks: Checks, sent: message_pb2.AppendMessageRequest) -> ModelReport:
    """Returns what a caller says of an answer."""
    run, usage = sent.model_run, sent.usage
    names = ("provider_id", "model_requested", "model_served", "response_id")
    found = {name: checks.at_most(f"model_run.{name}", getattr(run, name), MAX_NAME_CHARACTERS) for name in names}
    counts = {field.name: value for field, value in usage.ListFields()}
    for name, value in counts.items():
        if value > MAX_NUMBER:
            checks.fail(f"usage.{name}", f"is more than {MAX_NUMBER}", "OUT_OF_RANGE")
    if sent.HasField("cost_pico_usd") and sent.cost_pico_usd < 0:
        checks.fail("cost_pico_usd", "is less than 0", "OUT_OF_RANGE")
    if sent.finish_reason and sent.finish_reason not in _REPORTED_ENDINGS:
        checks.fail("finish_reason", "is not STOP, LENGTH, TOOL_USE, REFUSAL or CONTENT_FILTER")
    return ModelReport(
        model_run=ModelRun(**found, is_reported=True),
        finish_reason=_REPORTED_ENDINGS.get(sent.finish_reason),
        provider_finish_reason=checks.at_most(
            "provider_finish_reason", sent.provider_finish_reason, MAX_NAME_CHARACTERS
        ),
        usage=Usage(**counts) if sent.HasField("usage") else None,
        cost_pico_usd=sent.cost_pico_usd if sent.HasField("cost_pico_usd") else None,
    )


def tool_result(checks: Checks, field: str, sent: content_pb2.ToolResultContent) -> ToolResult:
    """Returns the result of a tool call as a part of a message; it names the call by either id."""
    if not sent.tool_call_id:
        checks.required(f"{field}.call_id", sent.call_id)
    return ToolResult(
        call_id=sent.call_id,
        output=sent.output,
        is_error=sent.is_error,
        tool_call_id=sent.tool_call_id,
        exit_code=sent.exit_code if sent.HasField("exit_code") else None,
    )


def file(checks: Checks, field: str, sent: message_pb2.FilePart | tool_pb2.ToolResultFile) -> NewFile:
    """Returns a file that is sent."""
    has_data = bool(sent.data) if isinstance(sent, message_pb2.FilePart) else sent.WhichOneof("source") == "data"
    return NewFile(
        mime=checks.at_most(f"{field}.mime", sent.mime, 255),
        filename=checks.at_most(f"{field}.filename", sent.filename, 1024),
        url=sent.url,
        path=checks.at_most(f"{field}.path", sent.path, 4096),
        data=sent.data if has_data else None,
        upload_id=checks.at_most(f"{field}.upload_id", sent.upload_id, 128),
    )


def model(checks: Checks, sent: model_pb2.ModelName | selection_pb2.ModelSelection) -> ModelRef:
    """Returns a chosen model; only SendMessageRequest names it by a ModelSelection."""
    if isinstance(sent, model_pb2.ModelName):
        provider_id = checks.required("model.provider_id", sent.provider_id)
    else:
        provider_id = checks.required("model.provider.id", sent.provider.id)
    return ModelRef(provider_id, checks.required("model.model_id", sent.model_id))


def tools(
    checks: Checks, declared: Sequence[tool_pb2.ToolDefinition], field: str = "tools"
) -> tuple[ToolDefinition, ...]:
    """Returns the tools of a client, which stand in a field of the request. Their schemas are not looked into."""
    if not checks.few(field, declared, MAX_TOOLS, "tools"):
        return ()
    names = set[str]()
    for index, tool in enumerate(declared):
        name = checks.tool_name(f"{field}[{index}].name", tool.name)
        checks.at_most(f"{field}[{index}].description", tool.description, MAX_PROMPT_CHARACTERS)
        checks.json_object(f"{field}[{index}].input_schema_json", tool.input_schema_json)
        if name in names:
            checks.fail(f"{field}[{index}].name", "is declared twice", "DUPLICATE")
        names.add(name)
    return tuple(ToolDefinition(tool.name, tool.description, tool.input_schema_json) for tool in declared)


def session_tools(
    checks: Checks, declared: Sequence[tool_pb2.ToolDefinition], field: str
) -> tuple[ToolDefinition, ...]:
    """Returns the tools to keep on a session."""
    size = sum(tool.ByteSize() for tool in declared[: MAX_TOOLS + 1])
    if size > MAX_SESSION_TOOLS_BYTES:
        checks.fail(
            field, f"has more than {MAX_SESSION_TOOLS_BYTES} bytes together", "TOO_LONG", MAX_SESSION_TOOLS_BYTES
        )
    return tools(checks, declared, field)


def options(checks: Checks, sent: turn_pb2.GenerationOptions) -> GenerationOptions:
    """Returns the settings of a generation."""
    temperature = sent.temperature if sent.HasField("temperature") else None
    top_p = sent.top_p if sent.HasField("top_p") else None
    if temperature is not None and not 0 <= temperature <= 2:
        checks.fail("options.temperature", "is not from 0 to 2", "OUT_OF_RANGE")
    if top_p is not None and (math.isnan(top_p) or not 0 < top_p <= 1):
        checks.fail("options.top_p", "is not above 0 and up to 1", "OUT_OF_RANGE")
    stops = sent.stop_sequences[: MAX_STOP_SEQUENCES + 1]
    if len(stops) > MAX_STOP_SEQUENCES or "" in stops:
        checks.fail("options.stop_sequences", f"has more than {MAX_STOP_SEQUENCES} stop sequences, or an empty one")
    for index, stop in enumerate(stops):
        checks.at_most(f"options.stop_sequences[{index}]", stop, MAX_STOP_CHARACTERS)
    effort = checks.at_most("options.reasoning_effort", sent.reasoning_effort, 64)
    checks.one_of("options.reasoning_effort", effort, REASONING_EFFORTS, ", ".join(REASONING_EFFORTS[1:]))
    return GenerationOptions(
        tool_choice=_tool_choice(checks, sent.tool_choice) if sent.HasField("tool_choice") else None,
        response_format=_response_format(checks, sent.response_format) if sent.HasField("response_format") else None,
        temperature=temperature,
        top_p=top_p,
        stop_sequences=tuple(stops),
        reasoning_effort=effort,
        **{name: _at_least_one(checks, "options", sent, name) for name in _COUNTS},
    )


def _tool_choice(checks: Checks, sent: turn_pb2.ToolChoice) -> ToolChoice | None:
    field = "options.tool_choice"
    if sent.mode not in _TOOL_CHOICE_MODES:
        checks.fail(f"{field}.mode", "is not a mode of this server")
        return None
    name = checks.at_most(f"{field}.tool_name", sent.tool_name, MAX_NAME_CHARACTERS)
    if not name:
        return ToolChoice(_TOOL_CHOICE_MODES[sent.mode])
    if sent.mode not in (turn_pb2.TOOL_CHOICE_MODE_UNSPECIFIED, turn_pb2.TOOL_CHOICE_MODE_REQUIRED):
        checks.fail(f"{field}.tool_name", "is for the mode REQUIRED only")
    return ToolChoice(ToolChoiceMode.REQUIRED, name)


def _response_format(checks: Checks, sent: turn_pb2.ResponseFormat) -> ResponseFormat | None:
    field = "options.response_format"
    if sent.kind not in _RESPONSE_FORMATS:
        checks.fail(f"{field}.kind", "is not a form of this server")
        return None
    kind = _RESPONSE_FORMATS[sent.kind]
    if kind is not ResponseFormatKind.JSON_SCHEMA:
        for name in ("schema_json", "name", "description", "strict"):
            if getattr(sent, name):
                checks.fail(f"{field}.{name}", "is for JSON_SCHEMA only")
        return ResponseFormat(kind)
    if not sent.schema_json:
        checks.fail(f"{field}.schema_json", "is required for JSON_SCHEMA", "REQUIRED")
    checks.json_object(f"{field}.schema_json", sent.schema_json)
    checks.at_most(f"{field}.description", sent.description, MAX_PROMPT_CHARACTERS)
    name = checks.tool_name(f"{field}.name", sent.name) if sent.name else "answer"
    return ResponseFormat(kind, sent.schema_json, name, sent.description, sent.strict)


def budget(checks: Checks, sent: session_pb2.Budget) -> Budget:
    """Returns what may be used; no limit for what is absent."""
    return Budget(
        max_tokens=_at_least_one(checks, "budget", sent, "max_tokens"),
        max_cost_pico_usd=_at_least_one(checks, "budget", sent, "max_cost_pico_usd"),
    )


def _at_least_one(checks: Checks, field: str, sent: Message, name: str) -> int | None:
    """Returns a count, None when it is absent."""
    if not sent.HasField(name):
        return None
    value: int = getattr(sent, name)
    if value < 1:
        checks.fail(f"{field}.{name}", "is less than 1", "OUT_OF_RANGE")
    elif value > MAX_NUMBER and not name.endswith("_pico_usd"):
        checks.fail(f"{field}.{name}", f"is more than {MAX_NUMBER}", "OUT_OF_RANGE")
    return value
