"""The codec's version is raised when what it encodes for the store comes out differently."""

import hashlib
import re
import typing
from collections.abc import Iterator
from datetime import timedelta

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as Proto

from opencode.event.event_pb2 import WatchEventsResponse
from opencode.message.message_pb2 import MessageList
from tests.support.fakes.domain_values import (
    NOW,
    later,
    make_answer,
    make_file,
    make_message,
    make_part,
    make_permission,
    make_question,
    make_session,
    make_turn,
)
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation import events as e
from turnwire.domain.conversation.messages import (
    Compaction,
    Failure,
    FinishReason,
    Lease,
    MessageType,
    ModelRef,
    ModelRun,
    Origin,
    PartStatus,
    ProviderContent,
    Reasoning,
    Refusal,
    SentContext,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice
from turnwire.domain.conversation.questions import LinkForm, QuestionAction, QuestionAnswer
from turnwire.domain.conversation.sessions import Budget
from turnwire.domain.conversation.turns import BusyPolicy, GenerationOptions, QueueEntry, TurnStatus
from turnwire.domain.money import Usage

DIGESTS = {
    2: "b5440e5b8eb5aa55e4d49aa61a871b71d33f8215f1d062550da9c9b942a6f966",
    3: "7774fb841d61dd2b99d8991c9ac54c97eef6abf12597bbb04eb2f70dc56f2ade",
}
"""By version, of all samples encoded. When the test fails, raise `VERSION` in api/wire/codec.py and add its digest.

The digest of a version that is not released yet is replaced. Servers that did not know versions made version 1.
"""

FILE = msgspec.structs.replace(
    make_file(b"print()", "main.py", "text/x-python"), path="/src/main.py", language="python"
)
FAILURE = Failure("BUDGET_EXHAUSTED", "too much", {"limit": "9"}, timedelta(seconds=1.5))
USAGE = Usage(
    input_tokens=1,
    cache_read_tokens=2,
    cache_write_tokens=3,
    output_tokens=4,
    reasoning_tokens=5,
    reported_output_tokens=10,
)
RUN = ModelRun(provider_id="p", model_requested="m", model_served="m-1", response_id="r")
COMPACTION = Compaction(through_message_id="msg_0", message_count=3, tokens_before=900, tokens_after=100)
CALL = ToolUse(
    name="look",
    call_id="c1",
    input_json="{}",
    status=ToolStatus.SUCCESS,
    output="found",
    error="half",
    logs=("one", "two"),
    metadata_json='{"a":1}',
    started_at=NOW,
    finished_at=later(1),
    permission_id="per_1",
    files=(FILE,),
    full_output=FILE,
    lease=Lease(lease_id="lse_1", holder="an editor", expires_at=later(3)),
)
ANSWER = make_answer(
    "msg_1",
    *(Text("text"), Reasoning("thought"), Refusal("no"), FILE, CALL),
    *(
        ToolResult(call_id="c0", output="old", is_error=True, tool_call_id="prt_0", exit_code=3),
        ProviderContent("search"),
    ),
    updated_at=later(2),
    turn_id="trn_1",
    answers_message_id="msg_0",
    finish_reason=FinishReason.TOOL_USE,
    provider_finish_reason="tool_calls",
    model_run=RUN,
    usage=USAGE,
    cost_pico_usd=7,
    failure=FAILURE,
    sender="usr_1",
    sender_name="Ann",
    metadata_json='{"b":2}',
    compaction=COMPACTION,
    sent_context=SentContext(
        system_hash="s",
        tools_hash="t",
        prefix_hash="p",
        message_count=2,
        estimated_tokens=10,
        uncorrected_tokens=9,
        break_reason="MODEL_CHANGED",
    ),
)
MESSAGES = (
    msgspec.structs.replace(
        ANSWER,
        previous_message_id="msg_0",
        request_id="req_1",
        origin=Origin(system="mail", session_id="ses_0", message_id="msg_9"),
    ),
    *(make_message(f"msg_{kind}", "text", type=kind) for kind in MessageType),
)

SESSION = make_session(
    title="t",
    directory="/d",
    model=ModelRef("p", "m"),
    agent="a",
    compaction=True,
    budget=Budget(max_tokens=1, max_cost_pico_usd=2),
    labels={"a": "b"},
    metadata_json="{}",
    system="s",
    options=GenerationOptions(
        temperature=0.5,
        top_p=0.25,
        max_output_tokens=1,
        stop_sequences=("x",),
        reasoning_effort="high",
        max_steps=2,
        max_turn_tokens=3,
        max_turn_cost_pico_usd=4,
    ),
    revision=3,
    queue_revision=4,
    origin=Origin(system="mail", session_id="ses_0", message_id="msg_9"),
)
ENTRY = QueueEntry("msg_q", "trn_q", BusyPolicy.QUEUE)
VIEW = e.SessionView(SESSION, "trn_1", (ENTRY,), 2)
TURN = make_turn(
    status=TurnStatus.ENDED,
    finish_reason=FinishReason.STOP,
    failure=FAILURE,
    usage=USAGE,
    cost_pico_usd=7,
    steps=2,
    started_at=later(1),
    ended_at=later(2),
    start_sequence=3,
    end_sequence=9,
)
PERMISSION = make_permission(call_id="c1", turn_id="trn_1", tool_call_id="prt_1", metadata_json="{}")
KINDS: tuple[e.DurableKind, ...] = (
    e.SessionCreated(VIEW),
    e.SessionUpdated(VIEW),
    e.SessionDeleted(),
    e.SessionStatusChanged(True),
    e.TurnStarted(TURN),
    e.TurnEnded(TURN),
    *(e.MessageAdded(message) for message in MESSAGES),
    e.MessageFinished(ANSWER),
    e.MessageRemoved("msg_1"),
    *(e.PartFinished("msg_1", make_part(3, Text("text"), status=status)) for status in PartStatus),
    e.ToolCallUpdated("msg_1", "prt_4", 4, CALL),
    e.QueueChanged((ENTRY,), 4),
    e.PermissionAsked(PERMISSION),
    e.PermissionReplied("per_1", "prt_1", PermissionAnswer(PermissionChoice.REJECT, "because")),
    e.QuestionAsked(make_question()),
    e.QuestionAsked(make_question(form=LinkForm("https://example.com/"))),
    e.QuestionAnswered("que_1", "prt_1", QuestionAnswer(QuestionAction.DECLINE, "because")),
    e.ContextCompacted("msg_1", COMPACTION),
    e.MessageReplaced(ANSWER),
    e.ConversationChanged(e.ConversationChange.REVERTED, "msg_1", True),
    e.TurnSteered("msg_1", "trn_1"),
)

DISPLAYS = b"".join(map(ProtoCodec().encode_display, MESSAGES))
EVENTS = b"".join(
    ProtoCodec().encode_event(
        e.Event(session_id="ses_1", kind=kind, at=NOW, turn_id="trn_1", sequence=sequence, position=sequence)
    )
    for sequence, kind in enumerate(KINDS, 1)
)
SHORT_EVENTS = b"".join(
    ProtoCodec().shorten_event(e.Event(session_id="ses_1", kind=kind, at=NOW, turn_id="trn_1", sequence=1, position=1))
    for kind in KINDS
)

NOT_WRITTEN = {
    "SessionEvent.reread_if_unknown",
    "SessionInfo.archive_time",
    "SessionInfo.version",
    "SessionMessage.alternative_count",
    "SessionMessage.alternative_index",
    "SessionSettings.tools",
    "Turn.ended_by_message_id",
    "Turn.merged_into_turn_id",
    "Turn.replaces_turn_id",
    "Turn.settings",
}
"""Fields of stored messages that the server does not set, or only in what it does not store."""

CONTAINERS = {"MessageList", "WatchEventsResponse"}
"""Not stored; what is stored are elements of their field 1."""


def _set_fields(value: Proto) -> Iterator[FieldDescriptor]:
    """Yields every field that is set in a message or in the messages in it."""
    for field, content in value.ListFields():
        yield field
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for inner in content if field.is_repeated else (content,):
            yield from _set_fields(inner)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _short(field: FieldDescriptor) -> str:
    return f"{field.containing_type.name}.{field.name}"


def test_encoding_changes_with_the_version() -> None:
    """The samples, encoded, have the digest that is kept for the version: see `DIGESTS`."""
    assert hashlib.sha256(DISPLAYS + EVENTS + SHORT_EVENTS).hexdigest() == DIGESTS[ProtoCodec.version]


def test_samples_have_every_durable_kind() -> None:
    """So that a change of any of them is seen."""
    assert {type(kind) for kind in KINDS} == set(typing.get_args(e.DurableKind))


def test_samples_have_every_field() -> None:
    """A field that is added to what is stored changes the digest, as a sample has to set it."""
    stored = (MessageList.FromString(DISPLAYS), WatchEventsResponse.FromString(EVENTS))
    found = [field for value in stored for field in _set_fields(value)]
    messages = [field.containing_type for field in found if field.containing_type.name not in CONTAINERS]
    missing = {_short(field) for message in messages for field in message.fields} - {_short(field) for field in found}
    passing = {_snake(kind.__name__) for kind in typing.get_args(e.EphemeralKind)}
    assert missing - {f"SessionEvent.{kind}" for kind in passing} == NOT_WRITTEN
