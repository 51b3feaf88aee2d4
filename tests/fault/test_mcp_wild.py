"""MCP servers that misbehave over standard input and output: only their own calls fail, and at once."""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from opencode.tool.tool_pb2 import TOOL_SOURCE_STATE_FAILED, ToolCallState
from tests.support.clients.conversation import answer_to, talk, words_of
from tests.support.oracles.sound import assert_sound
from tests.support.servers import mcp_wild
from tests.support.servers.mcp import calls_of, listed, ready, stdio, until
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect, running_server

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 600.0
"""Of a call: no test ends by it."""


def wild(*arguments: str, name: str = "wild") -> str:
    """Returns the configuration of a server that misbehaves."""
    args = json.dumps(["-I", "-S", mcp_wild.__file__, *arguments])
    lines = [f"[mcp.{name}]", f"command = {json.dumps(sys.executable)}", f"args = {args}"]
    return "\n".join([*lines, f"timeout_seconds = {LIMIT_SECONDS}", 'protocol = "handshake"', ""])


async def called(client: Client, what: str, session_id: str = "") -> ToolCallState:
    """Has the model call the tool, and returns the call."""
    accepted = await talk(client, f'/tool wild.do {{"what": "{what}"}}', session_id)
    return (await calls_of(client, accepted))[-1]


@pytest.fixture(scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the module's server."""
    return tmp_path_factory.mktemp("wild")


@pytest.fixture(scope="module")
async def shared_client(folder: Path) -> AsyncIterator[Client]:
    """A client of the module's server, with the wild server and one that behaves; afterwards its file is sound."""
    toml = wild("plain", str(folder)) + stdio(folder, "test")
    async with running_server(folder, toml) as server, connect(server.address) as connected:
        yield connected
    assert_sound(folder / "turnwire.db")


@pytest.fixture
async def client(shared_client: Client) -> AsyncIterator[Client]:
    """A client of that server; after the test both MCP servers answer."""
    await ready(shared_client)
    yield shared_client
    await ready(shared_client)
    assert (await called(shared_client, "")).output == "done"
    accepted = await talk(shared_client, '/tool test.add {"a": 1, "b": 2}')
    assert "the sum is 3" in words_of(await answer_to(shared_client, accepted))


@pytest.mark.parametrize("what", ["list", "deep", "surrogate"])
async def test_an_answer_that_cannot_be_read_ends_its_call(client: Client, what: str) -> None:
    """The model reads why, long before the call's time is over; the server is not lost."""
    call = await called(client, what)
    assert (call.status, "it is not a message of JSON-RPC" in call.error) == ("error", True), call.error


@pytest.mark.parametrize(
    "what", ["garbage", "twice", "progress", "changed", "notices", "pings", "asks", "stderr", "match"]
)
async def test_what_comes_beside_an_answer_costs_nothing(client: Client, what: str) -> None:
    """The call has its answer, and the next one too."""
    assert (await called(client, what)).output == "done"


async def test_a_message_without_end_loses_the_server(client: Client) -> None:
    """It is started anew, and the call says what it did."""
    call = await called(client, "endless")
    assert (call.status, "larger than 12582912 bytes" in call.error) == ("error", True), call.error


async def test_a_large_picture_is_a_file(client: Client) -> None:
    """One of almost as many bytes as the files of a result may have."""
    [picture] = (await called(client, "picture")).files
    assert (picture.mime, picture.size_bytes) == ("image/png", 8_250_000)


@pytest.mark.parametrize(
    ("kind", "names", "why"),
    [
        ("names", ["wild.do", "wild.fine too", "wild.large"], "7 tools left out: the name 'two?lines' is not 1 to 128"),
        ("heavy", [], "all together have over 2097152 bytes"),
    ],
)
async def test_what_is_listed_is_bounded(tmp_path: Path, kind: str, names: list[str], why: str) -> None:
    """Names and sizes; a line in the log says why tools are missing, once."""
    with capture_logs() as lines:
        async with running_server(tmp_path, wild(kind)) as server, connect(server.address) as client:
            answer = await ready(client)
    assert not names or [tool.name for tool in answer.tools] == names
    [line] = [line for line in lines if line["event"] == "mcp_tools_left_out"]
    assert why in line["why"]


async def test_a_server_that_ends_again_and_again_is_started_ever_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it was ready each time."""
    waits: list[int] = []
    monkeypatch.setattr("turnwire.tools.settings.Backoff.delay", lambda _, failures, __: waits.append(failures) or 0)
    async with running_server(tmp_path, wild("exits")) as server, connect(server.address) as client:
        await until(lambda: len(waits) >= 4)
        await listed(client, lambda answer: "ended with code 3" in answer.sources[0].error)
    assert waits[:4] == [1, 2, 3, 4]


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return True
    return state == "Z"


@pytest.mark.parametrize("end", ["exit", "stop"])
async def test_nothing_in_its_process_group_outlives_a_server(tmp_path: Path, end: str) -> None:
    """Not even what takes no notice of SIGTERM."""
    async with server_process(tmp_path, wild("plain", str(tmp_path))) as server, connect(server.address) as client:
        await ready(client)
        assert (await called(client, "child")).output == "done"
        pid = int((tmp_path / "child").read_text())
        assert not _gone(pid)
        if end == "exit":
            await called(client, "exit")
        else:
            await server.terminate()
        await until(lambda: _gone(pid))
    assert_sound(tmp_path / "turnwire.db")


async def test_a_program_that_is_missing_says_so(tmp_path: Path) -> None:
    """With its name and the system's words."""
    toml = '[mcp.none]\ncommand = "/no/such/program"\n'
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        answer = await listed(client, lambda answer: answer.sources[0].state == TOOL_SOURCE_STATE_FAILED)
        assert "No such file or directory" in answer.sources[0].error
        assert not (await client.tools.ListTools()).tools


async def test_a_server_that_stays_does_not_hold_the_stop(tmp_path: Path) -> None:
    """One that goes on when its input ends."""
    async with running_server(tmp_path, wild("stays")) as server, connect(server.address) as client:
        await ready(client)
