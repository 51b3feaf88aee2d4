"""Frames: events and display forms as bytes that are joined and sent without parsing."""

from opencode.event import event_pb2
from opencode.event import session_event_pb2 as pb
from opencode.message import message_pb2
from opencode.session import session_pb2
from turnwire.api.wire.answers import messages, models, outcomes, sessions, times, tools, turns
from turnwire.api.wire.framing import frame
from turnwire.domain.conversation import events as e
from turnwire.domain.conversation.display import is_shown
from turnwire.domain.conversation.messages import Message, ModelRun
from turnwire.domain.text import utf8_bytes


def resume_token(token: str) -> bytes:
    """Returns the bytes of the field resume_token, to be joined to the frames of a batch of either kind."""
    return event_pb2.WatchEventsResponse(resume_token=token).SerializeToString()


def end_of_list(token: str, *, truncated: bool) -> bytes:
    """Returns the bytes of next_page_token and truncated, to be joined to the frames of a MessageList."""
    return message_pb2.MessageList(next_page_token=token, truncated=truncated).SerializeToString()


class ProtoCodec:
    """Implements `ports.codec.Codec`."""

    def encode_event(self, event: e.Event) -> bytes:
        """Returns the event as a frame of a batch."""
        kind = event.kind
        if type(kind) is e.PartDelta:  # by far the most frequent one
            delta = pb.PartDelta(
                message_id=kind.message_id,
                part_index=kind.part_index,
                offset=kind.offset,
                text=kind.text,
                end_offset=kind.offset + utf8_bytes(kind.text),
            )
            return frame(pb.SessionEvent(session_id=event.session_id, part_delta=delta).SerializeToString())
        result = pb.SessionEvent(
            sequence=event.sequence,
            session_id=event.session_id,
            event_time=None if event.at is None else times.timestamp(event.at),
            turn_id=event.turn_id,
        )
        _fill_kind(result, event)
        return frame(result.SerializeToString())

    def encode_resume_token(self, token: str) -> bytes:
        """Returns the field resume_token."""
        return resume_token(token)

    def encode_display(self, message: Message) -> bytes:
        """Returns the display form as a frame of a MessageList; empty when there is none."""
        return frame(messages.display(message).SerializeToString()) if is_shown(message) else b""


def _fill_kind(result: pb.SessionEvent, event: e.Event) -> None:
    """Sets the one field of the event's kind."""
    match event.kind:
        case e.PartStarted(message_id, part):
            result.part_started.CopyFrom(pb.PartStarted(message_id=message_id, part=messages.part(part)))
        case e.PartFinished(message_id, part):
            result.part_finished.CopyFrom(pb.PartFinished(message_id=message_id, part=messages.part(part)))
        case e.MessageAdded(message, session_title):
            result.message_added.CopyFrom(
                pb.MessageAdded(message=messages.message(message), session_title=session_title)
            )
        case e.MessageFinished(message):
            result.message_finished.message.CopyFrom(messages.message(message))
        case e.MessageRemoved(message_id):
            result.message_removed.message_id = message_id
        case e.ToolCallUpdated(message_id, part_id, part_index, call):
            state = tools.tool_call(part_id, call)
            result.tool_call_updated.CopyFrom(
                pb.ToolCallUpdated(message_id=message_id, part_index=part_index, state=state)
            )
        case e.TurnStarted(turn):
            result.turn_started.turn.CopyFrom(turns.turn(turn))
        case e.TurnEnded(turn):
            result.turn_ended.turn.CopyFrom(turns.turn(turn))
        case e.QueueChanged(entries, revision):
            result.queue_changed.CopyFrom(pb.QueueChanged(entries=map(turns.queue_entry, entries), revision=revision))
        case e.MessageSnapshot(message):
            result.message_snapshot.message.CopyFrom(messages.message(message))
        case _:
            _fill_change(result, event)


def _fill_change(result: pb.SessionEvent, event: e.Event) -> None:
    """Sets the field of a kind that changes what was sent before."""
    match event.kind:
        case e.MessageReplaced(message):
            result.message_replaced.message.CopyFrom(messages.message(message))
        case e.ConversationChanged() as changed:
            result.conversation_changed.CopyFrom(_conversation_changed(changed))
        case e.TurnSteered(user_message_id, into_turn_id):
            result.turn_steered.CopyFrom(pb.TurnSteered(user_message_id=user_message_id, into_turn_id=into_turn_id))
        case _:
            _fill_session_kind(result, event)


def _fill_session_kind(result: pb.SessionEvent, event: e.Event) -> None:
    match event.kind:
        case e.SessionCreated(view):
            result.session_created.session.CopyFrom(_session_at(view, event.sequence))
        case e.SessionUpdated(view):
            result.session_updated.session.CopyFrom(_session_at(view, event.sequence))
        case e.SessionDeleted():
            result.session_deleted.SetInParent()
        case e.SessionStatusChanged(running):
            result.session_status_changed.status = (
                session_pb2.SESSION_STATUS_RUNNING if running else session_pb2.SESSION_STATUS_IDLE
            )
        case e.SessionSnapshot(view):
            result.session_snapshot.CopyFrom(
                pb.SessionSnapshot(
                    session=sessions.session(view),
                    queue=map(turns.queue_entry, view.queue),
                    queue_revision=view.session.queue_revision,
                )
            )
        case e.PermissionAsked(permission):
            result.permission_asked.permission.CopyFrom(tools.permission(permission))
        case e.PermissionSnapshot(permission):
            result.permission_snapshot.permission.CopyFrom(tools.permission(permission))
        case e.PermissionReplied(permission_id, tool_call_id, answer):
            result.permission_replied.CopyFrom(
                pb.PermissionReplied(
                    permission_id=permission_id,
                    response=tools.PERMISSION_REPLIES[answer.response],
                    reason=answer.reason,
                    tool_call_id=tool_call_id,
                )
            )
        case e.ContextCompacted(message_id, compaction):
            result.context_compacted.CopyFrom(
                pb.ContextCompacted(message_id=message_id, compaction=messages.compaction(compaction))
            )
        case _:
            _fill_question_kind(result, event)


def _fill_question_kind(result: pb.SessionEvent, event: e.Event) -> None:
    match event.kind:
        case e.QuestionAsked(question):
            result.question_asked.question.CopyFrom(tools.question(question))
        case e.QuestionSnapshot(question):
            result.question_snapshot.question.CopyFrom(tools.question(question))
        case e.QuestionAnswered() as answered:
            result.question_answered.CopyFrom(
                pb.QuestionAnswered(
                    question_id=answered.question_id,
                    action=tools.QUESTION_ACTIONS[answered.answer.action],
                    tool_call_id=answered.tool_call_id,
                    reason=answered.answer.reason,
                )
            )
        case _:
            _fill_hint(result, event)


def _fill_hint(result: pb.SessionEvent, event: e.Event) -> None:
    match event.kind:
        case e.CompactionStarted(message_count, estimated_tokens, context_window_tokens):
            result.compaction_started.CopyFrom(
                pb.CompactionStarted(
                    message_count=message_count,
                    estimated_tokens=estimated_tokens,
                    context_window_tokens=context_window_tokens,
                )
            )
        case e.RetryScheduled() as retry:
            result.retry_scheduled.CopyFrom(_retry_scheduled(retry))
        case e.ToolLog(message_id, part_index, line_index, text):
            result.tool_log.CopyFrom(
                pb.ToolLog(message_id=message_id, part_index=part_index, line_index=line_index, text=text)
            )
        case e.CaughtUp(head):
            result.caught_up.CopyFrom(pb.CaughtUp(head_sequence=head))
        case e.Heartbeat(head):
            result.heartbeat.CopyFrom(pb.Heartbeat(head_sequence=head))
        case e.Resync(reason, earliest):
            number = pb.ResyncReason.Value(f"RESYNC_REASON_{reason.name}")
            result.resync.CopyFrom(pb.Resync(earliest_sequence=earliest, reason=number))
        case other:
            raise TypeError(f"no field for {type(other).__name__}")


def _retry_scheduled(retry: e.RetryScheduled) -> pb.RetryScheduled:
    run = ModelRun(provider_id=retry.model.provider_id, model_requested=retry.model.model_id)
    return pb.RetryScheduled(
        message_id=retry.message_id,
        failure=outcomes.failure(retry.failure),
        attempt=retry.attempt,
        delay=None if retry.delay is None else times.duration(retry.delay),
        model_run=models.model_run(run),
    )


def _conversation_changed(changed: e.ConversationChanged) -> pb.ConversationChanged:
    return pb.ConversationChanged(
        change=pb.ConversationChange.Value(f"CONVERSATION_CHANGE_{changed.change.name}"),
        kept_through_message_id=changed.kept_through_message_id,
        reread=changed.reread,
    )


def _session_at(view: e.SessionView, sequence: int) -> session_pb2.SessionInfo:
    """The session as of the event: its newest sequence then was the event's own."""
    info = sessions.session(view)
    info.head_sequence = sequence
    return info
