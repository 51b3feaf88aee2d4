"""What tenants may have and use: each quota is reached, refuses with nothing stored, and is freed again."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from opencode.message.content_pb2 import FINISH_REASON_BUDGET, FINISH_REASON_STOP, MESSAGE_TYPE_USER
from opencode.message.message_pb2 import DISPOSITION_DUPLICATE, AppendMessageRequest
from opencode.session.session_pb2 import CreateSessionRequest, SessionSettings
from opencode.tool.tool_pb2 import ToolDefinition
from opencode.turn.turn_pb2 import BUSY_POLICY_REJECT, TurnSettings
from opencode.turn.turn_service_pb2 import RegenerateMessageRequest
from opencode.usage.usage_pb2 import Quota
from tests.support.clients.conversation import (
    FOREVER,
    Refusal,
    ask,
    file,
    messages_of,
    model,
    new_session,
    refused,
    talk,
    text,
    turn_ended,
    watching,
    words_of,
)
from tests.support.models.scripts import Say, Tokens, answer
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import Client
from tests.support.servers.tenants import connect_as, server_of_tenants
from turnwire import app

MODEL = model("m", "mine")


@contextlib.asynccontextmanager
async def tenants(folder: Path, quotas: str, more: str = "") -> AsyncIterator[tuple[Client, Client]]:
    """Yields a client of a tenant with quotas, and one of a tenant without any."""
    toml = f"[tenants.acme.quotas]\n{quotas}\n{more}"
    async with (
        server_of_tenants(folder, toml) as server,
        connect_as(server.address, "acme", "ann") as acme,
        connect_as(server.address, "free", "bob") as free,
    ):
        yield acme, free


async def quota(client: Client, name: str) -> Quota:
    """Returns a quota of the client's tenant."""
    listed = (await client.usage.ListQuotas()).quotas
    [found] = [quota for quota in listed if quota.name == name]
    return found


def check(refusal: Refusal, name: str, limit: int, used: int, *, retry: bool = False) -> None:
    """Checks the error of a quota."""
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
    assert refusal.metadata == {"quota": name, "limit": str(limit), "used": str(used)}
    assert refusal.details == ["ErrorInfo", "QuotaFailure", *(["RetryInfo"] if retry else [])]


async def sessions_of(client: Client) -> int:
    """Returns how many sessions a tenant has."""
    return len((await client.sessions.ListSessions()).sessions)


async def test_sessions_are_refused_and_given_back(tmp_path: Path) -> None:
    """However they are made, and however many at once; a retry of one that was made still gets it."""
    async with tenants(tmp_path, "max_sessions = 2") as (acme, free):
        first = CreateSessionRequest(request_id="00000000-0000-4000-8000-000000000001")
        created = await acme.sessions.CreateSession(first)
        calls = [acme.messages.SendMessage(ask("hi")), *(acme.sessions.CreateSession(),) * 1]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(isinstance(outcome, grpc.aio.AioRpcError) for outcome in outcomes) == [False, True]
        check(await refused(acme.sessions.CreateSession()), "sessions", 2, 2)
        check(await refused(acme.messages.SendMessage(ask("hi"))), "sessions", 2, 2)
        assert (await acme.sessions.CreateSession(first)).id == created.id
        assert (await sessions_of(acme), (await quota(acme, "sessions")).used) == (2, 2)
        for _ in range(3):
            await new_session(free)
        await acme.sessions.DeleteSession(session_id=created.id)
        await new_session(acme)
        assert await sessions_of(acme) == 2


async def test_running_turns_are_refused_and_given_back(tmp_path: Path) -> None:
    """A message behind a running turn does not start one; a neighbour's turns do not count."""
    async with tenants(tmp_path, "max_running_turns = 1") as (acme, free):
        busy = await acme.messages.SendMessage(ask("/sleep 3600"))
        named = ask("hi", request_id="00000000-0000-4000-8000-000000000002")
        check(await refused(acme.messages.SendMessage(named)), "running_turns", 1, 1, retry=True)
        assert await sessions_of(acme) == 1
        await acme.messages.SendMessage(ask("waits", busy.session_id))
        assert (await quota(acme, "running_turns")).used == 1
        for _ in range(2):
            await free.messages.SendMessage(ask("/sleep 3600"))
        await acme.messages.AbortSession(session_id=busy.session_id)
        accepted = await acme.messages.SendMessage(named)
        await turn_ended(acme, accepted)
        await acme.messages.SendMessage(ask("/sleep 3600", accepted.session_id))
        assert (await acme.messages.SendMessage(named)).disposition == DISPOSITION_DUPLICATE


async def test_waiting_messages_are_counted_over_all_sessions(tmp_path: Path) -> None:
    """They make room when they are dropped, or their turns begin."""
    async with tenants(tmp_path, "max_waiting_messages = 2") as (acme, free):
        one, two = [await acme.messages.SendMessage(ask("/sleep 3600")) for _ in range(2)]
        sends = [acme.messages.SendMessage(ask("waits", one.session_id)) for _ in range(5)]
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert sum(isinstance(outcome, grpc.aio.AioRpcError) for outcome in outcomes) == 3
        check(await refused(acme.messages.SendMessage(ask("x", two.session_id))), "waiting_messages", 2, 2, retry=True)
        rejected = ask("x", two.session_id, busy_policy=BUSY_POLICY_REJECT)
        assert (await refused(acme.messages.SendMessage(rejected))).reason == "TURN_IN_PROGRESS"
        other = await free.messages.SendMessage(ask("/sleep 3600"))
        for _ in range(3):
            await free.messages.SendMessage(ask("waits", other.session_id))
        await acme.messages.AbortSession(session_id=one.session_id)
        await acme.messages.SendMessage(ask("waits", two.session_id))
        assert (await quota(acme, "waiting_messages")).used == 1


async def test_watchers_are_refused_and_given_back(tmp_path: Path) -> None:
    """Streams of one session and of all count; one that ends makes room."""
    async with tenants(tmp_path, "max_watchers = 1") as (acme, free):
        session_id = await new_session(acme)
        async with watching(acme, session_id) as watch:
            await watch.until_kind("caught_up")
            async with watching(free) as other:
                await other.until_kind("caught_up")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async with watching(acme) as another:
                    await another.until_kind("caught_up")
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await quota(acme, "watchers")).used == 1
        while (await quota(acme, "watchers")).used:
            await asyncio.sleep(0)
        async with watching(acme) as again:
            await again.until_kind("caught_up")


async def test_requests_a_second_are_limited_for_one_tenant(tmp_path: Path) -> None:
    """The refusal says when the next one is admitted; a neighbour notices nothing."""
    async with tenants(tmp_path, "max_requests_per_second = 1\nmax_request_burst = 3") as (acme, free):
        listing = [acme.sessions.ListSessions() for _ in range(10)]
        outcomes = await asyncio.gather(*listing, return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, grpc.aio.AioRpcError)]
        assert 6 <= len(failed) <= 7
        assert {error.code() for error in failed} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        for _ in range(10):
            await sessions_of(free)


def append(session_id: str, *parts: Any, **fields: Any) -> AppendMessageRequest:
    """Returns the request that stores a message without a turn."""
    return AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=parts, **fields)


def metadata(length: int) -> str:
    """Returns metadata of about this length."""
    return json.dumps({"a": "y" * length})


async def test_stored_bytes_are_refused_and_given_back(tmp_path: Path) -> None:
    """A file that would not fit is not stored; deleting makes room. Smaller messages still fit."""
    async with tenants(tmp_path, "max_stored_bytes = 30000") as (acme, free):
        session_id, room = await new_session(acme), await new_session(free)
        large = file(data=b"x" * 25_000, filename="large.txt", mime="text/plain")
        named = append(session_id, large, request_id="00000000-0000-4000-8000-000000000003")
        stored = await acme.messages.AppendMessage(named)
        used = (await quota(acme, "stored_bytes")).used
        assert 25_000 < used < 28_000
        long_tool = ToolDefinition(name="t", description="y" * 8000)
        long_prompt = SessionSettings(system="y" * 8000)
        for call in (
            acme.turns.StartTurn(
                session_id=session_id, user_message_id=stored.message_id, settings=TurnSettings(system="y" * 8000)
            ),
            acme.messages.AppendMessage(append(session_id, text("y" * 5000))),
            acme.messages.AppendMessage(append(session_id, text("y"), metadata_json=metadata(5000))),
            acme.messages.SendMessage(ask("y" * 5000, session_id)),
            acme.messages.SendMessage(ask("y", session_id, system="y" * 8000)),
            acme.messages.SendMessage(ask("y", session_id, tools=[long_tool])),
            acme.sessions.CreateSession(settings=long_prompt),
            acme.sessions.UpdateSession(session_id=session_id, settings=long_prompt),
        ):
            check(await refused(call), "stored_bytes", 30_000, used)
        assert (await quota(acme, "stored_bytes")).used == used
        assert len(await messages_of(acme, session_id)) == 1
        assert (await acme.messages.AppendMessage(named)).message_id == stored.message_id
        await acme.messages.AppendMessage(append(session_id, text("small")))
        for _ in range(2):
            await free.messages.AppendMessage(append(room, text("y" * 20_000)))
        await acme.sessions.DeleteSession(session_id=session_id)
        assert (await quota(acme, "stored_bytes")).used == 0
        await talk(acme, "y" * 4000)


def used_bytes(database: Path) -> int:
    """Returns the bytes of the pages that are not free."""
    with contextlib.closing(sqlite3.connect(database)) as db:
        pages, free, size = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


@pytest.mark.slow
async def test_stored_bytes_bound_the_file(tmp_path: Path) -> None:
    """Messages end at the quota, and the file is then less than three times as long."""
    async with tenants(tmp_path, "max_stored_bytes = 2000000") as (acme, _):
        session_id = await new_session(acme)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            for _ in range(40):
                await acme.messages.AppendMessage(append(session_id, text("y"), metadata_json=metadata(60_000)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert used_bytes(tmp_path / "turnwire.db") < 3 * 2_000_000


@pytest.mark.slow
async def test_messages_that_are_taken_back_leave_little(tmp_path: Path) -> None:
    """A waiting message that is dropped counts no longer: the log refers to it, and does not repeat it."""
    async with tenants(tmp_path, "max_stored_bytes = 2000000") as (acme, _):
        session_id = await new_session(acme)
        for _ in range(40):
            await acme.messages.SendMessage(ask("/sleep 3600", session_id))
            await acme.messages.SendMessage(ask("y" * 60_000, session_id))
            await acme.messages.AbortSession(session_id=session_id)
        assert (await quota(acme, "stored_bytes")).used < 500_000
        assert used_bytes(tmp_path / "turnwire.db") < 3 * 2_000_000


def says_yes(_: RecordedRequest) -> ScriptedReply:
    """Answers with a hundred tokens."""
    return answer("openai_chat", Say("Yes."), tokens=Tokens(60, 40))


@contextlib.asynccontextmanager
async def paid_tenants(folder: Path, quotas: str, usd: str = "1") -> AsyncIterator[tuple[Client, Client]]:
    """Yields clients as `tenants` does; a million tokens of the model cost some dollars."""
    async with ProviderServer(says_yes) as provider:
        more = f"""
[providers.mine]
kind = 'openai_chat'
base_url = '{provider.base_url}'
[models."mine/m"]
input_usd_per_million = "{usd}"
output_usd_per_million = "{usd}"
"""
        async with tenants(folder, quotas, more) as clients:
            yield clients


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quotas", "name", "limit", "used"),
    [
        ("max_tokens_per_day = 150", "tokens_per_day", 150, 200),
        ("max_tokens_per_month = 200", "tokens_per_month", 200, 200),
        ('max_cost_usd_per_day = "0.0000000002"', "cost_pico_usd_per_day", 200, 200),
        ('max_cost_usd_per_month = "0.000000000101"', "cost_pico_usd_per_month", 101, 200),
    ],
)
async def test_tokens_and_money_run_out(quotas: str, name: str, limit: int, used: int, tmp_path: Path) -> None:
    """To the trillionth of a dollar. The step that goes over the quota is the last one."""
    async with paid_tenants(tmp_path, quotas, "0.000001") as (acme, free):
        for _ in range(2):
            accepted = await talk(acme, "hi", model=MODEL)
            assert (await turn_ended(acme, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
        check(await refused(acme.messages.SendMessage(ask("hi", model=MODEL))), name, limit, used, retry=True)
        assert await sessions_of(acme) == 2
        state = await quota(acme, name)
        assert (state.limit, state.used) == (limit, used)
        assert datetime.now(UTC) < state.reset_time.ToDatetime(UTC) <= datetime.now(UTC) + timedelta(days=32)
        for _ in range(3):
            await talk(free, "hi", model=MODEL)


async def test_a_waiting_turn_ends_when_the_tenant_has_no_tokens_left(tmp_path: Path) -> None:
    """Without asking the model; its failure names the quota."""
    speaks = asyncio.Event()

    def reply(_: RecordedRequest) -> ScriptedReply:
        said = answer("openai_chat", Say("Yes."), tokens=Tokens(60, 40))
        return ScriptedReply((speaks, *said.chunks))

    async with ProviderServer(reply) as provider:
        more = f"[providers.mine]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\nmodels = ['m']"
        async with tenants(tmp_path, "max_tokens_per_day = 100", more) as (acme, _):
            first = await acme.messages.SendMessage(ask("one", model=MODEL))
            second = await acme.messages.SendMessage(ask("two", first.session_id, model=MODEL))
            speaks.set()
            assert (await turn_ended(acme, first)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
            ended = (await turn_ended(acme, second)).turn_ended.turn
            told = await messages_of(acme, first.session_id)
    assert (ended.finish_reason, ended.steps, len(provider.requests)) == (FINISH_REASON_BUDGET, 0, 1)
    assert ended.failure.reason == "QUOTA_EXCEEDED"
    assert dict(ended.failure.metadata) == {"quota": "tokens_per_day", "limit": "100", "used": "100"}
    assert ended.failure.HasField("retry_after")
    assert "Yes." in [words_of(message) for message in told]


@pytest.mark.slow
async def test_a_new_day_brings_new_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At midnight UTC; what was used stays in the usage, and in the month."""
    present = datetime(2026, 3, 30, 23, 59, 59, tzinfo=UTC)
    monkeypatch.setattr(app, "utc_now", lambda: present)
    quotas = "max_tokens_per_day = 100\nmax_tokens_per_month = 200"
    async with paid_tenants(tmp_path, quotas) as (acme, _):
        await talk(acme, "hi", model=MODEL)
        assert (await refused(acme.messages.SendMessage(ask("hi", model=MODEL)))).metadata["quota"] == "tokens_per_day"
        assert (await quota(acme, "tokens_per_day")).reset_time.ToDatetime(UTC) == datetime(2026, 3, 31, tzinfo=UTC)
        present += timedelta(seconds=1)
        assert (await quota(acme, "tokens_per_day")).used == 0
        await talk(acme, "hi", model=MODEL)
        assert (await refused(acme.messages.SendMessage(ask("x", model=MODEL)))).metadata["quota"] == "tokens_per_month"
        present += timedelta(days=1)
        assert ((await quota(acme, "tokens_per_month")).used, (await quota(acme, "tokens_per_day")).used) == (0, 0)
        await talk(acme, "hi", model=MODEL)


@pytest.mark.slow
async def test_what_is_off_the_path_is_stored(tmp_path: Path) -> None:
    """It counts as stored bytes; a new answer is refused when nothing more may be stored, or wait."""
    async with tenants(tmp_path, "max_stored_bytes = 60000\nmax_waiting_messages = 1") as (acme, _):
        session_id = (await talk(acme, "x" * 3_000)).session_id
        question = (await messages_of(acme, session_id))[0].message_id
        request = RegenerateMessageRequest(session_id=session_id, message_id=question)
        before = (await quota(acme, "stored_bytes")).used
        made = await acme.turns.RegenerateMessage(request)
        async with watching(acme, session_id, resume_token=made.resume_token) as watch:
            await watch.until_turn_ended(made.turn.turn_id)
        assert (await quota(acme, "stored_bytes")).used > before + 3_000
        await acme.messages.SendMessage(ask(FOREVER, session_id))
        await acme.turns.RegenerateMessage(request)
        found = await refused(acme.turns.RegenerateMessage(request))
        assert (found.code, found.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
        await acme.messages.AbortSession(session_id=session_id)
        request.new_parts.append(text("x" * 60_000))
        assert (await refused(acme.turns.RegenerateMessage(request))).reason == "QUOTA_EXCEEDED"
