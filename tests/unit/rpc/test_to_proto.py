"""Domain values as messages of the contract: no member is left out, nothing is rounded away."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from opencode.message import content_pb2
from tests.support.domain_values import make_message, make_part
from turnwire.domain.messages import (
    Content,
    File,
    FinishReason,
    MessageStatus,
    MessageType,
    PartStatus,
    ProviderContent,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.money import Usage
from turnwire.rpc import to_proto


@pytest.mark.parametrize(
    ("members", "table", "enum", "prefix"),
    [
        (MessageType, to_proto._TYPES, content_pb2.MessageType, "MESSAGE_TYPE_"),
        (MessageStatus, to_proto._STATUSES, content_pb2.MessageStatus, "MESSAGE_STATUS_"),
        (PartStatus, to_proto._PART_STATUSES, content_pb2.PartStatus, "PART_STATUS_"),
        (FinishReason, to_proto._FINISH_REASONS, content_pb2.FinishReason, "FINISH_REASON_"),
    ],
)
def test_enums_of_both_sides_have_the_same_members(members: Any, table: dict[Any, int], enum: Any, prefix: str) -> None:
    """Every member has its number, and every number but 0 its member."""
    assert {member: enum.Name(number) for member, number in table.items()} == {
        member: prefix + member.name for member in members
    }
    assert sorted(table.values()) == sorted(number for number in enum.values() if number)


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
    shown = to_proto.part(make_part(3, content, provider_state='{"secret":1}'))
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
    stamp = to_proto.timestamp(at)
    assert datetime.fromtimestamp(stamp.seconds, UTC) + timedelta(microseconds=stamp.nanos // 1000) == at
    assert to_proto.milliseconds(at) % 1000 == microsecond // 1000


def test_unknown_counts_stay_absent() -> None:
    """None is not 0."""
    shown = to_proto.usage(Usage(input_tokens=0))
    assert shown is not None
    assert (shown.HasField("input_tokens"), shown.HasField("output_tokens")) == (True, False)
    assert to_proto.usage(None) is None


def test_what_a_message_does_not_have_is_absent() -> None:
    """A user message has no usage, cost, model run or failure."""
    shown = to_proto.message(make_message("msg_1", "a"))
    fields = ("usage", "cost_pico_usd", "model_run", "failure")
    assert [shown.HasField(name) for name in fields] == [False] * 4
    assert shown.finish_reason == content_pb2.FINISH_REASON_UNSPECIFIED
