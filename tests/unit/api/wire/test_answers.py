"""Domain values as messages of the contract: no member is left out, nothing is rounded away."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from opencode.message import content_pb2, message_pb2
from opencode.tool import tool_pb2
from tests.support.fakes.domain_values import make_part
from turnwire.api.wire.answers import explanations, messages, outcomes, times, tools
from turnwire.core.conversation import prefix
from turnwire.domain.conversation.messages import (
    Content,
    Failure,
    File,
    FinishReason,
    MessageStatus,
    MessageType,
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
from turnwire.domain.errors import ProviderRateLimited
from turnwire.domain.money import Usage
from turnwire.domain.repairs import RepairAction
from turnwire.ports.tools import SourceState


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
    assert (shown.HasField("input_tokens"), shown.HasField("output_tokens")) == (True, False)
    assert outcomes.usage(None) is None


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
    assert (dict(plain.metadata), plain.HasField("retry_after")) == ({}, False)
