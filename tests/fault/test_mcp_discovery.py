"""Waiting for the tools of MCP servers that come late, or never."""

import asyncio
import os
import shlex
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.fakes.loop import elapse, settled
from tests.support.servers.mcp import ENVIRON, PROGRAM, ROOT
from turnwire.core.settings import Agent, CoreSettings
from turnwire.core.tools.toolbox import open_toolbox
from turnwire.domain.conversation.messages import ModelRef, ToolUse
from turnwire.ports.tools import NewQuestion, QuestionRefused, SourceState, ToolOutcome, ToolPause
from turnwire.tools.mcp.servers import McpServers
from turnwire.tools.settings import McpSettings

HANGS = McpSettings(command="sleep", args=("600",), start_timeout_seconds=20.0)
MISSING = McpSettings(command="/no/such/program")


async def test_servers_that_failed_are_not_waited_for() -> None:
    """They are tried again, but nobody knows how long that takes."""
    servers = McpServers({"a": MISSING, "b": MISSING}, {})
    servers.start()
    await servers.wait_discovered()
    assert [source.state for source in servers.sources()] == [SourceState.FAILED] * 2
    text = await problem(servers, "a.add")  # by now it may be on its second attempt
    assert text.startswith("the MCP server 'a' is ")
    assert "No such file or directory" in text
    await servers.aclose()


async def test_a_server_that_hangs_is_waited_for_once() -> None:
    """The time is its own and counts from the start, not from who asks; who waits can be cancelled."""
    servers = McpServers({"hangs": HANGS}, {})
    servers.start()
    waiting = asyncio.create_task(servers.wait_discovered())
    cancelled = asyncio.create_task(servers.wait_discovered())
    await settled()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await elapse(timedelta(seconds=HANGS.start_timeout_seconds - 2))
    assert not waiting.done()
    await elapse(timedelta(seconds=2))
    await waiting
    late = asyncio.create_task(servers.wait_discovered())
    await settled()
    assert late.done()
    for text in (await problem(servers, "hangs.add"), await called(servers, "hangs.add")):
        assert text.partition(":")[0] in {
            "the MCP server 'hangs' is still starting",
            "the MCP server 'hangs' is not connected",
        }
    await servers.aclose()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe by which a test lets a program start."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.mark.slow
async def test_a_server_that_starts_slowly_is_waited_for(gate: Path) -> None:
    """A program that installs itself first takes more than some seconds."""
    script = f"read _ < {gate}; exec {shlex.join([sys.executable, *PROGRAM, 'stdio'])}"
    slow = McpSettings(
        command="sh", args=("-c", script), cwd=str(ROOT), env=("PYTHONPATH",), start_timeout_seconds=1_000.0
    )
    servers = McpServers({"slow": slow}, ENVIRON)
    servers.start()
    opening = asyncio.create_task(toolbox_names(servers))
    await elapse(timedelta(seconds=100))
    assert not opening.done()
    assert await called(servers, "slow.add") == "the MCP server 'slow' is still starting"
    await asyncio.to_thread(gate.write_text, "go\n")
    assert "slow.add" in await opening
    assert await called(servers, "slow.none") == "there is no tool named 'slow.none'"
    await servers.aclose()


async def test_what_an_agent_may_not_use_is_unknown_to_it() -> None:
    """Whether its server is there or not."""
    servers = McpServers({"a": MISSING}, {})
    servers.start()
    assert await problem(servers, "a.add", "reader") == "there is no tool named 'a.add'"
    assert (await problem(servers, "a.read_it", "reader")).startswith("the MCP server 'a' is ")
    await servers.aclose()


async def test_without_servers_nobody_waits() -> None:
    """Before the start too."""
    await McpServers({}, {}).wait_discovered()
    await McpServers({"hangs": HANGS}, {}).wait_discovered()


SETTINGS = CoreSettings(default_model=ModelRef("offline", "echo"), agents={"reader": Agent(tools=("a.read_*",))})


async def toolbox_names(servers: McpServers) -> list[str]:
    """Returns the names of the tools that a step offers."""
    return [tool.name for tool in (await open_toolbox((), SETTINGS, "", servers)).definitions]


async def problem(servers: McpServers, name: str, agent: str = "") -> str:
    """Returns what a model reads that calls a tool."""
    toolbox = await open_toolbox((), SETTINGS, agent, servers)
    return await toolbox.problem(ToolUse(name=name))


async def called(servers: McpServers, name: str) -> str:
    """Returns the outcome of a call."""

    async def ask(question: NewQuestion) -> object:
        raise QuestionRefused

    outcome: ToolOutcome | ToolPause = await servers.call(name, "{}", lambda _: None, ask)  # type: ignore[arg-type]
    assert isinstance(outcome, ToolOutcome)
    return outcome.output
