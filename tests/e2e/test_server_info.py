"""GetServerInfo: what a client reads before anything else."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from opencode.server.server_pb2 import Caller, GetServerInfoResponse
from tests.support.servers.running import Client, connect, running_server
from turnwire import __version__
from turnwire.core.features import FEATURES

DOCUMENT = Path(__file__).parents[2] / "docs/reference/contract.md"


async def info(client: Client) -> GetServerInfoResponse:
    """Returns what the server says of itself."""
    answer: GetServerInfoResponse = await client.server.GetServerInfo()
    return answer


async def test_the_server_says_what_it_is(client: Client) -> None:
    """Version, features, its clock, and whom it takes the caller for; no way to sign in."""
    told = await info(client)
    assert (told.version, list(told.features)) == (__version__, sorted(FEATURES))
    assert abs(told.server_time.ToDatetime(UTC) - datetime.now(UTC)) < timedelta(minutes=1)
    assert told.caller == Caller(tenant="default", role="admin")
    assert list(told.offered_auth) == []


async def test_limits_are_those_of_the_configuration(tmp_path: Path) -> None:
    """By its keys, in whole numbers: a short time in milliseconds, and no money."""
    config = "[limits]\nmax_steps = 7\nquestion_timeout_seconds = 2.5\n"
    async with running_server(tmp_path, config) as server, connect(server.address) as client:
        limits = dict((await info(client)).limits)
    assert (limits["limits.max_steps"], limits["files.max_bytes"]) == (7, 20 * 2**20)
    assert {"server.max_message_bytes", "storage.retained_events_per_session"} <= set(limits)
    assert limits["limits.leased_tool_timeout_seconds"] == 86_400
    assert limits["limits.question_timeout_milliseconds"] == 2_500
    assert [key for key in limits if key.endswith("_usd")] == []


async def test_ids_are_of_one_start(tmp_path: Path) -> None:
    """The same as long as the process lives; the next start of the same database has others."""
    told = []
    for _ in range(2):
        async with running_server(tmp_path) as server, connect(server.address) as client:
            first, second = await info(client), await info(client)
            assert (first.node_id, first.history_id) == (second.node_id, second.history_id)
            told += [first.node_id, first.history_id]
    assert len({*told}) == len(told)
    assert all(told)


def test_features_are_documented() -> None:
    """The list in docs/reference/contract.md is that of the code, in its order; a word has lower case and dots."""
    section = DOCUMENT.read_text().split("\n## What the server can do\n")[1].split("\n## ")[0]
    assert dict(re.findall(r"^- `(.*?)`: (.*)$", section, re.MULTILINE)) == FEATURES
    assert list(FEATURES) == sorted(FEATURES)
    assert all(re.fullmatch(r"[a-z]+(\.[a-z]+)*", word) for word in FEATURES)
