"""Requests of the contract as inputs of the core, checked for form."""

import hashlib
import math
from collections.abc import Sequence

from google.protobuf.message import Message as AnyMessage
from msgspec import UNSET

from opencode.event import event_pb2, session_event_pb2
from opencode.message import content_pb2, message_pb2
from opencode.model import selection_pb2
from opencode.session import session_pb2
from opencode.tool import tool_pb2
from turnwire.core.attachments import NewFile
from turnwire.core.inputs import NewMessage, NewPart, NewText, NewToolResult, NewTurn, SessionChange
from turnwire.core.watch import WatchRequest
from turnwire.domain.messages import MessageType, ModelRef, ToolResult
from turnwire.domain.sessions import GenerationOptions, ToolDefinition
from turnwire.ports.store import Page
from turnwire.rpc.checks import Checks

MAX_PARTS = 1000
MAX_TOOLS = 128
MAX_PROMPT_CHARACTERS = 1_000_000
"""Of a system prompt or a tool's description: about what the largest context windows hold."""
MAX_STOP_SEQUENCES = 4
DEFAULT_PAGE_SIZE = 100
REASONING_EFFORTS = ("", "none", "minimal", "low", "medium", "high", "xhigh")

_APPENDABLE = {
    content_pb2.MESSAGE_TYPE_USER: MessageType.USER,
    content_pb2.MESSAGE_TYPE_SYSTEM: MessageType.SYSTEM,
    content_pb2.MESSAGE_TYPE_HOST: MessageType.HOST,
    content_pb2.MESSAGE_TYPE_TOOL_RESULT: MessageType.TOOL_RESULT,
}
_CONTENT_FOR = {
    MessageType.USER: ("text", "file"),
    MessageType.SYSTEM: ("text",),
    MessageType.HOST: ("text",),
    MessageType.TOOL_RESULT: ("tool_result",),
}
_POLICIES = (
    message_pb2.BUSY_POLICY_UNSPECIFIED,
    message_pb2.BUSY_POLICY_QUEUE,
    message_pb2.BUSY_POLICY_REJECT,
)

DURABLE_KINDS = {
    field.name: "".join(word.capitalize() for word in field.name.split("_"))
    for field in session_event_pb2.Event.DESCRIPTOR.oneofs_by_name["kind"].fields
    if 6 <= field.number < 32
}
"""Field names of the durable kinds of Event to their class names in `domain.events`."""


def send_request(request: message_pb2.SendMessageRequest) -> tuple[NewMessage, NewTurn]:
    """Returns the message to store and how to answer it. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    if request.busy_policy not in _POLICIES:
        checks.fail("busy_policy", "is not a policy of this server")
    message = NewMessage(
        session_id=checks.at_most("session_id", request.session_id, 256),
        parts=_parts(checks, request.parts, MessageType.USER),
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=_fingerprint("send", request),
        metadata_json=checks.json_object("metadata_json", request.metadata_json),
        sender=checks.at_most("sender", request.sender, 1024),
        sender_name=checks.at_most("sender_name", request.sender_name, 1024),
    )
    turn = NewTurn(
        model=_model(checks, request.model) if request.HasField("model") else None,
        agent=checks.at_most("agent", request.agent, 256) if request.HasField("agent") else None,
        system=checks.at_most("system", request.system, MAX_PROMPT_CHARACTERS),
        options=_options(checks, request.options),
        tools=_tools(checks, request.tools),
        reject_when_busy=request.busy_policy == message_pb2.BUSY_POLICY_REJECT,
    )
    checks.done()
    return message, turn


def append_request(request: message_pb2.AppendMessageRequest) -> NewMessage:
    """Returns the message to store. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    message_type = _APPENDABLE.get(request.type)
    if message_type is None:
        checks.fail("type", "is not USER, SYSTEM, HOST or TOOL_RESULT", "REQUIRED")
        message_type = MessageType.USER
    message = NewMessage(
        session_id=checks.required("session_id", request.session_id),
        type=message_type,
        parts=_parts(checks, request.parts, message_type),
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=_fingerprint("append", request),
        metadata_json=checks.json_object("metadata_json", request.metadata_json),
        sender=checks.at_most("sender", request.sender, 1024),
        sender_name=checks.at_most("sender_name", request.sender_name, 1024),
    )
    checks.done()
    return message


def create_session_request(request: session_pb2.CreateSessionRequest) -> SessionChange:
    """Returns the settings of a new session."""
    checks = Checks()
    settings = SessionChange(
        title=checks.at_most("title", request.title, 1024),
        directory=checks.at_most("directory", request.directory, 4096),
        model=_model(checks, request.model) if request.HasField("model") else UNSET,
        agent=request.agent,
    )
    checks.done()
    return settings


def update_session_request(request: session_pb2.UpdateSessionRequest) -> SessionChange:
    """Returns the settings to change."""
    checks = Checks()
    checks.required("session_id", request.session_id)
    model: ModelRef | None = None
    if request.model.provider.id or request.model.model_id:
        model = _model(checks, request.model)
    change = SessionChange(
        title=checks.at_most("title", request.title, 1024) if request.HasField("title") else UNSET,
        directory=checks.at_most("directory", request.directory, 4096) if request.HasField("directory") else UNSET,
        model=model if request.HasField("model") else UNSET,
        agent=request.agent if request.HasField("agent") else UNSET,
        expected_revision=request.expected_revision if request.HasField("expected_revision") else None,
    )
    checks.done()
    return change


def watch_request(request: event_pb2.WatchEventsRequest) -> WatchRequest:
    """Returns what to watch."""
    checks = Checks()
    wrong, right = "after_position", "after_sequence"
    if not request.session_id:
        wrong, right = right, wrong
    if request.HasField(wrong):  # type: ignore[arg-type]
        scope = "one session" if request.session_id else "all sessions"
        checks.fail(wrong, f"is not for a watch of {scope}: use {right}")
    for index, kind in enumerate(request.kinds):
        checks.one_of(f"kinds[{index}]", kind, DURABLE_KINDS, "the durable kinds of Event")
    checks.done()
    return WatchRequest(
        session_id=request.session_id or None,
        after=getattr(request, right) if request.HasField(right) else None,  # type: ignore[arg-type]
        include_deltas=request.include_deltas if request.HasField("include_deltas") else True,
        kinds=frozenset(DURABLE_KINDS[kind] for kind in request.kinds) or None,
        fail_if_compacted=request.fail_if_compacted,
    )


def tool_result_request(request: tool_pb2.SubmitToolResultRequest) -> tuple[str, str, NewToolResult]:
    """Returns session, call and result."""
    checks = Checks()
    session_id = checks.required("session_id", request.session_id)
    call_id = checks.required("tool_call_id", request.tool_call_id)
    metadata_json = checks.json_object("metadata_json", request.metadata_json)
    checks.done()
    return (
        session_id,
        call_id,
        NewToolResult(output=request.output, is_error=request.is_error, metadata_json=metadata_json),
    )


def page(page_size: int, page_token: str, *, newest_first: bool = False, default: int | None = None) -> Page:
    """Returns which page to read; size 0 is the default, where None reads all."""
    checks = Checks()
    size = checks.page_size(page_size) or default
    if page_token and size is None:
        checks.fail("page_token", "needs a page_size")
    checks.done()
    return Page(size=size, token=page_token, newest_first=newest_first)


def required_ids(**ids: str) -> None:
    """Raises InvalidRequest naming every id that is empty."""
    checks = Checks()
    for field, value in ids.items():
        checks.required(field, value)
    checks.done()


def _parts(checks: Checks, parts: Sequence[message_pb2.MessagePart], kind: MessageType) -> tuple[NewPart, ...]:
    if not parts:
        checks.fail("parts", "is empty: a message has at least one part", "REQUIRED")
    if len(parts) > MAX_PARTS:
        checks.fail("parts", f"are more than {MAX_PARTS}", "TOO_MANY")
        return ()
    found: list[NewPart] = []
    for index, part in enumerate(parts):
        field, content = f"parts[{index}]", part.WhichOneof("content")
        if content is None:
            checks.fail(field, "has no content", "REQUIRED")
        elif content not in _CONTENT_FOR[kind]:
            checks.fail(f"{field}.{content}", f"is not for a message of type {kind.value}")
        elif content == "text":
            if not part.text.text.strip():
                checks.fail(f"{field}.text.text", "is empty", "REQUIRED")
            found.append(NewText(part.text.text))
        elif content == "file":
            file = part.file
            checks.at_most(f"{field}.file.mime", file.mime, 255)
            checks.at_most(f"{field}.file.filename", file.filename, 1024)
            checks.at_most(f"{field}.file.path", file.path, 4096)
            found.append(NewFile(mime=file.mime, filename=file.filename, url=file.url, path=file.path))
        else:
            result = part.tool_result
            checks.required(f"{field}.tool_result.call_id", result.call_id)
            found.append(ToolResult(call_id=result.call_id, output=result.output, is_error=result.is_error))
    return tuple(found)


def _model(checks: Checks, selection: selection_pb2.ModelSelection) -> ModelRef:
    return ModelRef(
        checks.required("model.provider.id", selection.provider.id),
        checks.required("model.model_id", selection.model_id),
    )


def _tools(checks: Checks, tools: Sequence[tool_pb2.ToolDefinition]) -> tuple[ToolDefinition, ...]:
    if len(tools) > MAX_TOOLS:
        checks.fail("tools", f"are more than {MAX_TOOLS}", "TOO_MANY")
    names = set[str]()
    for index, tool in enumerate(tools):
        name = checks.tool_name(f"tools[{index}].name", tool.name)
        checks.at_most(f"tools[{index}].description", tool.description, MAX_PROMPT_CHARACTERS)
        checks.json_object(f"tools[{index}].input_schema_json", tool.input_schema_json)
        if name in names:
            checks.fail(f"tools[{index}].name", "is declared twice", "DUPLICATE")
        names.add(name)
    return tuple(ToolDefinition(tool.name, tool.description, tool.input_schema_json) for tool in tools)


def _options(checks: Checks, options: message_pb2.GenerationOptions) -> GenerationOptions:
    temperature = options.temperature if options.HasField("temperature") else None
    top_p = options.top_p if options.HasField("top_p") else None
    if temperature is not None and not 0 <= temperature <= 2:
        checks.fail("options.temperature", "is not from 0 to 2", "OUT_OF_RANGE")
    if top_p is not None and (math.isnan(top_p) or not 0 < top_p <= 1):
        checks.fail("options.top_p", "is not above 0 and up to 1", "OUT_OF_RANGE")
    counts: dict[str, int | None] = {}
    for name, present, value in (
        ("max_output_tokens", options.HasField("max_output_tokens"), options.max_output_tokens),
        ("max_steps", options.HasField("max_steps"), options.max_steps),
    ):
        counts[name] = value if present else None
        if present and value < 1:
            checks.fail(f"options.{name}", "is less than 1", "OUT_OF_RANGE")
    if len(options.stop_sequences) > MAX_STOP_SEQUENCES or "" in options.stop_sequences:
        checks.fail("options.stop_sequences", f"are more than {MAX_STOP_SEQUENCES}, or one is empty")
    effort = checks.one_of(
        "options.reasoning_effort", options.reasoning_effort, REASONING_EFFORTS, ", ".join(REASONING_EFFORTS[1:])
    )
    return GenerationOptions(
        temperature=temperature,
        top_p=top_p,
        stop_sequences=tuple(options.stop_sequences),
        reasoning_effort=effort,
        max_output_tokens=counts["max_output_tokens"],
        max_steps=counts["max_steps"],
    )


def _fingerprint(method: str, request: AnyMessage) -> str:
    """Digests the content of a named request, its name left out: equal requests have equal digests, on every run."""
    if not request.request_id:  # type: ignore[attr-defined]
        return ""
    content = type(request)()
    content.CopyFrom(request)
    content.ClearField("request_id")
    return hashlib.sha256(method.encode() + b"\0" + content.SerializeToString(deterministic=True)).hexdigest()
