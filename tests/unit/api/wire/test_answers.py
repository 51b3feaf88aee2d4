"""Domain values as messages of the contract: no member is left out, nothing is rounded away."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from opencode.message import content_pb2, message_pb2
from opencode.model import model_pb2
from opencode.session import session_pb2
from opencode.tool import tool_pb2
from tests.support.fakes.domain_values import NOW, make_message, make_part, make_permission, make_session
from turnwire.api.wire.answers import explanations, messages, outcomes, sessions, times, tools
from turnwire.core.conversation import prefix
from turnwire.core.use_cases.catalog import ToolPage
from turnwire.core.use_cases.explanation import ContextExplanation
from turnwire.domain.conversation.events import SessionView
from turnwire.domain.conversation.messages import (
    Compaction,
    Content,
    Failure,
    File,
    FinishReason,
    MessageStatus,
    MessageType,
    ModelRef,
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
from turnwire.domain.conversation.permissions import PermissionAction, PermissionChoice
from turnwire.domain.conversation.sessions import Budget
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.domain.errors import ProviderRateLimited
from turnwire.domain.money import Usage
from turnwire.domain.repairs import Repair, RepairAction
from turnwire.ports.tools import ServerTool, SourceState, ToolSource


@pytest.mark.parametrize(
    ("members", "table", "enum", "prefix"),
    [
        (MessageType, messages._TYPES, content_pb2.MessageType, "MESSAGE_TYPE_"),
        (MessageStatus, messages._STATUSES, content_pb2.MessageStatus, "MESSAGE_STATUS_"),
        (PartStatus, messages._PART_STATUSES, content_pb2.PartStatus, "PART_STATUS_"),
        (FinishReason, outcomes._FINISH_REASONS, content_pb2.FinishReason, "FINISH_REASON_"),
        (PermissionChoice, tools.PERMISSION_REPLIES, tool_pb2.PermissionReply, "PERMISSION_REPLY_"),
        (PermissionAction, tools.PERMISSION_ACTIONS, tool_pb2.PermissionAction, "PERMISSION_ACTION_"),
        (SourceState, tools.SOURCE_STATES, tool_pb2.ToolSourceState, "TOOL_SOURCE_STATE_"),
        (RepairAction, explanations.REPAIR_ACTIONS, message_pb2.RepairAction, "REPAIR_ACTION_"),
    ],
)
def test_enums_of_both_sides_have_the_same_members(members: Any, table: dict[Any, int], enum: Any, prefix: str) -> None:
    """Every member has its number, and every number its member, but 0."""
    assert {member: enum.Name(number) for member, number in table.items()} == {
        member: prefix + member.name for member in members
    }
    assert sorted(table.values()) == sorted(number for number in enum.values() if number)


def test_breaks_of_a_context_are_those_that_the_core_tells() -> None:
    """Stored as words; a word of a newer server is not said."""
    told = {value for name, value in vars(prefix).items() if name == value}
    assert set(messages.BREAK_REASONS) == told
    newer = SentContext(system_hash="", tools_hash="", prefix_hash="", message_count=0, break_reason="LATER")
    shown = messages.sent_context(newer)
    assert shown is not None
    assert shown.break_reason == content_pb2.CONTEXT_BREAK_UNSPECIFIED


def test_tool_statuses_are_the_words_of_the_contract() -> None:
    """They are text there."""
    assert {status.value for status in ToolStatus} == {"pending", "running", "success", "error", "cancelled"}


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (Text(""), "text"),
        (Reasoning(""), "reasoning"),
        (Refusal(""), "refusal"),
        (File(sha256="ab", size_bytes=0, mime="m/m"), "file"),
        (ToolUse(name=""), "tool_use"),
        (ToolResult(call_id="", output=""), "tool_result"),
        (ProviderContent(""), "provider"),
    ],
)
def test_every_content_sets_its_field(content: Content, field: str) -> None:
    """Even when it is empty: an unset oneof would read as newer than the reader."""
    shown = messages.part(make_part(3, content, provider_state='{"secret":1}'))
    assert (shown.WhichOneof("content"), shown.index, shown.part_id) == (field, 3, "prt_3")
    assert b"secret" not in shown.SerializeToString()


def test_every_content_type_is_tried_above() -> None:
    """A new type needs its field."""
    names = {field.name for field in content_pb2.Part.DESCRIPTOR.oneofs_by_name["content"].fields}
    assert names == {"text", "reasoning", "refusal", "file", "tool_use", "tool_result", "provider"}


@pytest.mark.parametrize("microsecond", [0, 1, 123457, 678901, 999999])
def test_times_are_exact_to_the_microsecond(microsecond: int) -> None:
    """Timestamps do not drift; milliseconds are rounded down."""
    at = datetime(2026, 3, 4, 5, 6, 7, microsecond, tzinfo=UTC)
    stamp = times.timestamp(at)
    assert datetime.fromtimestamp(stamp.seconds, UTC) + timedelta(microseconds=stamp.nanos // 1000) == at
    assert times.milliseconds(at) % 1000 == microsecond // 1000


def test_unknown_counts_stay_absent() -> None:
    """None is not 0."""
    shown = outcomes.usage(Usage(input_tokens=0))
    assert shown is not None
    assert (shown.HasField("input_tokens"), shown.HasField("output_tokens")) == (True, False)
    assert outcomes.usage(None) is None


def test_what_a_message_does_not_have_is_absent() -> None:
    """A user message has no usage, cost, model run or failure."""
    shown = messages.message(make_message("msg_1", "a"))
    fields = ("usage", "cost_pico_usd", "model_run", "failure")
    assert [shown.HasField(name) for name in fields] == [False] * 4
    assert shown.finish_reason == content_pb2.FINISH_REASON_UNSPECIFIED


def test_what_a_model_was_sent_is_shown_without_its_parts_digests() -> None:
    """The digest of the whole, the size, and why prompt caches began anew."""
    sent = SentContext(
        system_hash="sys",
        tools_hash="too",
        prefix_hash="all",
        message_count=2,
        estimated_tokens=3,
        break_reason="TOOLS_CHANGED",
    )
    shown = messages.message(make_message("msg_1", "a", sent_context=sent))
    assert shown.sent_context == content_pb2.SentContext(
        prefix_hash="all", message_count=2, estimated_tokens=3, break_reason=content_pb2.CONTEXT_BREAK_TOOLS_CHANGED
    )
    assert not shown.HasField("compaction")


def test_a_summary_says_what_it_stands_for() -> None:
    """In the full message."""
    compaction = Compaction(through_message_id="msg_0", message_count=4, tokens_before=900, tokens_after=90)
    shown = messages.message(make_message("msg_1", "a", compaction=compaction, type=MessageType.SYSTEM))
    assert shown.compaction == content_pb2.Compaction(
        through_message_id="msg_0", message_count=4, tokens_before=900, tokens_after=90
    )
    assert not shown.HasField("sent_context")


def test_a_failure_keeps_the_facts_of_its_error() -> None:
    """Metadata and the wait, which text cannot carry; what the error did not say stays absent."""
    error = ProviderRateLimited("slow down \ud800", {"status": "429", "word": "\udfff"}, timedelta(seconds=1.5))
    shown = outcomes.failure(Failure.of(error))
    assert shown == content_pb2.Failure(
        reason="PROVIDER_RATE_LIMITED",
        message="slow down \ufffd",
        metadata={"status": "429", "word": "\ufffd"},
        retry_after=Duration(seconds=1, nanos=500_000_000),
    )
    plain = outcomes.failure(Failure.of(ProviderRateLimited("slow down")))
    assert plain is not None
    assert (dict(plain.metadata), plain.HasField("retry_after")) == ({}, False)


def test_a_permission_request_has_every_field() -> None:
    """The tool is its type; a call without an id of the provider leaves that absent."""
    asked = make_permission(patterns=("fs.write", "fs.*"), metadata_json='{"a":1}', call_id="call_1")
    assert tools.permission(asked) == tool_pb2.PermissionRequest(
        id="per_1",
        type="fs.write",
        pattern=["fs.write", "fs.*"],
        session_id="ses_1",
        message_id="msg_1",
        call_id="call_1",
        title="fs.write wants to write",
        metadata_json='{"a":1}',
        created_at=times.milliseconds(NOW),
        tool_call_id="prt_0",
        turn_id="trn_1",
    )
    assert not tools.permission(make_permission()).HasField("call_id")


def test_settings_that_a_session_does_not_have_are_absent() -> None:
    """Off is not absent; a budget may have one limit; the tools are left out unless they are wanted."""
    plain = sessions.session(SessionView(make_session()))
    assert plain.settings == session_pb2.SessionSettings()
    session = make_session(
        tools=(ToolDefinition("read", "reads", "{}"),), compaction=False, budget=Budget(max_cost_pico_usd=5)
    )
    assert not sessions.session(SessionView(session)).settings.tools
    shown = sessions.session(SessionView(session), with_tools=True).settings
    assert shown.compaction == session_pb2.COMPACTION_MODE_OFF
    assert shown.budget == session_pb2.Budget(max_cost_pico_usd=5)
    assert list(shown.tools) == [tool_pb2.ToolDefinition(name="read", description="reads", input_schema_json="{}")]


def test_tools_say_what_happens_to_their_calls() -> None:
    """By the configuration."""
    source = ToolSource(name="fs", state=SourceState.READY)
    offered = tuple(
        ServerTool(name=f"fs.{name}", description="", input_schema_json="{}", source="fs") for name in ("read", "write")
    )
    permissions = {"fs.read": PermissionAction.ALLOW, "fs.write": PermissionAction.ASK}
    shown = tools.tools(ToolPage(offered, (source,), {"fs.write": "its schema is none"}, permissions))
    assert [(tool.name, tool.permission, tool.error) for tool in shown.tools] == [
        ("fs.read", tool_pb2.PERMISSION_ACTION_ALLOW, ""),
        ("fs.write", tool_pb2.PERMISSION_ACTION_ASK, "its schema is none"),
    ]


def test_an_explanation_has_every_field() -> None:
    """Differences keep their order; those about a whole message have no part."""
    explanation = ContextExplanation(
        model=ModelRef("p", "m"),
        api="anthropic",
        request_json='{"a":1}',
        estimated_tokens=7,
        context_window_tokens=100,
        would_compact=True,
        repairs=(
            Repair(action=RepairAction.DROPPED, reason="HOST_MESSAGE", explanation="is for people", message_id="msg_1"),
            Repair(action=RepairAction.ADDED, reason="R", explanation="why", message_id="msg_2", part_index=0),
        ),
        sent_context=SentContext(system_hash="", tools_hash="", prefix_hash="h", message_count=1),
    )
    assert explanations.explanation(explanation) == message_pb2.ExplainContextResponse(
        model=model_pb2.ModelName(provider_id="p", model_id="m"),
        api="anthropic",
        request_json='{"a":1}',
        estimated_tokens=7,
        context_window_tokens=100,
        would_compact=True,
        repairs=[
            message_pb2.ContextRepair(
                message_id="msg_1",
                action=message_pb2.REPAIR_ACTION_DROPPED,
                reason="HOST_MESSAGE",
                explanation="is for people",
            ),
            message_pb2.ContextRepair(
                message_id="msg_2", part_index=0, action=message_pb2.REPAIR_ACTION_ADDED, reason="R", explanation="why"
            ),
        ],
        sent_context=content_pb2.SentContext(prefix_hash="h", message_count=1),
    )
