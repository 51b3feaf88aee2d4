"""Servers whose tools come from the real MCP server of `mcp_program`: as a child, or over streamable HTTP."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.message_pb2 import SendMessageResponse
from opencode.tool.tool_pb2 import TOOL_SOURCE_STATE_READY, ListToolsResponse, ToolCallState
from tests.support.clients.conversation import displayed
from tests.support.servers.running import Client, connect, running_server

ROOT = Path(__file__).parents[3]
PROGRAM = ("-m", "tests.support.servers.mcp_program")
ASKER = ("-m", "tests.support.servers.mcp_asker")
ENVIRON = {**os.environ, "MCP_TEST_TOKEN": "secret words"}
"""Environment of the Turnwire server."""


def stdio(folder: Path, name: str = "test", *more: str) -> str:
    """Returns the configuration of the program as a child.

    Args:
        folder: Where the program writes its process id and what became of slow calls.
        name: Of the MCP server; the names of its tools begin with it.
        *more: Further lines of its section.
    """
    lines = [f"[mcp.{name}]", f"command = {json.dumps(sys.executable)}"]
    lines += [f"args = {json.dumps([*PROGRAM, 'stdio', str(folder)])}", f"cwd = {json.dumps(str(ROOT))}"]
    return "\n".join([*lines, 'env = ["PYTHONPATH", "MCP_TEST_TOKEN"]', *more, ""])


def shell(name: str, script: str, *more: str) -> str:
    """Returns the configuration of a child that a shell runs."""
    lines = [
        f"[mcp.{name}]",
        'command = "sh"',
        f"args = {json.dumps(['-c', script])}",
        f"cwd = {json.dumps(str(ROOT))}",
    ]
    return "\n".join([*lines, 'env = ["PYTHONPATH", "MCP_TEST_TOKEN"]', *more, ""])


def asker(name: str = "ask", *more: str) -> str:
    """Returns the configuration of the program that asks people, as a child."""
    lines = [f"[mcp.{name}]", f"command = {json.dumps(sys.executable)}"]
    lines += [f"args = {json.dumps([*ASKER, 'stdio'])}", f"cwd = {json.dumps(str(ROOT))}"]
    return "\n".join([*lines, 'env = ["PYTHONPATH"]', *more, ""])


@contextlib.asynccontextmanager
async def mcp_client(folder: Path, toml: str) -> AsyncIterator[Client]:
    """Runs a Turnwire server and gives a client of it once all MCP servers of the configuration are ready."""
    async with running_server(folder, toml, ENVIRON) as server, connect(server.address) as client:
        await ready(client)
        yield client


@contextlib.contextmanager
def own_port() -> Iterator[int]:
    """Gives a port on which a program can listen, again and again, and which no other process gets meanwhile."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        if sys.platform != "linux":  # which lets another socket listen on the port of one that does not
            held.close()
        yield port


@contextlib.asynccontextmanager
async def http_server(
    port: int, *folder: Path, program: tuple[str, ...] = PROGRAM
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs the program, or another one, over HTTP."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *program, "http", str(port), *map(str, folder)),
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def until(true: Callable[[], bool]) -> None:
    """Waits for a state that nobody announces."""
    while not true():
        await asyncio.sleep(0.02)


async def listed(client: Client, found: Callable[[ListToolsResponse], bool]) -> ListToolsResponse:
    """Asks for the tools until the answer is the wanted one."""
    while not found(answer := await client.tools.ListTools()):
        await asyncio.sleep(0.02)
    return answer


async def ready(client: Client) -> ListToolsResponse:
    """Waits until every source is ready."""
    return await listed(
        client, lambda answer: all(source.state == TOOL_SOURCE_STATE_READY for source in answer.sources)
    )


async def calls_of(client: Client, accepted: SendMessageResponse) -> list[ToolCallState]:
    """Returns all calls of a session as they are shown."""
    return [call for message in await displayed(client, accepted.session_id) for call in message.tool_calls]


def tool_spoke(event: SessionEvent) -> bool:
    """Returns whether an event shows a line of a tool: live, or in the snapshot of who came later."""
    return event.HasField("tool_log") or any(part.tool_use.logs for part in event.message_snapshot.message.parts)
