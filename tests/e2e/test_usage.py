"""What tenants have used, as they are shown it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from opencode.usage.usage_pb2 import (
    USAGE_DIMENSION_DAY,
    USAGE_DIMENSION_MODEL,
    USAGE_DIMENSION_SESSION,
    USAGE_DIMENSION_SUBJECT,
    QueryUsageRequest,
    UsageRow,
)
from tests.support.clients.conversation import ask, model, new_session, refused, talk, tool, turn_ended, watching
from tests.support.models.scripts import Say, Tokens, answer, error
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import Client
from tests.support.servers.tenants import connect_as, server_of_tenants
from turnwire import app
from turnwire.domain.accounts import QuotaName
from turnwire.domain.principal import Role

PRICED, UNPRICED = model("m", "mine"), model("n", "mine")


def says_yes(_: RecordedRequest) -> ScriptedReply:
    """Answers with a hundred tokens."""
    return answer("openai_chat", Say("Yes."), tokens=Tokens(60, 40))


def toml_of(provider: ProviderServer) -> str:
    """Returns the configuration of a provider with two models."""
    return f"""
[providers.mine]
kind = 'openai_chat'
base_url = '{provider.base_url}'
models = ["m", "n"]
[models."mine/m"]
input_usd_per_million = "0.000003"
output_usd_per_million = "0.000003"
"""


@contextlib.asynccontextmanager
async def server_address(folder: Path) -> AsyncIterator[str]:
    """Runs a server with two models; a token of one costs 3 pico-USD, the price of the other is unknown."""
    async with ProviderServer(says_yes) as provider, server_of_tenants(folder, toml_of(provider)) as server:
        yield server.address


async def rows_of(client: Client, *group_by: int, **fields: object) -> list[UsageRow]:
    """Returns the rows of a query that fit into one page."""
    answered = await client.usage.QueryUsage(group_by=group_by, **fields)  # type: ignore[arg-type]
    assert answered.next_page_token == ""
    return list(answered.rows)


async def test_usage_is_summed_exactly_for_its_tenant_alone(tmp_path: Path) -> None:
    """By model, session and caller; what has no price is counted, and what was deleted stays."""
    async with (
        server_address(tmp_path) as address,
        connect_as(address, "acme", "ann") as ann,
        connect_as(address, "acme", "bob") as bob,
        connect_as(address, "other", "eve") as eve,
    ):
        first = await talk(ann, "hi", model=PRICED)
        await talk(ann, "and", first.session_id, model=UNPRICED)
        second = await talk(bob, "hi", model=PRICED)
        await talk(eve, "hi", model=PRICED)
        await ann.sessions.DeleteSession(session_id=first.session_id)
        [total] = await rows_of(ann)
        assert (total.usage.input_tokens, total.usage.output_tokens, total.cost_pico_usd) == (180, 120, 600)
        assert (total.steps, total.steps_without_price, total.turns) == (3, 1, 3)
        by_model = await rows_of(bob, USAGE_DIMENSION_MODEL)
        assert [(row.model_id, row.HasField("cost_pico_usd"), row.steps) for row in by_model] == [
            ("m", True, 2),
            ("n", False, 1),
        ]
        by_session = {row.session_id: row.cost_pico_usd for row in await rows_of(ann, USAGE_DIMENSION_SESSION)}
        assert by_session == {first.session_id: 300, second.session_id: 300}
        by_subject = [(row.subject, row.turns) for row in await rows_of(ann, USAGE_DIMENSION_SUBJECT)]
        assert by_subject == [("ann", 2), ("bob", 1)]
        assert [row.cost_pico_usd for row in await rows_of(eve)] == [300]


@pytest.mark.slow
async def test_usage_comes_in_pages(tmp_path: Path) -> None:
    """Each row once, in the order of its names; usage that comes meanwhile does not disturb them."""
    async with server_address(tmp_path) as address, connect_as(address, "acme", "ann") as ann:
        sessions = [(await talk(ann, "hi", model=PRICED)).session_id for _ in range(5)]
        found, token = list[str](), ""
        while not found or token:
            request = QueryUsageRequest(group_by=[USAGE_DIMENSION_SESSION], page_size=2, page_token=token)
            page = await ann.usage.QueryUsage(request)
            found += [row.session_id for row in page.rows]
            token = page.next_page_token
            await talk(ann, "more", sessions[0], model=PRICED)
        assert found == sorted(sessions)


@pytest.mark.slow
async def test_days_are_those_of_the_time_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is not a whole number of hours away, and where a day has 23 hours."""
    present = datetime(2026, 3, 28, 18, 14, tzinfo=UTC)
    monkeypatch.setattr(app, "utc_now", lambda: present)
    async with server_address(tmp_path) as address, connect_as(address, "acme", "ann") as ann:
        for minutes in (1, 31 * 60 + 45, 60):  # 18:15 is midnight in Nepal; 2026-03-29 has 23 hours in Berlin
            await talk(ann, "hi", model=PRICED)
            present += timedelta(minutes=minutes)

        async def days(zone: str) -> list[tuple[datetime, int]]:
            rows = await rows_of(ann, USAGE_DIMENSION_DAY, time_zone=zone)
            return [(row.day_start_time.ToDatetime(), row.turns) for row in rows]

        assert await days("") == [(datetime(2026, 3, 28), 2), (datetime(2026, 3, 30), 1)]
        assert await days("Asia/Kathmandu") == [
            (datetime(2026, 3, 27, 18, 15), 1),
            (datetime(2026, 3, 28, 18, 15), 1),
            (datetime(2026, 3, 29, 18, 15), 1),
        ]
        assert await days("Europe/Berlin") == [(datetime(2026, 3, 27, 23), 2), (datetime(2026, 3, 29, 22), 1)]


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"time_zone": "../../etc/passwd"}, "time_zone"),
        ({"time_zone": "Europe"}, "time_zone"),
        ({"time_zone": "x" * 10_000}, "time_zone"),
        ({"group_by": [99]}, "group_by[0]"),
        ({"group_by": [0]}, "group_by[0]"),
        ({"start_time": Timestamp(seconds=2_000_000_000)}, "end_time"),
        ({"start_time": Timestamp(seconds=10**15)}, "start_time"),
        ({"end_time": Timestamp(seconds=-1)}, "end_time"),
        ({"start_time": Timestamp(seconds=10**9), "end_time": Timestamp(seconds=10**9 + 367 * 86_400)}, "end_time"),
        ({"page_size": 1001}, "page_size"),
        ({"page_token": "x"}, "page_token"),
    ],
)
async def test_what_is_wrong_is_named(fields: dict[str, object], wrong: str, tmp_path: Path) -> None:
    """As a field of the request."""
    async with server_of_tenants(tmp_path) as server, connect_as(server.address, "acme", "ann") as ann:
        refusal = await refused(ann.usage.QueryUsage(**fields))  # type: ignore[arg-type]
    assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [wrong])


async def test_only_an_admin_sees_another_tenant(tmp_path: Path) -> None:
    """Whether or not there is one of that name; readers see their own."""
    async with (
        server_address(tmp_path) as address,
        connect_as(address, "acme", "ann") as ann,
        connect_as(address, "acme", "rod", Role.READER) as reader,
        connect_as(address, "other", "root", Role.ADMIN) as admin,
    ):
        await talk(ann, "hi", model=PRICED)
        assert [row.steps for row in await rows_of(reader, tenant="acme")] == [1]
        assert len((await reader.usage.ListQuotas()).quotas) == len(QuotaName)
        assert [row.steps for row in await rows_of(admin, tenant="acme")] == [1]
        assert await rows_of(admin) == []
        for tenant in ("other", "nobody"):
            refusal = await refused(ann.usage.QueryUsage(tenant=tenant))
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")


async def test_quotas_are_listed_without_limits_too(tmp_path: Path) -> None:
    """All of them, with what is used."""
    async with server_of_tenants(tmp_path) as server, connect_as(server.address, "acme", "ann") as ann:
        await ann.messages.SendMessage(ask("/tool look {}", tools=[tool("look")]))
        listed = {quota.name: quota for quota in (await ann.usage.ListQuotas()).quotas}
    assert list(listed) == sorted(QuotaName)
    assert not any(quota.limit for quota in listed.values())
    assert (listed["sessions"].used, listed["running_turns"].used) == (1, 1)
    assert {name for name, quota in listed.items() if quota.HasField("reset_time")} == {
        name for name in QuotaName if "_per_day" in name or "_per_month" in name
    }


@contextlib.asynccontextmanager
async def client_of(folder: Path, reply: Callable[[RecordedRequest], ScriptedReply]) -> AsyncIterator[Client]:
    """Yields a client of a server whose provider answers so."""
    async with (
        ProviderServer(reply) as provider,
        server_of_tenants(folder, toml_of(provider)) as server,
        connect_as(server.address, "acme") as client,
    ):
        yield client


def talkative(ending: str) -> Callable[[RecordedRequest], ScriptedReply]:
    """Returns a provider that writes 400 letters and then ends in some way, without having reported its usage."""
    said = answer("openai_chat", Say("word" * 100), tokens=Tokens(60, 40))
    without_usage = tuple(chunk for chunk in said.chunks if b'"usage"' not in chunk)

    def reply(_: RecordedRequest) -> ScriptedReply:
        if ending == "complete":
            return ScriptedReply(without_usage)
        if ending == "cut":
            return answer("openai_chat", Say("word" * 100), cut=True)
        return ScriptedReply((*without_usage[:-2], asyncio.Event()))

    return reply


@pytest.mark.matrix
@pytest.mark.parametrize("ending", ["complete", "cut", "aborted"])
async def test_what_no_provider_reports_is_estimated(ending: str, tmp_path: Path) -> None:
    """Prompt and text count in usage and quotas, at the model's price; the message has no usage."""
    async with client_of(tmp_path, talkative(ending)) as acme:
        session_id = await new_session(acme)
        async with watching(acme, session_id) as watch:
            accepted = await acme.messages.SendMessage(ask("hi", session_id, model=PRICED))
            if ending == "aborted":
                await watch.until(lambda event: event.part_delta.end_offset == 400)
                await acme.messages.AbortSession(session_id=session_id)
        ended = (await turn_ended(acme, accepted)).turn_ended.turn
        [row] = await rows_of(acme)
        quotas = {one.name: one.used for one in (await acme.usage.ListQuotas()).quotas}
    assert (row.steps, row.estimated_steps, row.steps_without_price) == (1, 1, 0)
    assert 0 < row.usage.input_tokens < 100
    assert row.usage.output_tokens == 100
    assert row.cost_pico_usd == 3 * (row.usage.input_tokens + 100) == quotas["cost_pico_usd_per_day"]
    assert quotas["tokens_per_day"] == row.usage.input_tokens + 100
    assert not ended.HasField("usage")


async def test_a_request_that_no_provider_took_costs_nothing(tmp_path: Path) -> None:
    """It failed before an answer."""
    async with client_of(tmp_path, lambda _: error(400, "no")) as acme:
        await turn_ended(acme, await acme.messages.SendMessage(ask("hi", model=PRICED)))
        [row] = await rows_of(acme)
    assert (row.steps, row.estimated_steps, row.HasField("usage"), row.HasField("cost_pico_usd")) == (
        1,
        0,
        False,
        False,
    )


async def test_a_prompt_counts_when_the_answer_is_aborted_before_it_begins(tmp_path: Path) -> None:
    """The provider had it."""
    asked = asyncio.Event()

    def says_nothing(_: RecordedRequest) -> ScriptedReply:
        asked.set()
        return ScriptedReply((asyncio.Event(),))

    async with client_of(tmp_path, says_nothing) as acme:
        accepted = await acme.messages.SendMessage(ask("hi", model=PRICED))
        await asked.wait()
        await acme.messages.AbortSession(session_id=accepted.session_id)
        [row] = await rows_of(acme)
    assert (row.estimated_steps, row.usage.output_tokens) == (1, 0)
    assert row.usage.input_tokens > 0
