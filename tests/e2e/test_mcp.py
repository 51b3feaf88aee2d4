"""Tools of real MCP servers, over standard input and output and over streamable HTTP."""

import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import FINISH_REASON_STOP
from opencode.tool.tool_pb2 import TOOL_SOURCE_STATE_READY, SubmitToolResultRequest
from tests.support.clients.conversation import answer_to, ask, new_session, refused, talk, tool, watching, words_of
from tests.support.servers.mcp import (
    ENVIRON,
    PROGRAM,
    calls_of,
    http_server,
    listed,
    mcp_client,
    own_port,
    ready,
    shell,
    stdio,
    tool_spoke,
    until,
)
from tests.support.servers.running import Client, connect, running_server


def alive(pid: int) -> bool:
    """Tells whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the module's server and of its MCP server."""
    return tmp_path_factory.mktemp("mcp")


@pytest.fixture(scope="module")
async def shared_client(folder: Path) -> AsyncIterator[Client]:
    """A client of the module's server, which has the MCP server "test"."""
    async with mcp_client(folder, stdio(folder, "test", "timeout_seconds = 600")) as connected:
        yield connected


@pytest.fixture
async def client(shared_client: Client) -> Client:
    """A client of that server once its MCP server is ready, whatever another test did to it."""
    await ready(shared_client)
    return shared_client


@pytest.fixture
def port() -> Iterator[int]:
    """A port for an MCP server, also for one that comes back."""
    with own_port() as own:
        yield own


async def test_tools_are_listed_with_source_schema_and_state(client: Client) -> None:
    """Their names begin with that of their server."""
    answer = await client.tools.ListTools()
    add = next(tool for tool in answer.tools if tool.name == "test.add")
    assert (add.description, add.source, add.state, add.error) == (
        "Adds two numbers.",
        "test",
        TOOL_SOURCE_STATE_READY,
        "",
    )
    assert set(json.loads(add.input_schema_json)["required"]) == {"a", "b"}
    assert [(s.name, s.state, s.error) for s in answer.sources] == [("test", TOOL_SOURCE_STATE_READY, "")]
    refusal = await refused(client.tools.ListTools(session_id="ses_none"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")


async def test_a_call_runs_and_its_result_goes_back_to_the_model(client: Client) -> None:
    """It is pending, running, then has its result; the turn ends in order."""
    session_id = await new_session(client)
    async with watching(client, session_id) as watch:
        await watch.until_kind("caught_up")
        accepted = await client.messages.SendMessage(ask('/tool test.add {"a": 1, "b": 2}', session_id))
        ended = await watch.until_turn_ended(accepted.turn_id)
    assert ended.turn_ended.turn.finish_reason == FINISH_REASON_STOP
    updates = [event.tool_call_updated.state for event in watch.events if event.HasField("tool_call_updated")]
    assert [(u.status, u.output) for u in updates] == [("pending", ""), ("running", ""), ("success", "the sum is 3")]
    assert "the sum is 3" in words_of(await answer_to(client, accepted))


async def test_progress_becomes_logs(client: Client) -> None:
    """Each line is an event while the call runs, and the call keeps them."""
    session_id = await new_session(client)
    async with watching(client, session_id) as watch:
        await watch.until_kind("caught_up")
        accepted = await client.messages.SendMessage(ask('/tool test.count {"to": 3}', session_id))
        await watch.until_turn_ended(accepted.turn_id)
    lines = [event.tool_log for event in watch.events if event.HasField("tool_log")]
    assert [(line.line_index, line.text) for line in lines] == [(0, "1/3 at 1"), (1, "2/3 at 2"), (2, "3/3 at 3")]
    (call,) = await calls_of(client, accepted)
    assert list(call.logs) == ["1/3 at 1", "2/3 at 2", "3/3 at 3"]


async def test_an_error_of_the_tool_is_an_error_result(client: Client) -> None:
    """The model reads it, and the turn goes on."""
    accepted = await talk(client, "/tool test.fail {}")
    (call,) = await calls_of(client, accepted)
    assert call.status == "error"
    assert "fail" in words_of(await answer_to(client, accepted))


async def test_variables_are_passed_by_name_only(client: Client) -> None:
    """A child gets those that are named, and no others."""
    accepted = await talk(
        client, '/tool test.environment {"name": "MCP_TEST_TOKEN"}\n/tool test.environment {"name": "HOSTNAME"}'
    )
    assert [call.output for call in await calls_of(client, accepted)] == ["secret words", "not set"]


async def test_an_abort_cancels_the_call_at_the_server(client: Client, folder: Path) -> None:
    """The call ends as an error, long before it would; the tool is told, and the server is there for the next call."""
    accepted = await client.messages.SendMessage(ask('/tool test.slow {"name": "aborted"}'))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        await watch.until(tool_spoke)
    await client.messages.AbortSession(session_id=accepted.session_id)
    (call,) = await calls_of(client, accepted)
    assert (call.status, list(call.logs)) == ("error", ["0/1 began"])
    await until((folder / "aborted_cancelled").exists)
    again = await talk(client, '/tool test.add {"a": 2, "b": 2}', accepted.session_id)
    assert "the sum is 4" in words_of(await answer_to(client, again))


async def test_a_running_call_is_in_the_snapshot_and_not_the_clients(client: Client) -> None:
    """A new watcher sees it with its logs; a client cannot answer it."""
    accepted = await client.messages.SendMessage(ask("/tool test.slow {}"))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        await watch.until(tool_spoke)
    async with watching(client, accepted.session_id) as watch:
        snapshot = (await watch.until_kind("message_snapshot")).message_snapshot.message
    (call,) = [part.tool_use for part in snapshot.parts]
    assert (call.status, list(call.logs)) == ("running", ["0/1 began"])
    assert [list(stored.logs) for stored in await calls_of(client, accepted)] == [["0/1 began"]]
    request = SubmitToolResultRequest(session_id=accepted.session_id, tool_call_id=call.id, output="mine")
    assert (await refused(client.tools.SubmitToolResult(request))).reason == "TOOL_CALL_ALREADY_SETTLED"
    await client.messages.AbortSession(session_id=accepted.session_id)


async def test_calls_of_a_step_run_at_once(client: Client) -> None:
    """Each of four waits for the other three."""
    accepted = await talk(client, "\n".join(['/tool test.meet {"others": 3}'] * 4))
    assert [call.output for call in await calls_of(client, accepted)] == ["met"] * 4


async def test_a_list_that_changes_is_read_again(client: Client) -> None:
    """The new tool is there for the next step."""
    await talk(client, "/tool test.grow {}")
    await listed(client, lambda answer: any(tool.name == "test.grown" for tool in answer.tools))


@pytest.mark.slow
async def test_a_server_that_dies_comes_back(client: Client) -> None:
    """The call that it died of fails; a later one is answered by a new process."""
    accepted = await talk(client, "/tool test.die {}")
    (call,) = await calls_of(client, accepted)
    assert call.status == "error"
    assert "ended with code 3" in call.error
    await ready(client)
    again = await talk(client, '/tool test.add {"a": 1, "b": 1}', accepted.session_id)
    assert "the sum is 2" in words_of(await answer_to(client, again))


@pytest.mark.slow
async def test_agents_name_the_tools_that_they_may_use(tmp_path: Path) -> None:
    """All others are unknown to them."""
    toml = stdio(tmp_path) + '[agents.careful]\ntools = ["test.add", "other.*"]\n'
    async with mcp_client(tmp_path, toml) as client:
        session_id = await new_session(client, agent="careful")
        answer = await client.tools.ListTools(session_id=session_id)
        assert [tool.name for tool in answer.tools] == ["test.add"]
        accepted = await talk(client, "/tool test.fail {}", session_id, tools=[tool("look")])
        (call,) = await calls_of(client, accepted)
        assert call.error == "there is no tool named 'test.fail'"


@pytest.mark.slow
async def test_long_output_is_cut_and_a_slow_call_ends(tmp_path: Path) -> None:
    """Both limits leave the turn in order."""
    toml = stdio(tmp_path, "test", "timeout_seconds = 2.0") + "[limits]\nmax_tool_output_bytes = 101\n"
    async with mcp_client(tmp_path, toml) as client:
        accepted = await talk(client, '/tool test.long {"chars": 1000}\n/tool test.slow {}')
        long, slow = await calls_of(client, accepted)
        assert long.output == "é" * 50 + "\n[cut: the output has 2000 bytes, these are the first 101]"
        assert (slow.status, slow.error) == ("error", "the tool did not answer within 2 seconds")
        assert (await talk(client, '/tool test.add {"a": 1, "b": 1}', accepted.session_id)).turn_id


@pytest.mark.slow
async def test_the_first_message_after_the_start_is_offered_the_tools(tmp_path: Path) -> None:
    """It waits until they are listed."""
    async with running_server(tmp_path, stdio(tmp_path), ENVIRON) as server, connect(server.address) as client:
        accepted = await talk(client, '/tool test.add {"a": 1, "b": 2}')
        assert [call.output for call in await calls_of(client, accepted)] == ["the sum is 3"]


@pytest.mark.slow
async def test_denied_tools_of_the_server_are_not_run(tmp_path: Path) -> None:
    """The model reads that they are not permitted; the others run."""
    toml = stdio(tmp_path) + '[permissions]\n"*" = "deny"\n"test.add" = "allow"\n'
    async with mcp_client(tmp_path, toml) as client:
        accepted = await talk(client, '/tool test.fail {}\n/tool test.add {"a": 1, "b": 2}')
        fail, add = await calls_of(client, accepted)
        assert (fail.status, fail.error) == ("error", "the tool 'test.fail' is not permitted")
        assert (add.status, add.output) == ("success", "the sum is 3")


@pytest.mark.slow
async def test_servers_that_hang_or_fail_hold_up_nothing(tmp_path: Path) -> None:
    """Neither start nor stop waits for them, a session only right after the start; ListTools says what is wrong.

    So does the result of a call.
    """
    toml = """
        [mcp.hangs]
        command = "sleep"
        args = ["600"]
        start_timeout_seconds = 1.5
        [mcp.missing]
        command = "/no/such/program"
        [mcp.dies]
        command = "sh"
        args = ["-c", "echo it is broken >&2; exit 4"]
        [mcp.nobody]
        url = "http://127.0.0.1:1/mcp"
        [mcp.keyless]
        url = "http://127.0.0.1:1/mcp"
        headers_env = { Authorization = "NOT_SET_ANYWHERE" }
    """
    async with running_server(tmp_path, toml, ENVIRON) as server, connect(server.address) as client:
        accepted = await talk(client, "/tool hangs.do {}\n/tool dies.do {}\n/tool other.do {}\n/step\nhello")
        assert words_of(await answer_to(client, accepted)) == "hello"
        hangs, dies, other = [call.error for call in await calls_of(client, accepted)]
        assert re.match("the MCP server 'hangs' is (still starting|not connected)", hangs)
        assert re.match("the MCP server 'dies' is (still starting|not connected): the process ended with code 4", dies)
        assert other == "there is no tool named 'other.do'"
        answer = await listed(client, lambda a: all(source.error for source in a.sources))
        states = {source.name: (source.state, source.error) for source in answer.sources}
        assert states["hangs"][1] == "it was not ready within 1.5 seconds"
        assert "No such file" in states["missing"][1]
        assert states["dies"][1] == "the process ended with code 4: it is broken"
        assert states["nobody"][1]
        assert states["keyless"][1] == "the variable NOT_SET_ANYWHERE is not set"


@pytest.mark.slow
async def test_children_go_with_the_server(tmp_path: Path) -> None:
    """After the stop no process is left, not even one that does not want to end; a call under way ends too."""
    stubborn = tmp_path / "stubborn"
    command = shlex.join([sys.executable, *PROGRAM, "stdio"])
    script = f"trap '' TERM; echo $$ > {stubborn}; {command}; while :; do sleep 1; done"
    toml = stdio(tmp_path) + shell("stubborn", script)
    async with running_server(tmp_path, toml, ENVIRON) as server, connect(server.address) as client:
        await ready(client)
        accepted = await client.messages.SendMessage(ask("/tool test.slow {}"))
        async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
            await watch.until(tool_spoke)
        pids = [int((tmp_path / "pid").read_text()), int(stubborn.read_text())]
        assert all(map(alive, pids))
    await until(lambda: not any(map(alive, pids)))


@pytest.mark.slow
async def test_streamable_http(tmp_path: Path, port: int) -> None:
    """Calls, progress and cancelling work; a server that dies is connected again when it is back."""
    toml = f'[mcp.web]\nurl = "http://127.0.0.1:{port}/mcp"\n'
    async with running_server(tmp_path, toml, ENVIRON) as server, connect(server.address) as client:
        async with http_server(port, tmp_path):
            await ready(client)
            accepted = await talk(client, '/tool web.add {"a": 1, "b": 2}\n/tool web.count {"to": 2}')
            add, count = await calls_of(client, accepted)
            assert (add.output, count.output, list(count.logs)) == ("the sum is 3", "counted", ["1/2 at 1", "2/2 at 2"])
            slow = await client.messages.SendMessage(ask("/tool web.slow {}"))
            async with watching(client, slow.session_id, after_sequence=slow.sequence) as watch:
                await watch.until(tool_spoke)
            await client.messages.AbortSession(session_id=slow.session_id)
            await until((tmp_path / "slow_cancelled").exists)
            died = await talk(client, "/tool web.die {}")
            assert (await calls_of(client, died))[0].status == "error"
        await listed(client, lambda answer: answer.sources[0].state != TOOL_SOURCE_STATE_READY)
        async with http_server(port, tmp_path):
            await ready(client)
            again = await talk(client, '/tool web.add {"a": 1, "b": 1}', died.session_id)
            assert "the sum is 2" in words_of(await answer_to(client, again))


@pytest.mark.slow
@pytest.mark.skipif("TURNWIRE_TEST_NPM" not in os.environ, reason="needs npm's registry: set TURNWIRE_TEST_NPM=1")
async def test_a_published_server_of_another_language(tmp_path: Path) -> None:
    """The file server of the protocol's authors, in TypeScript, lists and reads a folder."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "note.txt").write_text("written by hand")
    args = json.dumps(["-y", "@modelcontextprotocol/server-filesystem", str(shared)])
    toml = f'[mcp.fs]\ncommand = "npx"\nargs = {args}\n'
    async with running_server(tmp_path, toml, ENVIRON) as server, connect(server.address) as client:
        await ready(client)
        path = json.dumps({"path": str(shared / "note.txt")})
        accepted = await talk(client, f"/tool fs.read_text_file {path}\n/tool fs.read_text_file {{}}")
        read, wrong = await calls_of(client, accepted)
        assert (read.status, read.output) == ("success", "written by hand")
        assert "'path' is a required property" in wrong.error
