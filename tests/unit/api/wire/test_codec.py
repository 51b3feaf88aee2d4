"""Frames: joined they are a message of the contract, for old readers too."""

import typing
from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from opencode.event import event_pb2
from opencode.event import session_event_pb2 as pb
from opencode.file import file_pb2
from opencode.message import content_pb2, message_pb2
from opencode.question import question_pb2
from opencode.question.question_pb2 import QUESTION_ACTION_DECLINE
from opencode.session import session_pb2
from opencode.tool import tool_pb2
from opencode.turn import turn_pb2
from tests.support.fakes.domain_values import (
    NOW,
    later,
    make_answer,
    make_end,
    make_part,
    make_permission,
    make_question,
    make_session,
    make_turn,
)
from turnwire.api.wire.answers import messages, sessions, times, tools, turns
from turnwire.api.wire.codec import ProtoCodec
from turnwire.api.wire.framing import frame
from turnwire.api.wire.requests.watches import KIND_NAMES
from turnwire.domain.conversation import events as e
from turnwire.domain.conversation.messages import (
    Compaction,
    Failure,
    File,
    FinishReason,
    ModelRef,
    ModelRun,
    Reasoning,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice
from turnwire.domain.conversation.questions import LinkForm, QuestionAction, QuestionAnswer
from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry, ToolDefinition
from turnwire.domain.money import Usage

CODEC = ProtoCodec()
VIEW = e.SessionView(
    make_session(title="t", head_sequence=99, queue_revision=5), "trn_1", (QueueEntry("msg_q", "trn_q"),)
)
QUEUED = turn_pb2.QueueEntry(message_id="msg_q", turn_id="trn_q", busy_policy=turn_pb2.BUSY_POLICY_QUEUE)
TURN = make_turn(tools=(ToolDefinition("look", "", ""),), start_sequence=7)
CALL = ToolUse(name="read", call_id="c1", input_json="{}", status=ToolStatus.PENDING, started_at=later(1))
INFO = sessions.session(VIEW)
INFO_AT_7 = session_pb2.SessionInfo()
INFO_AT_7.CopyFrom(INFO)
INFO_AT_7.head_sequence = 7
PART = make_part(2, Text("x"))
PERMISSION = make_permission()
ASKED = tools.permission(PERMISSION)
COMPACTION = Compaction(through_message_id="msg_1", message_count=5, tokens_before=900, tokens_after=100)
ANSWER = make_answer("msg_1", Text("x"), usage=Usage(input_tokens=1))

FORM, LINK = make_question(), make_question(form=LinkForm("https://example.com/"))
ASKED_FORM = question_pb2.Question(
    question_id="que_1",
    session_id="ses_1",
    turn_id="trn_1",
    message_id="msg_1",
    tool_call_id="prt_0",
    source="fs",
    prompt="Which file?",
    schema=question_pb2.SchemaForm(schema_json=FORM.form.schema_json),
    create_time=times.timestamp(NOW),
    expire_time=times.timestamp(NOW + timedelta(minutes=10)),
    metadata_json='{"tool":"fs.write"}',
)
ASKED_LINK = question_pb2.Question()
ASKED_LINK.CopyFrom(ASKED_FORM)
ASKED_LINK.link.url = "https://example.com/"

KINDS: list[tuple[e.DurableKind | e.EphemeralKind, Message]] = [
    (e.SessionCreated(VIEW), pb.SessionCreated(session=INFO_AT_7)),
    (e.SessionUpdated(VIEW), pb.SessionUpdated(session=INFO_AT_7)),
    (e.SessionDeleted(), pb.SessionDeleted()),
    (e.SessionStatusChanged(True), pb.SessionStatusChanged(status=session_pb2.SESSION_STATUS_RUNNING)),
    (e.SessionStatusChanged(False), pb.SessionStatusChanged(status=session_pb2.SESSION_STATUS_IDLE)),
    (e.TurnStarted(TURN), pb.TurnStarted(turn=turns.turn(TURN))),
    (
        make_end(finish_reason=FinishReason.ERROR, failure=Failure("R", "m"), started_at=later(1), steps=2),
        pb.TurnEnded(
            turn=turn_pb2.Turn(
                turn_id="trn_1",
                session_id="ses_1",
                user_message_id="msg_user",
                status=turn_pb2.TURN_STATUS_ENDED,
                finish_reason=content_pb2.FINISH_REASON_ERROR,
                failure=content_pb2.Failure(reason="R", message="m"),
                steps=2,
                create_time=times.timestamp(NOW),
                start_time=times.timestamp(later(1)),
                end_time=times.timestamp(NOW),
            )
        ),
    ),
    (e.MessageAdded(ANSWER), pb.MessageAdded(message=messages.message(ANSWER))),
    (e.MessageFinished(ANSWER), pb.MessageFinished(message=messages.message(ANSWER))),
    (e.MessageRemoved("msg_1"), pb.MessageRemoved(message_id="msg_1")),
    (e.PartFinished("msg_1", PART), pb.PartFinished(message_id="msg_1", part=messages.part(PART))),
    (
        e.ToolCallUpdated("msg_1", "prt_2", 2, CALL),
        pb.ToolCallUpdated(message_id="msg_1", part_index=2, state=tools.tool_call("prt_2", CALL)),
    ),
    (
        e.QueueChanged((QueueEntry("a", "t"), QueueEntry("b", "u", BusyPolicy.REJECT)), 3),
        pb.QueueChanged(
            entries=[
                turn_pb2.QueueEntry(message_id="a", turn_id="t", busy_policy=turn_pb2.BUSY_POLICY_QUEUE),
                turn_pb2.QueueEntry(message_id="b", turn_id="u", busy_policy=turn_pb2.BUSY_POLICY_REJECT),
            ],
            revision=3,
        ),
    ),
    (e.QueueChanged(()), pb.QueueChanged()),
    (e.PermissionAsked(PERMISSION), pb.PermissionAsked(permission=ASKED)),
    (
        e.PermissionReplied("per_1", "prt_2", PermissionAnswer(PermissionChoice.REJECT, "no")),
        pb.PermissionReplied(
            permission_id="per_1", response=tool_pb2.PERMISSION_REPLY_REJECT, reason="no", tool_call_id="prt_2"
        ),
    ),
    (
        e.PermissionReplied("per_1", "prt_2", PermissionAnswer(PermissionChoice.CANCELLED)),
        pb.PermissionReplied(permission_id="per_1", response=tool_pb2.PERMISSION_REPLY_CANCELLED, tool_call_id="prt_2"),
    ),
    (
        e.ContextCompacted("msg_s", COMPACTION),
        pb.ContextCompacted(message_id="msg_s", compaction=messages.compaction(COMPACTION)),
    ),
    (e.MessageReplaced(ANSWER), pb.MessageReplaced(message=messages.message(ANSWER))),
    (
        e.ConversationChanged(e.ConversationChange.REVERTED, "msg_1", reread=True),
        pb.ConversationChanged(change=pb.CONVERSATION_CHANGE_REVERTED, kept_through_message_id="msg_1", reread=True),
    ),
    (
        e.ConversationChanged(e.ConversationChange.CLEARED, None),
        pb.ConversationChanged(change=pb.CONVERSATION_CHANGE_CLEARED),
    ),
    (e.TurnSteered("msg_q", "trn_1"), pb.TurnSteered(user_message_id="msg_q", into_turn_id="trn_1")),
    (e.QuestionAsked(FORM), pb.QuestionAsked(question=ASKED_FORM)),
    (e.QuestionSnapshot(LINK), pb.QuestionSnapshot(question=ASKED_LINK)),
    (
        e.QuestionAnswered("que_1", "prt_0", QuestionAnswer(QuestionAction.DECLINE, "no")),
        pb.QuestionAnswered(question_id="que_1", action=QUESTION_ACTION_DECLINE, tool_call_id="prt_0", reason="no"),
    ),
    (e.PermissionSnapshot(PERMISSION), pb.PermissionSnapshot(permission=ASKED)),
    (
        e.CompactionStarted(5, 900, 1000),
        pb.CompactionStarted(message_count=5, estimated_tokens=900, context_window_tokens=1000),
    ),
    (e.PartStarted("msg_1", PART), pb.PartStarted(message_id="msg_1", part=messages.part(PART))),
    (e.ToolLog("msg_1", 2, 3, "at 4"), pb.ToolLog(message_id="msg_1", part_index=2, line_index=3, text="at 4")),
    (e.MessageSnapshot(ANSWER), pb.MessageSnapshot(message=messages.message(ANSWER))),
    (e.SessionSnapshot(VIEW), pb.SessionSnapshot(session=INFO, queue=[QUEUED], queue_revision=5)),
    (e.CaughtUp(3), pb.CaughtUp(head_sequence=3)),
    (e.CaughtUp(0), pb.CaughtUp(head_sequence=0)),
    (e.CaughtUp(None), pb.CaughtUp()),
    (e.Heartbeat(3), pb.Heartbeat(head_sequence=3)),
    (e.Heartbeat(None), pb.Heartbeat()),
    (
        e.RetryScheduled("msg_1", Failure("BUSY", "busy"), 2, timedelta(seconds=1.5), ModelRef("p", "m")),
        pb.RetryScheduled(
            message_id="msg_1",
            failure=content_pb2.Failure(reason="BUSY", message="busy"),
            attempt=2,
            delay=Duration(seconds=1, nanos=500_000_000),
            model_run=content_pb2.ModelRun(provider_id="p", model_requested="m"),
        ),
    ),
    (e.Resync(e.ResyncReason.PRUNED, 3), pb.Resync(earliest_sequence=3, reason=pb.RESYNC_REASON_PRUNED)),
    (e.Resync(e.ResyncReason.HISTORY_REPLACED), pb.Resync(reason=pb.RESYNC_REASON_HISTORY_REPLACED)),
]


FIELDS = {field.message_type.name: field for field in pb.SessionEvent.DESCRIPTOR.oneofs_by_name["kind"].fields}


def _event(kind: e.DurableKind | e.EphemeralKind, **fields: object) -> e.Event:
    return e.Event(**{"session_id": "ses_1", "kind": kind, "at": NOW, **fields})


def test_every_kind_has_its_field() -> None:
    """The event carries session, turn, sequence, time and its kind, even when that is empty; never the position."""
    told = {"session_id": "ses_1", "turn_id": "trn_1", "sequence": 7, "event_time": times.timestamp(NOW)}
    for kind, content in KINDS:
        encoded = CODEC.encode_event(_event(kind, turn_id="trn_1", sequence=7, position=8))
        [event] = event_pb2.WatchEventsResponse.FromString(encoded).events
        name = FIELDS[content.DESCRIPTOR.name].name
        assert (event, event.WhichOneof("kind")) == (pb.SessionEvent(**told, **{name: content}), name)


def test_the_list_of_kinds_above_is_complete() -> None:
    """Every durable and ephemeral kind encodes."""
    kinds = {*typing.get_args(e.DurableKind), *typing.get_args(e.EphemeralKind)}
    assert {type(kind) for kind, _ in KINDS} | {e.PartDelta} == kinds


def test_the_kinds_a_client_can_ask_for_are_the_domains() -> None:
    """EventKind lists exactly the durable kinds, each with the number of its field and named after it."""
    assert set(KIND_NAMES.values()) == {kind.__name__ for kind in typing.get_args(e.DurableKind)}
    for kind, content in KINDS:
        field, is_durable = FIELDS[content.DESCRIPTOR.name], isinstance(kind, e.DurableKind)
        assert KIND_NAMES.get(field.number) == (type(kind).__name__ if is_durable else None)
        if is_durable:
            assert pb.EventKind.Name(field.number) == f"EVENT_KIND_{field.name.upper()}"


def test_every_change_of_a_conversation_and_every_reason_has_its_number() -> None:
    """By the same names."""
    reasons = [name.removeprefix("RESYNC_REASON_") for name in pb.ResyncReason.keys()]  # noqa: SIM118
    assert reasons == ["UNSPECIFIED", *(reason.name for reason in e.ResyncReason)]
    names = [name.removeprefix("CONVERSATION_CHANGE_") for name in pb.ConversationChange.keys()]  # noqa: SIM118
    assert names == ["UNSPECIFIED", *(change.name for change in e.ConversationChange)]


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16383, 16384, 2097151, 2097152])
def test_lengths_of_every_width_are_right(length: int) -> None:
    """At the edges where the length needs one byte more."""
    body = b"x" * length
    assert len(frame(body)) - length in (2, 3, 4, 5)
    message = message_pb2.MessageList.FromString(frame(message_pb2.DisplayMessage(message_id="m").SerializeToString()))
    assert message.messages[0].message_id == "m"
    batch = tool_pb2.ToolCallState.FromString(frame(body))  # its field 1 is text
    assert batch.id == body.decode()


def test_a_display_form_has_every_field() -> None:
    """All that the contract shows of an answer."""
    file = File(sha256="ab", size_bytes=1, mime="text/x-python", filename="a.py", path="/a.py", language="python")
    call = ToolUse(
        name="read",
        call_id="c1",
        input_json='{"a":1}',
        status=ToolStatus.SUCCESS,
        output="out",
        logs=("l",),
        metadata_json="{}",
        started_at=NOW,
        finished_at=later(1),
        permission_id="per_1",
        files=(file,),
        full_output=file,
    )
    message = make_answer(
        "msg_1",
        Reasoning("hm"),
        "text",
        call,
        file,
        finish_reason=FinishReason.TOOL_USE,
        provider_finish_reason="tool_calls",
        usage=Usage(input_tokens=1, cache_read_tokens=2, cache_write_tokens=3, output_tokens=4, reasoning_tokens=5),
        cost_pico_usd=7,
        model_run=ModelRun(provider_id="p", model_requested="m", model_served="m2", response_id="r"),
        metadata_json='{"k":1}',
        sender="u",
        sender_name="U",
        failure=Failure("R", "m"),
        compaction=COMPACTION,
        updated_at=later(1),
    )
    shown_file = file_pb2.FileRef(
        sha256="ab", size_bytes=1, mime="text/x-python", filename="a.py", path="/a.py", language="python"
    )
    created = 1767323045678
    shown = message_pb2.DisplayMessage(
        message_id="msg_1",
        role="assistant",
        text_parts=["text"],
        reasoning_parts=["hm"],
        tokens_input=6,
        tokens_output=9,
        tokens_reasoning=5,
        tool_calls=[
            tool_pb2.ToolCallState(
                id="prt_2",
                name="read",
                status="success",
                call_id="c1",
                input_json='{"a":1}',
                output="out",
                logs=["l"],
                metadata_json="{}",
                started_at=created,
                finished_at=created + 1000,
                permission_id="per_1",
                files=[shown_file],
                full_output=shown_file,
            )
        ],
        message_type=content_pb2.MESSAGE_TYPE_ASSISTANT,
        status=content_pb2.MESSAGE_STATUS_COMPLETE,
        finish_reason=content_pb2.FINISH_REASON_TOOL_USE,
        provider_finish_reason="tool_calls",
        files=[shown_file],
        usage=content_pb2.TokenUsage(
            input_tokens=1, cache_read_tokens=2, cache_write_tokens=3, output_tokens=4, reasoning_tokens=5
        ),
        cost_pico_usd=7,
        model_run=content_pb2.ModelRun(provider_id="p", model_requested="m", model_served="m2", response_id="r"),
        metadata_json='{"k":1}',
        turn_id="trn_1",
        parent_id="msg_user",
        sender="u",
        sender_name="U",
        created_at=created,
        updated_at=created + 1000,
        failure=content_pb2.Failure(reason="R", message="m"),
        compaction=content_pb2.Compaction(
            through_message_id="msg_1", message_count=5, tokens_before=900, tokens_after=100
        ),
    )
    assert message_pb2.MessageList.FromString(CODEC.encode_display(message)).messages == [shown]
