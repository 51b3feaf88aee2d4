"""`turnwire usage` and `turnwire quotas` against a real server."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.clients.conversation import answer_to, talk
from tests.support.servers.process import server_process
from tests.support.servers.running import connect
from turnwire.cli.commands import app

TOML = """
[models."offline/echo"]
input_usd_per_million = 500_000
output_usd_per_million = 1_000_000
[quotas]
max_sessions = 1000
max_cost_usd_per_day = 5000
"""


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """A server that has answered two messages of one session, and a third by a model without a price."""
    async with server_process(tmp_path, TOML) as server, connect(server.address) as client:
        first = await talk(client, "one two three")
        await answer_to(client, first)
        for words in ("four", "/error refused"):
            await answer_to(client, await talk(client, words, first.session_id))
        yield server.address


async def run(address: str, *arguments: str) -> Result:
    """Runs a command in a thread, because it waits for the server."""
    done = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--target", address])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


async def rows(address: str, *arguments: str) -> list[dict[str, Any]]:
    """Returns the JSON lines of a command that succeeds."""
    done = await run(address, *arguments, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_usage_by_day_and_model(address: str) -> None:
    """The table says what the JSON lines say, in units for people."""
    [row] = await rows(address, "usage")
    done = await run(address, "usage")
    heads, line = done.stdout.splitlines()
    assert heads.split() == ["day", "model", "turns", "steps", "input", "output", "cost", "(USD)"]
    tokens = {name: int(row["usage"][name]) for name in ("inputTokens", "outputTokens")}
    cost = tokens["inputTokens"] / 2 + tokens["outputTokens"]
    assert int(row["costPicoUsd"]) == cost * 10**12
    assert line.split()[:4] == [f"{datetime.now(UTC):%Y-%m-%d}", "offline/echo", row["turns"], row["steps"]]
    assert line.split()[4:7] == [str(tokens["inputTokens"]), str(tokens["outputTokens"]), f"{cost:.6f}"]


@pytest.mark.slow
async def test_usage_by_other_dimensions_and_in_a_range(address: str) -> None:
    """One row for everything where nothing is grouped by, and none where there is no usage."""
    assert len((await run(address, "usage", "--by", "")).stdout.splitlines()) == 2
    by_session = (await run(address, "usage", "--by", "session subject")).stdout.splitlines()
    assert by_session[1].startswith("ses_")
    assert await rows(address, "usage", "--from", "2020-01-01", "--to", "2020-02-01T10:30") == []
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert len(await rows(address, "usage", "--from", today)) == 1
    assert len(await rows(address, "usage", "--time-zone", "Pacific/Auckland")) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--by", "day week"], "'week'"),
        (["--by", "day,day"], "'day'"),
        (["--time-zone", "Nowhere/City"], "'Nowhere/City'"),
        (["--time-zone", "../etc"], "'../etc'"),
        (["--from", "yesterday"], "'yesterday'"),
    ],
)
def test_wrong_options_of_usage(arguments: list[str], problem: str) -> None:
    """Are named, before anything is called."""
    done = CliRunner().invoke(app, ["usage", *arguments, "--target", "127.0.0.1:1"])
    assert (done.exit_code, problem in done.stderr) == (2, True)


@pytest.mark.slow
async def test_a_range_that_the_server_refuses_is_told_in_one_line(address: str) -> None:
    """With its own words."""
    done = await run(address, "usage", "--from", "2020-01-01", "--to", "2019-01-01")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "end_time" in done.stderr


@pytest.mark.slow
async def test_quotas_say_what_is_left(address: str) -> None:
    """Money in dollars; a quota without a limit says so."""
    found = {row["name"]: row for row in await rows(address, "quotas")}
    done = await run(address, "quotas")
    heads, *lines = done.stdout.splitlines()
    assert heads.split() == ["quota", "limit", "used", "left", "reset", "(UTC)"]
    shown = {line.split()[0]: line.split()[1:] for line in lines}
    assert shown["sessions"] == ["1,000", "1", "999"]
    assert shown["watchers"][:2] == ["none", "0"]
    used = int(found["cost_pico_usd_per_day"]["used"]) / 10**12
    assert used > 0
    limit, spent, left, *reset = shown["cost_usd_per_day"]
    assert (limit, spent, left) == ("5,000.000000", f"{used:,.6f}", f"{5000 - used:,.6f}")
    assert reset[1] == "00:00"
    assert len(lines) == len(found)


@pytest.mark.slow
async def test_another_tenant_is_for_admins(address: str) -> None:
    """A server that does not ask who calls lets everybody name one."""
    assert await rows(address, "usage", "--tenant", "acme") == []
    quotas = {row["name"]: row for row in await rows(address, "quotas", "--tenant", "acme")}
    assert "used" not in quotas["sessions"] or quotas["sessions"]["used"] == "0"
