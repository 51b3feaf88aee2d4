"""Frames of the log back as domain values: what `answers` has shown of them."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from opencode.event import event_pb2
from opencode.event import session_event_pb2 as pb
from opencode.file import file_pb2
from opencode.message import content_pb2 as content
from opencode.tool import tool_pb2
from turnwire.api.wire.answers import tools
from turnwire.domain.conversation import events as e
from turnwire.domain.conversation import messages as m
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionRequest
from turnwire.domain.money import Usage

UNKNOWN_PART = -1
"""`PermissionRequest.part_index` of a decoded request: clients know its call by its id."""

_TYPES = {content.MessageType.Value(f"MESSAGE_TYPE_{value.name}"): value for value in m.MessageType}
_STATUSES = {content.MessageStatus.Value(f"MESSAGE_STATUS_{value.name}"): value for value in m.MessageStatus}
_PART_STATUSES = {content.PartStatus.Value(f"PART_STATUS_{value.name}"): value for value in m.PartStatus}
_FINISH_REASONS = {content.FinishReason.Value(f"FINISH_REASON_{value.name}"): value for value in m.FinishReason}
_TOKEN_COUNTS = tuple(field.name for field in content.TokenUsage.DESCRIPTOR.fields)


def decoded_events(frames: bytes) -> list[e.Event]:
    """Returns the events of joined frames; see `ports.codec.Codec.decode_events`."""
    return [_decoded(event) for event in event_pb2.WatchEventsResponse.FromString(frames).events]


def _decoded(event: pb.SessionEvent) -> e.Event:
    kind = event.WhichOneof("kind")
    decode = _KINDS.get(kind or "")
    if decode is None:
        raise ValueError(f"a frame with {kind or 'no kind'} is not decoded")
    return e.Event(
        session_id=event.session_id,
        kind=decode(event),
        at=_moment(event.event_time),
        turn_id=event.turn_id,
        sequence=event.sequence,
    )


def _message_added(event: pb.SessionEvent) -> e.MessageAdded:
    return e.MessageAdded(_message(event.message_added.message), event.message_added.session_title)


def _message_finished(event: pb.SessionEvent) -> e.MessageFinished:
    return e.MessageFinished(_message(event.message_finished.message))


def _part_finished(event: pb.SessionEvent) -> e.PartFinished:
    return e.PartFinished(event.part_finished.message_id, _part(event.part_finished.part))


def _tool_call_updated(event: pb.SessionEvent) -> e.ToolCallUpdated:
    updated = event.tool_call_updated
    return e.ToolCallUpdated(updated.message_id, updated.state.id, updated.part_index, _tool_use(updated.state))


def _permission_asked(event: pb.SessionEvent) -> e.PermissionAsked:
    asked = event.permission_asked.permission
    return e.PermissionAsked(
        PermissionRequest(
            permission_id=asked.id,
            session_id=asked.session_id,
            turn_id=asked.turn_id,
            message_id=asked.message_id,
            part_index=UNKNOWN_PART,
            tool_call_id=asked.tool_call_id,
            tool=asked.type,
            patterns=tuple(asked.pattern),
            title=asked.title,
            created_at=_of_milliseconds(asked.created_at),
            call_id=asked.call_id,
            metadata_json=asked.metadata_json,
        )
    )


def _permission_replied(event: pb.SessionEvent) -> e.PermissionReplied:
    replied = event.permission_replied
    answer = PermissionAnswer(_CHOICES[replied.response], replied.reason)
    return e.PermissionReplied(replied.permission_id, replied.tool_call_id, answer)


_CHOICES = {number: choice for choice, number in tools.PERMISSION_REPLIES.items()}

_KINDS: dict[str, Callable[[pb.SessionEvent], e.DurableKind]] = {
    "message_added": _message_added,
    "message_finished": _message_finished,
    "part_finished": _part_finished,
    "tool_call_updated": _tool_call_updated,
    "permission_asked": _permission_asked,
    "permission_replied": _permission_replied,
}


def _message(sent: content.SessionMessage) -> m.Message:
    run, failure = sent.model_run, sent.failure
    return m.Message(
        message_id=sent.message_id,
        session_id=sent.session_id,
        type=_TYPES[sent.type],
        status=_STATUSES[sent.status],
        created_at=_moment(sent.create_time),
        updated_at=_moment(sent.update_time),
        parts=tuple(map(_part, sent.parts)),
        turn_id=sent.turn_id,
        answers_message_id=sent.answers_message_id,
        finish_reason=_FINISH_REASONS.get(sent.finish_reason),
        provider_finish_reason=sent.provider_finish_reason,
        model_run=_model_run(run) if sent.HasField("model_run") else None,
        usage=_usage(sent.usage) if sent.HasField("usage") else None,
        cost_pico_usd=sent.cost_pico_usd if sent.HasField("cost_pico_usd") else None,
        failure=m.Failure(failure.reason, failure.message) if sent.HasField("failure") else None,
        sender=sent.sender,
        sender_name=sent.sender_name,
        metadata_json=sent.metadata_json,
        compaction=_compaction(sent.compaction) if sent.HasField("compaction") else None,
        previous_message_id=sent.previous_message_id,
        alternative_count=sent.alternative_count,
        alternative_index=sent.alternative_index,
        request_id=sent.request_id,
        origin=_origin(sent.origin) if sent.HasField("origin") else None,
    )


def _origin(sent: content.MessageOrigin) -> m.Origin:
    return m.Origin(system=sent.system, session_id=sent.session_id, message_id=sent.message_id)


def _model_run(sent: content.ModelRun) -> m.ModelRun:
    return m.ModelRun(
        provider_id=sent.provider_id,
        model_requested=sent.model_requested,
        model_served=sent.model_served,
        response_id=sent.response_id,
        is_reported=sent.is_reported,
    )


def _usage(sent: content.TokenUsage) -> Usage:
    return Usage(**{name: getattr(sent, name) for name in _TOKEN_COUNTS if sent.HasField(name)})  # type: ignore[arg-type]


def _compaction(sent: content.Compaction) -> m.Compaction:
    return m.Compaction(
        through_message_id=sent.through_message_id,
        message_count=sent.message_count,
        tokens_before=sent.tokens_before,
        tokens_after=sent.tokens_after,
    )


def _part(sent: content.Part) -> m.Part:
    kind = sent.WhichOneof("content")
    if kind is None:
        raise ValueError("a part without content is not decoded")
    return m.Part(
        part_id=sent.part_id,
        index=sent.index,
        content=_CONTENTS[kind](getattr(sent, kind)),
        status=_PART_STATUSES[sent.status],
    )


def _tool_result(sent: content.ToolResultContent) -> m.ToolResult:
    exit_code = sent.exit_code if sent.HasField("exit_code") else None
    return m.ToolResult(call_id=sent.call_id, output=sent.output, is_error=sent.is_error, exit_code=exit_code)


def _tool_use(sent: tool_pb2.ToolCallState) -> m.ToolUse:
    return m.ToolUse(
        name=sent.name,
        call_id=sent.call_id,
        input_json=sent.input_json,
        status=m.ToolStatus(sent.status),
        output=sent.output if sent.HasField("output") else None,
        error=sent.error if sent.HasField("error") else None,
        logs=tuple(sent.logs),
        metadata_json=sent.metadata_json,
        started_at=_of_milliseconds(sent.started_at) if sent.HasField("started_at") else None,
        finished_at=_of_milliseconds(sent.finished_at) if sent.HasField("finished_at") else None,
        permission_id=sent.permission_id,
        files=tuple(map(_file, sent.files)),
        full_output=_file(sent.full_output) if sent.HasField("full_output") else None,
        lease=_lease(sent.lease) if sent.HasField("lease") else None,
    )


def _lease(sent: tool_pb2.ToolCallLease) -> m.Lease:
    return m.Lease(lease_id=sent.lease_id, holder=sent.holder, expires_at=_moment(sent.expire_time))


_FILE_FORMS = {
    file_pb2.FILE_FORM_TEXT: m.FileForm.TEXT,
    file_pb2.FILE_FORM_IMAGE: m.FileForm.IMAGE,
    file_pb2.FILE_FORM_DOCUMENT: m.FileForm.DOCUMENT,
    file_pb2.FILE_FORM_NAME_ONLY: m.FileForm.NAME_ONLY,
}


def _file(sent: file_pb2.FileRef) -> m.File:
    return m.File(
        sha256=sent.sha256,
        size_bytes=sent.size_bytes,
        mime=sent.mime,
        filename=sent.filename,
        path=sent.path,
        language=sent.language,
        form=_FILE_FORMS.get(sent.form, m.FileForm.UNKNOWN),
    )


_CONTENTS: dict[str, Callable[[Any], m.Content]] = {
    "text": lambda sent: m.Text(sent.text),
    "reasoning": lambda sent: m.Reasoning(sent.text),
    "refusal": lambda sent: m.Refusal(sent.text),
    "file": _file,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "provider": lambda sent: m.ProviderContent(sent.kind),
}


def _moment(at: Timestamp) -> datetime:
    return datetime.fromtimestamp(at.seconds + at.nanos / 1e9, UTC)  # rounds to the microsecond that was encoded


def _of_milliseconds(value: int) -> datetime:
    return datetime.fromtimestamp(value / 1000, UTC)
