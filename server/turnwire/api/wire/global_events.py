"""Changes of the simple stream in the words of the fixed contract."""

from functools import partial

from opencode.event import event_pb2 as pb
from turnwire.api.wire.answers import messages, outcomes, times, tools
from turnwire.core.watches.conflated import Change, MessageChange, PartChange, PermissionChange
from turnwire.core.watches.unmade import LARGE_BYTES, Unmade
from turnwire.domain.conversation.display import role_of
from turnwire.domain.conversation.messages import Message, MessageStatus, Reasoning, Refusal, Text, ToolUse, texts_of

_BROKEN = (MessageStatus.INTERRUPTED, MessageStatus.FAILED)


def unmade_event(change: Change) -> pb.GlobalEvent | Unmade | None:
    """Returns `global_event`; that of a long part is still to be made, and its text is that of all who get it."""
    if isinstance(change.kind, PartChange):
        texts = [text for text in texts_of(change.kind.part) if text]
        if (size := sum(map(len, texts))) > LARGE_BYTES:
            return Unmade(size, partial(_encoded, change), max(texts, key=len))
    return global_event(change)


def _encoded(change: Change) -> bytes:
    event = global_event(change)
    return b"" if event is None else event.SerializeToString()


def global_event(change: Change) -> pb.GlobalEvent | None:
    """Returns the event that tells of a change; None for parts that the fixed contract cannot show."""
    match change.kind:
        case MessageChange(message):
            return pb.GlobalEvent(directory=change.directory, message_updated=_message_updated(message))
        case PartChange() as changed:
            part = _part_updated(change.session_id, changed)
            return part and pb.GlobalEvent(directory=change.directory, message_part_updated=part)
        case PermissionChange(permission):
            created = pb.PermissionCreated(permission=tools.permission(permission))
            return pb.GlobalEvent(directory=change.directory, permission_created=created)


def _message_updated(message: Message) -> pb.MessageUpdated:
    updated = pb.MessageUpdated(
        message_id=message.message_id,
        role=role_of(message.type),
        created_at=times.milliseconds(message.created_at),
        updated_at=times.milliseconds(message.updated_at),
        session_id=message.session_id,
        status=messages.message_status(message.status),
        finish_reason=outcomes.finish_reason(message.finish_reason),
    )
    if message.finish_reason is not None:
        updated.finish = "error" if message.status in _BROKEN else "stop"
    if (usage := message.usage) is not None:
        updated.tokens.input = usage.prompt_total or 0
        updated.tokens.output = usage.shown_output or 0
        updated.tokens.reasoning = usage.reasoning_tokens or 0
    return updated


def _part_updated(session_id: str, changed: PartChange) -> pb.MessagePartUpdated | None:
    """Returns the change of a part with all of its text."""
    part = changed.part
    updated = pb.MessagePartUpdated(message_id=changed.message_id, session_id=session_id, part_index=part.index)
    match part.content:
        case Text(text) | Refusal(text):
            updated.text.text = text
        case Reasoning(text):
            updated.reasoning.text = text
        case ToolUse() as call:
            updated.tool.state.CopyFrom(tools.tool_call(part.part_id, call))
        case _:
            return None
    return updated
