"""Turns and the queue as messages of the contract."""

from opencode.turn import turn_pb2
from turnwire.api.wire.answers.models import model_name
from turnwire.api.wire.answers.outcomes import failure, finish_reason, usage
from turnwire.api.wire.answers.times import timestamp
from turnwire.api.wire.answers.tools import tool_definition
from turnwire.domain.conversation.sessions import DEFAULT_AGENT
from turnwire.domain.conversation.turns import (
    BusyPolicy,
    GenerationOptions,
    QueueEntry,
    ResponseFormat,
    ResponseFormatKind,
    ToolChoice,
    ToolChoiceMode,
    Turn,
    TurnStatus,
)

_TURN_STATUSES = {status: turn_pb2.TurnStatus.Value(f"TURN_STATUS_{status.name}") for status in TurnStatus}
_POLICIES = {policy: turn_pb2.BusyPolicy.Value(f"BUSY_POLICY_{policy.name}") for policy in BusyPolicy}
_MODES = {mode: turn_pb2.ToolChoiceMode.Value(f"TOOL_CHOICE_MODE_{mode.name}") for mode in ToolChoiceMode}
_FORMS = {kind: turn_pb2.ResponseFormatKind.Value(f"RESPONSE_FORMAT_KIND_{kind.name}") for kind in ResponseFormatKind}


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
        merged_into_turn_id=value.merged_into_turn_id,
        replaces_turn_id=value.replaces_turn_id,
        ended_by_message_id=value.ended_by_message_id,
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
        tool_choice=_tool_choice(value.tool_choice),
        response_format=_response_format(value.response_format),
    )


def _tool_choice(value: ToolChoice | None) -> turn_pb2.ToolChoice | None:
    return None if value is None else turn_pb2.ToolChoice(mode=_MODES[value.mode], tool_name=value.tool_name)


def _response_format(value: ResponseFormat | None) -> turn_pb2.ResponseFormat | None:
    if value is None:
        return None
    if value.kind is not ResponseFormatKind.JSON_SCHEMA:
        return turn_pb2.ResponseFormat(kind=_FORMS[value.kind])
    return turn_pb2.ResponseFormat(
        kind=_FORMS[value.kind],
        schema_json=value.schema_json,
        name=value.name,
        description=value.description,
        strict=value.strict,
    )


def queue_entry(value: QueueEntry) -> turn_pb2.QueueEntry:
    """Returns a message that waits."""
    return turn_pb2.QueueEntry(message_id=value.message_id, turn_id=value.turn_id, busy_policy=_POLICIES[value.policy])
