"""What an operator sees of a real server: its metrics by HTTP, its log lines, and both when a provider fails."""

import asyncio
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from tests.support.clients.conversation import ask, refused, tool, turn_ended, watching
from tests.support.servers.provider import ProviderServer, ScriptedReply
from tests.support.servers.running import connect, running_server
from turnwire.app import Server

METRICS = '[metrics]\nlisten = "127.0.0.1:0"\n'
QUICK = "[retries]\nfirst_delay_seconds = 0.001\nmax_retries = 1\n"
HELLO = (
    b'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":60}}}\n\n',
    b"data: [DONE]\n\n",
)
JSON = {"content-type": "application/json"}
DOWN = ScriptedReply((b'{"error":{"message":"overloaded: tell me a secret"}}',), 503, JSON)


class Metrics:
    """The metrics of a server as Prometheus reads them."""

    def __init__(self, server: Server) -> None:
        self._url = f"http://{server.metrics_address}/metrics"
        self.content_type = ""
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}

    def value(self, name: str, **labels: str) -> float:
        """Returns the value of a series in the last scrape; 0 when there is none."""
        return self.samples.get((f"turnwire_{name}", frozenset(labels.items())), 0.0)

    async def scrape(self) -> None:
        """Reads them."""
        text = await asyncio.to_thread(self._read)
        families = text_string_to_metric_families(text)
        self.samples = {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}

    def _read(self) -> str:
        with urllib.request.urlopen(self._url, timeout=200) as answer:
            self.content_type = answer.headers["content-type"]
            return str(answer.read().decode())

    async def until(self, true: Callable[[], bool]) -> None:
        """Scrapes until something is so."""
        await self.scrape()
        while not true():
            await self.scrape()


async def test_an_outage_of_a_provider_is_seen(tmp_path: Path) -> None:
    """Attempts, failures by reason, retries, the fallback's answer with its tokens and its exact cost."""
    async with ProviderServer() as provider:
        toml = (
            f"{METRICS}{QUICK}[defaults]\nmodel = 'shaky/m'\nfallback_models = ['firm/m']\n"
            f"[providers.shaky]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n"
            f"[providers.firm]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n"
            "[models.'firm/m']\ninput_usd_per_million = '2'\noutput_usd_per_million = '10'\n"
            "cache_read_usd_per_million = '0.5'\n"
        )
        for reply in (DOWN, DOWN, ScriptedReply(HELLO)):
            provider.enqueue(reply)
        with capture_logs() as lines:
            async with running_server(tmp_path, toml) as server, connect(server.address) as client:
                metrics = Metrics(server)
                await turn_ended(client, await client.messages.SendMessage(ask("hi")))
                await metrics.until(lambda: metrics.value("turns_ended_total", finish_reason="stop") == 1)
                address = provider.base_url.removeprefix("http://").removesuffix("/v1")
    shaky, firm = ({"provider": name, "model": "m"} for name in ("shaky", "firm"))
    assert metrics.value("model_calls_total", **shaky) == 2
    assert metrics.value("model_call_failures_total", **shaky, reason="PROVIDER_UNAVAILABLE") == 2
    assert metrics.value("model_call_retries_total", **shaky) == 1
    assert metrics.value("model_call_fallbacks_total", **shaky) == 1
    assert metrics.value("model_call_duration_seconds_count", **shaky) == 2
    assert metrics.value("model_call_first_output_seconds_count", **firm) == 1
    assert metrics.value("steps_total", **firm) == 1
    kinds = ("input", "cache_read", "output")
    assert [metrics.value("tokens_total", **firm, kind=kind) for kind in kinds] == [40, 60, 7]
    assert metrics.value("cost_usd_total", **firm) == 0.00018
    assert (metrics.value("turns_started_total"), metrics.value("turn_duration_seconds_count")) == (1, 1)

    failed = [line for line in lines if line["event"] == "model_call_failed"]
    facts = ("provider", "model", "address", "reason", "status", "attempt", "retried", "fallback")
    assert [[line[name] for name in facts] for line in failed] == [
        ["shaky", "m", address, "PROVIDER_UNAVAILABLE", "503", 1, True, ""],
        ["shaky", "m", address, "PROVIDER_UNAVAILABLE", "503", 2, False, "firm/m"],
    ]
    [turn] = [line for line in lines if line["event"] == "turn"]
    facts = ("provider", "finish_reason", "steps", "input_tokens", "cached_tokens", "output_tokens", "cost_usd")
    assert [turn[name] for name in facts] == ["shaky", "stop", 1, 100, 60, 7, "0.00018"]
    assert turn["first_output_milliseconds"] <= turn["milliseconds"]
    assert "secret" not in str(lines)


@pytest.mark.slow
async def test_every_call_and_what_runs_is_seen(tmp_path: Path) -> None:
    """While it runs and when it has ended, failed ones by their code."""
    async with running_server(tmp_path, METRICS) as server, connect(server.address) as client:
        metrics = Metrics(server)
        accepted = await client.messages.SendMessage(ask("/sleep 60"))
        await client.messages.SendMessage(ask("next", session_id=accepted.session_id))
        await refused(client.messages.AbortSession(session_id="ses_none"))
        async with watching(client, accepted.session_id) as watch:
            await watch.until_kind("caught_up")
            await metrics.until(lambda: metrics.value("watchers") == 1)
            assert metrics.value("rpc_in_flight", method="opencode.event.EventService.WatchEvents") == 1
        assert (metrics.value("turns_running"), metrics.value("messages_queued")) == (1, 1)
        assert metrics.value("storage_wal_bytes") > 0
        assert metrics.value("storage_commits_total", result="stored") >= 2
        service = "opencode.message.MessageService"
        assert metrics.value("rpc_requests_total", method=f"{service}.SendMessage", code="OK") == 2
        assert metrics.value("rpc_requests_total", method=f"{service}.AbortSession", code="NOT_FOUND") == 1
        await metrics.until(lambda: metrics.value("watchers") == 0)
        await client.messages.AbortSession(session_id=accepted.session_id)
        await metrics.until(lambda: metrics.value("turns_ended_total", finish_reason="aborted") == 2)
        await metrics.until(lambda: metrics.value("turns_running") == 0 == metrics.value("messages_queued"))
        await metrics.until(lambda: metrics.value("event_loop_delay_seconds_count") > 0)


async def test_tenants_are_labels_if_chosen(tmp_path: Path) -> None:
    """The tenant of a server without authentication has its name too."""
    async with running_server(tmp_path, f"{METRICS}by_tenant = true\n") as server, connect(server.address) as client:
        metrics = Metrics(server)
        await turn_ended(client, await client.messages.SendMessage(ask("hi")))
        await metrics.until(lambda: metrics.value("turns_ended_total", finish_reason="stop", tenant="default") == 1)
        assert metrics.value("steps_total", provider="offline", model="echo", tenant="default") == 1


async def test_the_metrics_end_with_the_server(tmp_path: Path) -> None:
    """They are the last that closes; a taken address stops the start before anything is opened."""
    async with running_server(tmp_path, METRICS) as server:
        metrics = Metrics(server)
        await metrics.scrape()
        assert metrics.content_type == "text/plain; version=0.0.4; charset=utf-8"
        (tmp_path / "second").mkdir()
        taken = METRICS.replace("127.0.0.1:0", server.metrics_address)
        with pytest.raises(OSError, match=f"cannot serve metrics on {server.metrics_address}"):
            async with running_server(tmp_path / "second", taken):
                pass
        assert not (tmp_path / "second" / "turnwire.db").exists()
    with pytest.raises(OSError):
        await metrics.scrape()


async def test_a_server_has_no_metrics_unless_asked(tmp_path: Path) -> None:
    """No port is opened."""
    async with running_server(tmp_path) as server:
        assert server.metrics_address == ""


@pytest.mark.slow
async def test_a_server_whose_loop_is_held_says_where(tmp_path: Path) -> None:
    """Everybody else waits meanwhile; the line comes while it is held."""
    with capture_logs() as lines:
        async with running_server(tmp_path, "[log]\nstuck_loop_seconds = 0.05\n"):
            while not any("_hold_until" in line.get("where", "") for line in list(lines)):
                # not for ever: a busy machine may have held the loop elsewhere, and that is told once
                told, until = len(lines), time.monotonic() + 5
                _hold_until(lambda told=told, until=until: len(lines) > told or time.monotonic() >= until)
                await asyncio.sleep(0.1)  # the loop's watch begins anew
    line = next(line for line in lines if "_hold_until" in line.get("where", ""))
    assert (line["event"], line["log_level"]) == ("event_loop_stuck", "warning")


def _hold_until(true: Callable[[], bool]) -> None:
    """Does not return to the loop until another thread has done something; a test's time limit ends it."""
    while not true():
        pass


async def test_waiting_for_a_person_is_seen(tmp_path: Path) -> None:
    """A turn that waits for somebody costs nothing and may wait for ever."""
    toml = f"{METRICS}[permissions]\n'*' = 'ask'\n"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        metrics = Metrics(server)
        await client.messages.SendMessage(ask("/tool look {}", tools=[tool("look")]))
        await metrics.until(lambda: metrics.value("turns_waiting") == 1)
        assert metrics.value("turns_running") == 1
        assert server.readings().waiting == 1


async def test_metrics_that_others_can_reach_are_warned_of(tmp_path: Path) -> None:
    """Each start says so, because the setting was made long ago."""
    toml = '[metrics]\nlisten = "0.0.0.0:0"\ninsecure = true\n'
    with capture_logs() as lines:
        async with running_server(tmp_path, toml) as server:
            address = server.metrics_address
    [warned] = [line for line in lines if line["event"] == "metrics_open_to_other_machines"]
    assert (warned["address"], warned["log_level"]) == (address, "warning")
