"""A value that no caller could have stored is none of an archive either."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, make_file, make_message, make_part, make_session, make_turn
from tests.support.oracles.archives import golden_records
from turnwire.domain.archive.checks import WrongValue, check_record
from turnwire.domain.archive.records import ArchivedMessage, ArchivedSession, ArchivedTurn, Record
from turnwire.domain.conversation.messages import (
    Compaction,
    Failure,
    ModelRef,
    ModelRun,
    Origin,
    PartStatus,
    ProviderContent,
    SentContext,
    Text,
    ToolResult,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.sessions import Budget
from turnwire.domain.conversation.turns import GenerationOptions, ToolDefinition, TurnStatus
from turnwire.domain.money import Usage


def place_of(record: Record) -> str:
    """Returns where a record is wrong."""
    with pytest.raises(WrongValue) as caught:
        check_record(record)
    return caught.value.place


def test_what_the_server_stores_passes() -> None:
    """All of it."""
    for record in golden_records():
        check_record(record)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"session_id": ""}, "session.session_id"),
        ({"directory": "/" * 4097}, "session.directory"),
        ({"agent": "a" * 257}, "session.agent"),
        ({"system": "s" * 65_537}, "session.system"),
        ({"model": ModelRef("", "m")}, "session.model.provider_id"),
        ({"labels": {str(n): "" for n in range(65)}}, "session.labels"),
        ({"labels": {"a": "b" * 257}}, "session.labels[a]"),
        ({"metadata_json": '{"a":"' + "é" * 32_768 + '"}'}, "session.metadata_json"),
        ({"metadata_json": '{"a":' * 5000 + "1" + "}" * 5000}, "session.metadata_json"),
        ({"tools": (ToolDefinition("a b", "", ""),)}, "session.tools[0].name"),
        ({"tools": (ToolDefinition("a", "", ""),) * 2}, "session.tools[1].name"),
        ({"tools": tuple(ToolDefinition(f"t{n}", "", "") for n in range(129))}, "session.tools"),
        ({"tools": (ToolDefinition("a", "d" * 262_145, ""),)}, "session.tools"),
        ({"budget": Budget(max_tokens=0)}, "session.budget.max_tokens"),
        ({"options": GenerationOptions(top_p=0.0)}, "session.options.top_p"),
        ({"options": GenerationOptions(stop_sequences=("",))}, "session.options.stop_sequences"),
        ({"options": GenerationOptions(reasoning_effort="extreme")}, "session.options.reasoning_effort"),
        ({"options": GenerationOptions(max_output_tokens=2**31)}, "session.options.max_output_tokens"),
        ({"origin": Origin(system="s" * 1025, session_id="ses_1")}, "session.origin.system"),
        ({"updated_at": datetime(1969, 1, 1, tzinfo=UTC)}, "session"),
    ],
)
def test_sessions(fields: dict[str, Any], place: str) -> None:
    """Settings have the bounds of CreateSession."""
    assert place_of(ArchivedSession(make_session(**fields))) == place


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"status": TurnStatus.QUEUED}, "turn.status"),
        ({"user_message_id": ""}, "turn.user_message_id"),
        ({"usage": Usage(input_tokens=-1)}, "turn.usage.input_tokens"),
        ({"cost_pico_usd": 2**63}, "turn.cost_pico_usd"),
        ({"failure": Failure("X", "x", {}, timedelta(days=40_000))}, "turn.failure.retry_after"),
        ({"failure": Failure("X", "x" * 65_537)}, "turn.failure.message"),
        ({"failure": Failure("X", "x", {"key": "v" * 65_536})}, "turn.failure.metadata"),
        ({"started_at": NOW.replace(tzinfo=None)}, "turn"),
    ],
)
def test_turns(fields: dict[str, Any], place: str) -> None:
    """They have ended, and their numbers are some that the contract can answer."""
    assert place_of(ArchivedTurn(make_turn(**{"status": TurnStatus.ENDED, **fields}))) == place


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (ToolUse(name="a", status=ToolStatus.RUNNING), ".content.status"),
        (ToolUse(name="a", status=ToolStatus.ERROR, permission_id="per_1"), ".content.permission_id"),
        (ToolUse(name="a", status=ToolStatus.ERROR, metadata_json="1"), ".content.metadata_json"),
        (ToolUse(name="a", status=ToolStatus.SUCCESS, files=(make_file(b"", mime="x"),)), ".content.files[0].mime"),
        (ToolUse(name="a", status=ToolStatus.SUCCESS, logs=("",) * 201), ".content.logs"),
        (ToolUse(name="a", status=ToolStatus.SUCCESS, logs=("x" * 501,)), ".content.logs[0]"),
        (ToolResult(call_id="c" * 1025, output=""), ".content.call_id"),
        (ToolResult(call_id="", tool_call_id="c" * 1025, output=""), ".content.tool_call_id"),
        (ProviderContent(kind="k" * 1025), ".content.kind"),
        (make_file(b"", filename="../a"), ".content.filename"),
        (msgspec.structs.replace(make_file(b""), sha256="x"), ".content.sha256"),
        (msgspec.structs.replace(make_file(b""), size_bytes=-1), ".content.size_bytes"),
        (make_part(0, Text(""), status=PartStatus.STREAMING), ".status"),
        (make_part(0, Text(""), provider_state="{"), ".provider_state"),
        (make_part(1, Text("")), ".index"),
    ],
)
def test_parts(content: Any, place: str) -> None:
    """They are final, in order, and name files as callers do."""
    assert place_of(ArchivedMessage(make_message("msg_1", content))) == f"message.parts[0]{place}"


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"origin": Origin(session_id="s" * 1025)}, "origin.session_id"),
        ({"model_run": ModelRun(provider_id="p", model_requested="m" * 1025)}, "model_run.model_requested"),
        (
            {"sent_context": SentContext(system_hash="h" * 1025, tools_hash="", prefix_hash="", message_count=1)},
            "sent_context.system_hash",
        ),
        (
            {"compaction": Compaction(through_message_id="m" * 1025, message_count=1, tokens_before=1, tokens_after=1)},
            "compaction.through_message_id",
        ),
    ],
)
def test_names(fields: dict[str, Any], place: str) -> None:
    """Values that every message repeats are as short as a name."""
    wrong = msgspec.structs.replace(make_message("msg_1", "a"), **fields)
    assert place_of(ArchivedMessage(wrong)) == f"message.{place}"


def test_a_message_has_a_bound_of_parts() -> None:
    """More than any answer has."""
    many = make_message("msg_1", *[""] * 10_001)
    assert place_of(ArchivedMessage(many)) == "message.parts"
