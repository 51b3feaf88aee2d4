"""Domain values as messages of the contract."""

from datetime import datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from opencode.file import file_pb2
from opencode.message import content_pb2 as content
from opencode.message import message_pb2 as message_pb
from opencode.model import model_pb2
from opencode.session import session_pb2
from opencode.tool import tool_pb2
from opencode.turn import turn_pb2
from turnwire.core.use_cases.catalog import ToolList
from turnwire.core.use_cases.explanation import ContextExplanation
from turnwire.domain.conversation import messages as m
from turnwire.domain.conversation.display import DisplayMessage, role_of
from turnwire.domain.conversation.events import SessionView
from turnwire.domain.conversation.permissions import PermissionAction, PermissionChoice, PermissionRequest
from turnwire.domain.conversation.sessions import DEFAULT_AGENT, Budget, SessionSettings
from turnwire.domain.conversation.turns import (
    BusyPolicy,
    GenerationOptions,
    QueueEntry,
    ToolDefinition,
    Turn,
    TurnStatus,
)
from turnwire.domain.money import Usage
from turnwire.domain.repairs import RepairAction
from turnwire.domain.text import utf8_bytes
from turnwire.ports.tools import SourceState

_TYPES = {
    m.MessageType.USER: content.MESSAGE_TYPE_USER,
    m.MessageType.ASSISTANT: content.MESSAGE_TYPE_ASSISTANT,
    m.MessageType.SYSTEM: content.MESSAGE_TYPE_SYSTEM,
    m.MessageType.HOST: content.MESSAGE_TYPE_HOST,
    m.MessageType.TOOL_RESULT: content.MESSAGE_TYPE_TOOL_RESULT,
}
_ROLES = {number: role_of(message_type) for message_type, number in _TYPES.items()}
_STATUSES = {status: content.MessageStatus.Value(f"MESSAGE_STATUS_{status.name}") for status in m.MessageStatus}
_PART_STATUSES = {status: content.PartStatus.Value(f"PART_STATUS_{status.name}") for status in m.PartStatus}
_FINISH_REASONS = {reason: content.FinishReason.Value(f"FINISH_REASON_{reason.name}") for reason in m.FinishReason}
PERMISSION_REPLIES = {
    choice: tool_pb2.PermissionReply.Value(f"PERMISSION_REPLY_{choice.name}") for choice in PermissionChoice
}
PERMISSION_ACTIONS = {
    action: tool_pb2.PermissionAction.Value(f"PERMISSION_ACTION_{action.name}") for action in PermissionAction
}
SOURCE_STATES = {state: tool_pb2.ToolSourceState.Value(f"TOOL_SOURCE_STATE_{state.name}") for state in SourceState}
REPAIR_ACTIONS = {action: message_pb.RepairAction.Value(f"REPAIR_ACTION_{action.name}") for action in RepairAction}
BREAK_REASONS = {name.removeprefix("CONTEXT_BREAK_"): number for name, number in content.ContextBreak.items() if number}
"""By the words of `SentContext.break_reason`."""

_COMPACTION = {
    None: session_pb2.COMPACTION_MODE_UNSPECIFIED,
    True: session_pb2.COMPACTION_MODE_ON,
    False: session_pb2.COMPACTION_MODE_OFF,
}
_TURN_STATUSES = {status: turn_pb2.TurnStatus.Value(f"TURN_STATUS_{status.name}") for status in TurnStatus}
_POLICIES = {policy: turn_pb2.BusyPolicy.Value(f"BUSY_POLICY_{policy.name}") for policy in BusyPolicy}


def timestamp(at: datetime) -> Timestamp:
    """Returns the moment as a Timestamp, exact to the microsecond."""
    microseconds = _microseconds(at)
    return Timestamp(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1000)


def duration(value: timedelta) -> Duration:
    """Returns the span as a Duration."""
    result = Duration()
    result.FromTimedelta(value)
    return result


def milliseconds(at: datetime) -> int:
    """Returns the moment in milliseconds since the Unix epoch, rounded down."""
    return _microseconds(at) // 1000


def role(message_type: content.MessageType.ValueType) -> str:
    """Returns who speaks in a message of this type: "user", "assistant" or "system", the last for unknown ones too."""
    return _ROLES.get(message_type, "system")


def message_status(status: m.MessageStatus) -> content.MessageStatus.ValueType:
    """Returns the status of a message."""
    return _STATUSES[status]


def finish_reason(reason: m.FinishReason | None) -> content.FinishReason.ValueType:
    """Returns the finish reason; unspecified for None."""
    return content.FINISH_REASON_UNSPECIFIED if reason is None else _FINISH_REASONS[reason]


def usage(value: Usage | None) -> content.TokenUsage | None:
    """Returns the token buckets; unknown ones stay absent."""
    if value is None:
        return None
    return content.TokenUsage(
        input_tokens=value.input_tokens,
        cache_read_tokens=value.cache_read_tokens,
        cache_write_tokens=value.cache_write_tokens,
        output_tokens=value.output_tokens,
        reasoning_tokens=value.reasoning_tokens,
        reported_output_tokens=value.reported_output_tokens,
    )


def failure(value: m.Failure | None) -> content.Failure | None:
    """Returns what went wrong."""
    if value is None:
        return None
    return content.Failure(
        reason=value.reason,
        message=value.message,
        metadata=value.metadata,
        retry_after=None if value.retry_after is None else duration(value.retry_after),
    )


def model_run(value: m.ModelRun | None) -> content.ModelRun | None:
    """Returns which model was asked."""
    if value is None:
        return None
    return content.ModelRun(
        provider_id=value.provider_id,
        model_requested=value.model_requested,
        model_served=value.model_served,
        response_id=value.response_id,
    )


def file(value: m.File) -> file_pb2.FileRef:
    """Returns a reference to a file of a message or of a tool result."""
    return file_pb2.FileRef(
        sha256=value.sha256,
        size_bytes=value.size_bytes,
        mime=value.mime,
        filename=value.filename,
        path=value.path,
        language=value.language,
    )


def tool_call(part_id: str, call: m.ToolUse) -> tool_pb2.ToolCallState:
    """Returns a tool call with its result."""
    return tool_pb2.ToolCallState(
        id=part_id,
        name=call.name,
        status=call.status.value,
        call_id=call.call_id or None,
        input_json=call.input_json,
        output=call.output,
        error=call.error,
        logs=call.logs,
        metadata_json=call.metadata_json,
        started_at=None if call.started_at is None else milliseconds(call.started_at),
        finished_at=None if call.finished_at is None else milliseconds(call.finished_at),
        permission_id=call.permission_id or None,
        files=map(file, call.files),
        full_output=None if call.full_output is None else file(call.full_output),
    )


def permission(value: PermissionRequest) -> tool_pb2.PermissionRequest:
    """Returns a permission request."""
    return tool_pb2.PermissionRequest(
        id=value.permission_id,
        type=value.tool,
        pattern=value.patterns,
        session_id=value.session_id,
        message_id=value.message_id,
        call_id=value.call_id or None,
        title=value.title,
        metadata_json=value.metadata_json,
        created_at=milliseconds(value.created_at),
        tool_call_id=value.tool_call_id,
        turn_id=value.turn_id,
    )


def tools(value: ToolList) -> tool_pb2.ListToolsResponse:
    """Returns the server's tools with their sources."""
    sources = {source.name: source for source in value.sources}
    return tool_pb2.ListToolsResponse(
        tools=[
            tool_pb2.ToolInfo(
                name=tool.name,
                description=tool.description,
                input_schema_json=tool.input_schema_json,
                source=tool.source,
                state=SOURCE_STATES[sources[tool.source].state],
                error=value.problems.get(tool.name) or sources[tool.source].error,
                permission=PERMISSION_ACTIONS[value.permissions[tool.name]],
            )
            for tool in value.tools
        ],
        sources=[
            tool_pb2.ToolSource(name=source.name, state=SOURCE_STATES[source.state], error=source.error)
            for source in value.sources
        ],
        next_page_token=value.next_token,
    )


def part(value: m.Part) -> content.Part:
    """Returns a part of a full message. State that only a provider understands is not shown."""
    result = content.Part(part_id=value.part_id, index=value.index, status=_PART_STATUSES[value.status])
    match value.content:
        case m.Text(text):
            result.text.text = text
            result.text.SetInParent()
            result.content_bytes = utf8_bytes(text)
        case m.Reasoning(text):
            result.reasoning.text = text
            result.reasoning.SetInParent()
            result.content_bytes = utf8_bytes(text)
        case m.Refusal(text):
            result.refusal.text = text
            result.refusal.SetInParent()
            result.content_bytes = utf8_bytes(text)
        case m.File() as value_file:
            result.file.CopyFrom(file(value_file))
        case m.ToolUse() as call:
            result.tool_use.CopyFrom(tool_call(value.part_id, call))
            result.content_bytes = utf8_bytes(call.input_json)
        case m.ToolResult() as outcome:
            result.tool_result.CopyFrom(
                content.ToolResultContent(
                    call_id=outcome.call_id,
                    output=outcome.output,
                    is_error=outcome.is_error,
                    tool_call_id=outcome.tool_call_id,
                )
            )
        case m.ProviderContent(kind):
            result.provider.kind = kind
            result.provider.SetInParent()
    return result


def message(value: m.Message) -> content.SessionMessage:
    """Returns a full message."""
    return content.SessionMessage(
        message_id=value.message_id,
        session_id=value.session_id,
        type=_TYPES[value.type],
        status=_STATUSES[value.status],
        parts=map(part, value.parts),
        turn_id=value.turn_id,
        answers_message_id=value.answers_message_id,
        create_time=timestamp(value.created_at),
        update_time=timestamp(value.updated_at),
        finish_reason=finish_reason(value.finish_reason),
        provider_finish_reason=value.provider_finish_reason,
        model_run=model_run(value.model_run),
        usage=usage(value.usage),
        cost_pico_usd=value.cost_pico_usd,
        failure=failure(value.failure),
        sender=value.sender,
        sender_name=value.sender_name,
        metadata_json=value.metadata_json,
        compaction=compaction(value.compaction),
        sent_context=sent_context(value.sent_context),
        previous_message_id=value.previous_message_id,
        request_id=value.request_id,
    )


def compaction(value: m.Compaction | None) -> content.Compaction | None:
    """Returns what a summary stands for."""
    if value is None:
        return None
    return content.Compaction(
        through_message_id=value.through_message_id,
        message_count=value.message_count,
        tokens_before=value.tokens_before,
        tokens_after=value.tokens_after,
    )


def sent_context(value: m.SentContext | None) -> content.SentContext | None:
    """Returns what a model was sent. The digests of its parts are not shown."""
    if value is None:
        return None
    return content.SentContext(
        prefix_hash=value.prefix_hash,
        message_count=value.message_count,
        estimated_tokens=value.estimated_tokens,
        break_reason=BREAK_REASONS.get(value.break_reason, content.CONTEXT_BREAK_UNSPECIFIED),
    )


def display(value: DisplayMessage) -> message_pb.DisplayMessage:
    """Returns the display form of a message."""
    source = value.message
    tokens = source.usage or Usage()
    return message_pb.DisplayMessage(
        message_id=source.message_id,
        role=value.role,
        text_parts=value.text_parts,
        reasoning_parts=value.reasoning_parts,
        tokens_input=tokens.prompt_total,
        tokens_output=tokens.shown_output,
        tokens_reasoning=tokens.reasoning_tokens,
        tool_calls=[tool_call(shown.part_id, shown.call) for shown in value.tool_calls],
        message_type=_TYPES[source.type],
        status=_STATUSES[source.status],
        finish_reason=finish_reason(source.finish_reason),
        provider_finish_reason=source.provider_finish_reason,
        files=map(file, value.files),
        usage=usage(source.usage),
        cost_pico_usd=source.cost_pico_usd,
        model_run=model_run(source.model_run),
        metadata_json=source.metadata_json,
        turn_id=source.turn_id,
        parent_id=source.answers_message_id,
        sender=source.sender,
        sender_name=source.sender_name,
        created_at=milliseconds(source.created_at),
        updated_at=milliseconds(source.updated_at),
        failure=failure(source.failure),
        compaction=compaction(source.compaction),
    )


def session(view: SessionView, *, with_tools: bool = False) -> session_pb2.SessionInfo:
    """Returns a session with its running turn and queue; its tools only when they are wanted, as they may be large."""
    value = view.session
    running = bool(view.active_turn_id)
    return session_pb2.SessionInfo(
        id=value.session_id,
        title=value.title,
        directory=value.directory,
        time=session_pb2.SessionTime(created=milliseconds(value.created_at), updated=milliseconds(value.updated_at)),
        status=session_pb2.SESSION_STATUS_RUNNING if running else session_pb2.SESSION_STATUS_IDLE,
        settings=session_settings(value, with_tools=with_tools),
        head_sequence=value.head_sequence,
        revision=value.revision,
        active_turn_id=view.active_turn_id or None,
        queued_messages=len(view.queue),
        open_requests=view.open_requests,
    )


def session_settings(value: SessionSettings, *, with_tools: bool) -> session_pb2.SessionSettings:
    """Returns the settings of a session."""
    return session_pb2.SessionSettings(
        title=value.title,
        directory=value.directory,
        model=None if value.model is None else model_name(value.model),
        agent=value.agent,
        tools=map(tool_definition, value.tools) if with_tools else None,
        compaction=_COMPACTION[value.compaction],
        budget=budget(value.budget),
        labels=value.labels,
        metadata_json=value.metadata_json,
        system=value.system,
        options=options(value.options),
    )


def turn(value: Turn, *, with_settings: bool = False) -> turn_pb2.Turn:
    """Returns a turn; how it was to be answered only when that is wanted, as its tools may be large."""
    return turn_pb2.Turn(
        turn_id=value.turn_id,
        session_id=value.session_id,
        user_message_id=value.user_message_id,
        status=_TURN_STATUSES[value.status],
        finish_reason=finish_reason(value.finish_reason),
        failure=failure(value.failure),
        usage=usage(value.usage),
        cost_pico_usd=value.cost_pico_usd,
        steps=value.steps if value.status is TurnStatus.ENDED else 0,
        create_time=timestamp(value.created_at),
        start_time=None if value.started_at is None else timestamp(value.started_at),
        end_time=None if value.ended_at is None else timestamp(value.ended_at),
        settings=turn_settings(value) if with_settings else None,
        start_sequence=value.start_sequence,
        end_sequence=value.end_sequence,
    )


def turn_settings(value: Turn) -> turn_pb2.TurnSettings:
    """Returns how a turn was to be answered."""
    return turn_pb2.TurnSettings(
        model=model_name(value.model),
        agent=value.agent or DEFAULT_AGENT,
        system=value.system,
        tools=map(tool_definition, value.tools),
        options=options(value.options),
    )


def options(value: GenerationOptions) -> turn_pb2.GenerationOptions | None:
    """Returns the settings of a generation; None when there are none."""
    if value == GenerationOptions():
        return None
    return turn_pb2.GenerationOptions(
        temperature=value.temperature,
        top_p=value.top_p,
        max_output_tokens=value.max_output_tokens,
        stop_sequences=value.stop_sequences,
        reasoning_effort=value.reasoning_effort,
        max_steps=value.max_steps,
        max_turn_tokens=value.max_turn_tokens,
        max_turn_cost_pico_usd=value.max_turn_cost_pico_usd,
    )


def queue_entry(value: QueueEntry) -> turn_pb2.QueueEntry:
    """Returns a message that waits."""
    return turn_pb2.QueueEntry(message_id=value.message_id, turn_id=value.turn_id, busy_policy=_POLICIES[value.policy])


def tool_definition(value: ToolDefinition) -> tool_pb2.ToolDefinition:
    """Returns a tool that a client declared."""
    return tool_pb2.ToolDefinition(
        name=value.name, description=value.description, input_schema_json=value.input_schema_json
    )


def budget(value: Budget) -> session_pb2.Budget | None:
    """Returns the limits of a session; None when it has none of its own."""
    if value == Budget():
        return None
    return session_pb2.Budget(max_tokens=value.max_tokens, max_cost_pico_usd=value.max_cost_pico_usd)


def explanation(value: ContextExplanation) -> message_pb.ExplainContextResponse:
    """Returns a request and how it came to be."""
    return message_pb.ExplainContextResponse(
        provider_id=value.provider_id,
        model_id=value.model_id,
        api=value.api,
        request_json=value.request_json,
        estimated_tokens=value.estimated_tokens,
        context_window_tokens=value.context_window_tokens,
        would_compact=value.would_compact,
        repairs=[
            message_pb.ContextRepair(
                message_id=repair.message_id,
                part_index=repair.part_index,
                action=REPAIR_ACTIONS[repair.action],
                reason=repair.reason,
                explanation=repair.explanation,
            )
            for repair in value.repairs
        ],
        sent_context=sent_context(value.sent_context),
    )


def model_name(model: m.ModelRef) -> model_pb2.ModelName:
    """Returns the name of a model."""
    return model_pb2.ModelName(provider_id=model.provider_id, model_id=model.model_id)


def _microseconds(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
