"""Each limit of `[limits]` is reached, and says what it is: a new key needs a row here."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from msgspec.structs import fields

from opencode.message.content_pb2 import FINISH_REASON_BUDGET, FINISH_REASON_ERROR, FINISH_REASON_MAX_STEPS
from opencode.message.message_pb2 import SendMessageRequest
from opencode.turn.turn_pb2 import Turn
from tests.support.clients.archives import upload
from tests.support.clients.conversation import (
    FOREVER,
    Refusal,
    ask,
    displayed,
    new_session,
    refused,
    talk,
    tool,
    turn_ended,
    watching,
)
from tests.support.clients.tool_calls import LOOK
from tests.support.clients.uploads import naming, uploaded
from tests.support.oracles.archives import golden_records
from tests.support.servers.moving import lines
from tests.support.servers.running import Client, connect, running_server
from tests.support.servers.tenants import connect_as, server_of_tenants
from turnwire.core.use_cases.moving import exports
from turnwire.domain.limits import Limits

KEYS = {field.encode_name for field in fields(Limits)}
CALLS = "\n/step\n".join(f'/tool nowhere {{"try": {number}}}' for number in range(6))
SAME_CALLS = "\n/step\n".join(["/tool nowhere {}"] * 6)


async def _long_message(client: Client) -> Refusal:
    return await refused(client.messages.SendMessage(ask("x" * 8)))


async def _more_waiting(client: Client) -> Refusal:
    session_id = (await client.messages.SendMessage(ask(FOREVER))).session_id
    for _ in range(7):
        await client.messages.SendMessage(ask("wait", session_id))
    return await refused(client.messages.SendMessage(ask("no room", session_id)))


async def _more_watchers(client: Client) -> Refusal:
    async with _watchers(client, 7):
        return await refused(client.events.WatchEvents().read())


@asynccontextmanager
async def _watchers(client: Client, count: int) -> AsyncIterator[None]:
    """Keeps some watches open."""
    if not count:
        yield
        return
    async with watching(client) as watch:
        await watch.until_kind("caught_up")
        async with _watchers(client, count - 1):
            yield


async def _more_exports(client: Client) -> Refusal:
    """A reader that stops reading holds its place: the file is far more than a connection has on its way."""
    session_id = await new_session(client)
    for number in range(4):
        file = await uploaded(client, bytes([number]) * 2**22)
        await turn_ended(client, await client.messages.SendMessage(naming(file, session_id=session_id)))
    calls = [client.transfer.ExportSessions(include_files=True) for _ in range(7)]
    for call in calls:
        await call.read()
    refusal = await refused(client.transfer.ExportSessions().read())
    for call in calls:
        call.cancel()
    return refusal


REFUSALS: dict[str, tuple[str, Callable[[Client], Awaitable[Refusal]]]] = {
    "max_message_bytes": ("MESSAGE_TOO_LARGE", _long_message),
    "max_queued_messages": ("CONCURRENCY_LIMIT", _more_waiting),
    "max_watchers": ("CONCURRENCY_LIMIT", _more_watchers),
    "max_exports": ("CONCURRENCY_LIMIT", _more_exports),
    "max_tenant_exports": ("CONCURRENCY_LIMIT", _more_exports),
}
"""Limits that are 7 here: the reason, and what goes over them."""


@dataclass(frozen=True)
class End:
    """A limit that ends a turn."""

    value: str
    request: SendMessageRequest
    finish_reason: int
    reason: str = ""
    steps: int | None = None


ENDS = {
    "max_steps": End("3", ask(CALLS), FINISH_REASON_MAX_STEPS, steps=3),
    "max_repeated_calls": End("2", ask(SAME_CALLS), FINISH_REASON_ERROR, "TOOL_CALL_REPEATED", steps=2),
    "max_turn_tokens": End("1", ask(CALLS), FINISH_REASON_BUDGET, "BUDGET_EXHAUSTED", steps=1),
    "max_session_tokens": End("1", ask(CALLS), FINISH_REASON_BUDGET, "BUDGET_EXHAUSTED", steps=1),
    "max_answer_bytes": End("100", ask("/words 5000"), FINISH_REASON_ERROR, "PROVIDER_STREAM_FAILED"),
    "max_answer_parts": End("3", ask("/reason a\nb\n" * 5), FINISH_REASON_ERROR, "PROVIDER_STREAM_FAILED"),
}
"""Limits that end a turn: their value here, what reaches it, and how the turn ends."""

ELSEWHERE = {
    "max_tools_bytes": "e2e/test_request_limits.py test_the_tools_of_a_request_have_a_limit",
    "max_open_permissions": "unit/core/tools/test_permission_requests.py"
    " test_calls_beyond_the_limit_are_refused_at_once",
    "max_answer_received_bytes": "contract/test_hostile_models.py test_a_packed_stream_counts_as_what_it_unpacks_to",
    "max_answer_seconds": "contract/test_hostile_models.py test_an_answer_has_its_time",
    "max_calls": "e2e/test_costly_calls.py test_further_calls_are_refused",
    "max_streams_per_connection": "e2e/test_costly_calls.py test_one_connection_has_a_bound_of_calls",
    "max_calls_per_address": "unit/api/admission/test_overload.py test_one_address_has_some_of_the_calls",
    "max_memory_bytes": "e2e/test_costly_calls.py test_new_work_is_refused_while_memory_is_short",
    "max_imports": "e2e/test_limits.py test_an_import_over_the_limit_is_refused",
    "client_tool_timeout_seconds": "e2e/test_limits.py test_a_client_that_does_not_answer_is_answered_for",
    "leased_tool_timeout_seconds": "unit/core/tools/test_calls.py test_leases_hold_a_call_up_for_a_bounded_time",
    "question_timeout_seconds": "unit/core/tools/test_questions.py test_a_question_expires_when_its_time_is_over",
    "flush_interval_seconds": "fault/test_killed_drafts.py test_a_long_text_survives_up_to_the_last_save",
    "max_parallel_tool_calls": "unit/core/tools/test_server_calls.py"
    " test_calls_of_the_servers_tools_run_up_to_the_limit_at_once",
    "max_running_turns": "e2e/test_queue.py test_turns_over_the_limit_wait_for_a_slot",
    "max_tool_output_bytes": "e2e/test_tool_files.py test_long_output_is_cut_for_the_model_and_kept_for_people",
    "max_turn_cost_usd": "e2e/test_budgets.py test_a_turn_ends_when_its_budget_is_used_up",
    "max_session_cost_usd": "e2e/test_budgets.py test_the_servers_limit_counts_for_all_sessions",
}
"""Limits that need a world of their own to be reached: file and test."""


def test_every_limit_has_a_row() -> None:
    """It refuses, ends a turn, or has a test of its own: one of these, and no other key has a row."""
    assert sorted([*REFUSALS, *ENDS, *ELSEWHERE]) == sorted(KEYS)


@pytest.mark.matrix
@pytest.mark.parametrize("key", REFUSALS)
async def test_a_refusal_names_its_limit(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key and value as metadata; and when to come back, where waiting helps."""
    monkeypatch.setattr(exports, "MEMORY_BYTES", 1)
    reason, exceed = REFUSALS[key]
    others = "max_tenant_exports = 9\n" if key == "max_exports" else ""
    async with running_server(tmp_path, f"[limits]\n{key} = 7\n{others}") as server, connect(server.address) as client:
        refusal = await exceed(client)
    assert refusal.reason == reason
    assert (refusal.metadata["limit"], refusal.metadata["limitValue"]) == (f"limits.{key}", "7")
    waiting_helps = reason != "MESSAGE_TOO_LARGE"
    expected = grpc.StatusCode.RESOURCE_EXHAUSTED if waiting_helps else grpc.StatusCode.INVALID_ARGUMENT
    assert (refusal.code, "RetryInfo" in refusal.details) == (expected, waiting_helps)


@pytest.mark.matrix
@pytest.mark.parametrize("key", ENDS)
async def test_a_turn_ends_at_its_limit(key: str, tmp_path: Path) -> None:
    """With the reason, after as many steps; the session takes the next message."""
    end = ENDS[key]
    async with (
        running_server(tmp_path, f"[limits]\n{key} = {end.value}\n") as server,
        connect(server.address) as client,
    ):
        accepted = await client.messages.SendMessage(end.request)
        turn: Turn = (await turn_ended(client, accepted)).turn_ended.turn
        await client.messages.SendMessage(ask("again", accepted.session_id))
    assert (turn.finish_reason, turn.failure.reason) == (end.finish_reason, end.reason)
    assert end.steps in (None, turn.steps)
    told = turn.failure.metadata
    assert end.reason != "PROVIDER_STREAM_FAILED" or (told["limit"], told["limitValue"]) == (f"limits.{key}", end.value)


async def test_a_client_that_does_not_answer_is_answered_for(tmp_path: Path) -> None:
    """The model reads an error that tells the limit."""
    toml = "[limits]\nclient_tool_timeout_seconds = 0.05"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        accepted = await talk(client, LOOK, tools=[tool("look")])
        (call,) = (await displayed(client, accepted.session_id))[1].tool_calls
    assert (call.status, call.error) == ("error", "the client did not answer within 0.05 seconds")


@pytest.mark.slow
async def test_an_import_over_the_limit_is_refused(tmp_path: Path) -> None:
    """All callers share the limit; as soon as one import ends, there is room."""
    archive = lines([one for number in range(40) for one in golden_records(str(number))])
    async with (
        server_of_tenants(tmp_path, "[limits]\nmax_imports = 1\n") as server,
        connect_as(server.address, "acme") as first,
        connect_as(server.address, "other") as second,
    ):
        mine, theirs = await upload(first, archive), await upload(second, archive)
        running = first.transfer.ImportSessions(upload_id=mine)
        await running.read()
        refusal = await refused(second.transfer.ImportSessions(upload_id=theirs).read())
        while await running.read() is not grpc.aio.EOF:
            pass
        answers = [one async for one in second.transfer.ImportSessions(upload_id=theirs)]
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT")
    assert refusal.metadata == {"limit": "limits.max_imports", "limitValue": "1"}
    assert answers[-1].session_count == 40
