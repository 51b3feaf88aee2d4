"""Messages of a conversation as messages of the contract."""

from opencode.message import content_pb2 as content
from opencode.message import message_pb2 as message_pb
from turnwire.api.wire.answers.files import file
from turnwire.api.wire.answers.models import model_run
from turnwire.api.wire.answers.outcomes import failure, finish_reason, usage
from turnwire.api.wire.answers.times import milliseconds, timestamp
from turnwire.api.wire.answers.tools import tool_call
from turnwire.domain.conversation import messages as m
from turnwire.domain.conversation.display import role_of
from turnwire.domain.money import Usage
from turnwire.domain.text import utf8_bytes

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
BREAK_REASONS = {name.removeprefix("CONTEXT_BREAK_"): number for name, number in content.ContextBreak.items() if number}
"""By the words of `SentContext.break_reason`."""


def role(message_type: content.MessageType.ValueType) -> str:
    """Returns who speaks in a message of this type: "user", "assistant" or "system", the last for unknown ones too."""
    return _ROLES.get(message_type, "system")


def message_type(value: m.MessageType) -> content.MessageType.ValueType:
    """Returns the type of a message."""
    return _TYPES[value]


def message_status(status: m.MessageStatus) -> content.MessageStatus.ValueType:
    """Returns the status of a message."""
    return _STATUSES[status]


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
                    exit_code=outcome.exit_code,
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
        alternative_count=value.alternative_count,
        alternative_index=value.alternative_index,
        request_id=value.request_id,
        origin=message_origin(value.origin),
    )


def message_origin(value: m.Origin | None) -> content.MessageOrigin | None:
    """Returns what a message is a copy of."""
    if value is None:
        return None
    return content.MessageOrigin(system=value.system, session_id=value.session_id, message_id=value.message_id)


def disposition(*, queued: bool, duplicate: bool) -> message_pb.Disposition.ValueType:
    """Returns what happens with an accepted message."""
    if duplicate:
        return message_pb.DISPOSITION_DUPLICATE
    return message_pb.DISPOSITION_QUEUED if queued else message_pb.DISPOSITION_STARTED


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


def display(source: m.Message) -> message_pb.DisplayMessage:
    """Returns the display form of a message: its parts by what they are, and nothing that is a provider's alone.

    A tool result that names its call is shown with it: see `domain.conversation.display.is_shown`.
    """
    result = _display_header(source)
    for one in source.parts:
        match one.content:
            case m.Text(text) | m.Refusal(text) | m.ToolResult(output=text):
                result.text_parts.append(text)
            case m.Reasoning(text) if text:
                result.reasoning_parts.append(text)
            case m.ToolUse() as call:
                result.tool_calls.append(tool_call(one.part_id, call))
            case m.File() as reference:
                result.files.append(file(reference))
            case _:
                pass
    return result


def _display_header(source: m.Message) -> message_pb.DisplayMessage:
    """Returns the display form of a message without what its parts add to it.

    What most messages lack is set apart: a field costs a fifth of a microsecond also when it is None.
    """
    result = message_pb.DisplayMessage(
        message_id=source.message_id,
        role=role_of(source.type),
        message_type=_TYPES[source.type],
        status=_STATUSES[source.status],
        turn_id=source.turn_id,
        parent_id=source.answers_message_id,
        sender=source.sender,
        sender_name=source.sender_name,
        metadata_json=source.metadata_json,
        created_at=milliseconds(source.created_at),
        updated_at=milliseconds(source.updated_at),
    )
    said = source.model_run or source.finish_reason or source.provider_finish_reason or source.usage
    if said or source.cost_pico_usd is not None or source.failure or source.compaction:
        result.MergeFrom(_display_outcome(source))
    return result


def _display_outcome(source: m.Message) -> message_pb.DisplayMessage:
    """Returns what the display form says of how a message was made, and what became of it."""
    tokens = source.usage or Usage()
    return message_pb.DisplayMessage(
        tokens_input=tokens.prompt_total,
        tokens_output=tokens.shown_output,
        tokens_reasoning=tokens.reasoning_tokens,
        finish_reason=finish_reason(source.finish_reason),
        provider_finish_reason=source.provider_finish_reason,
        usage=usage(source.usage),
        cost_pico_usd=source.cost_pico_usd,
        model_run=model_run(source.model_run),
        failure=failure(source.failure),
        compaction=compaction(source.compaction),
    )
