"""MCP servers that misbehave over streamable HTTP: only their own calls fail, and no key goes elsewhere."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from opencode.message.message_pb2 import SendMessageResponse
from opencode.tool.tool_pb2 import TOOL_SOURCE_STATE_FAILED, ToolCallState
from tests.support.clients.conversation import talk
from tests.support.oracles.sound import assert_sound
from tests.support.servers.mcp import calls_of, listed, ready
from tests.support.servers.running import Client, connect, running_server

pytestmark = pytest.mark.slow

TOOL = {"name": "do", "inputSchema": {"type": "object"}}
JSON = "application/json"
EVENTS = "text/event-stream"

Answer = Callable[[asyncio.StreamWriter, Any], Awaitable[None]]
"""Answers a call of the tool, given its id."""


class Wild:
    """A server of MCP 2025-06-18 that is well until its tool is called."""

    def __init__(self, answer: Answer, session: str = "s", lists: Answer | None = None) -> None:
        """Takes what it does when its tool is called, the name of its session, and what it does when it lists."""
        self.readers: dict[asyncio.StreamWriter, asyncio.StreamReader] = {}
        """Of its connections."""
        self._answer = answer
        self._session = session
        self._lists = lists
        self.requests: list[tuple[str, dict[str, str]]] = []
        """Methods of HTTP, and headers, of all requests."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of a connection."""
        self.readers[writer] = reader
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
            while line := await reader.readline():
                headers = {}
                while header := (await reader.readline()).strip():
                    name, _, value = header.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method = line.decode().split()[0]
                self.requests.append((method, headers))
                await self._reply(writer, method, json.loads(body) if body else {})
        writer.close()

    async def _reply(self, writer: asyncio.StreamWriter, method: str, message: dict[str, Any]) -> None:
        number = message.get("id")
        if method == "GET":
            await send(writer, EVENTS, b"")
        elif method != "POST" or number is None:
            await send(writer, JSON, b"", "202 Accepted")
        elif message.get("method") == "initialize":
            info = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "w", "version": "1"}}
            await send(writer, JSON, result(number, info), more=f"Mcp-Session-Id: {self._session}\r\n")
        elif message.get("method") == "tools/list" and self._lists is None:
            await send(writer, JSON, result(number, {"tools": [TOOL]}))
        elif message.get("method") == "tools/list" and self._lists is not None:
            await self._lists(writer, number)
        elif (message.get("params", {}).get("arguments") or {}).get("what") == "ok":
            await send(writer, JSON, done(number))
        else:
            await self._answer(writer, number)


def result(number: Any, value: Any) -> bytes:
    """Returns an answer."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": value}).encode()


def done(number: Any) -> bytes:
    """Returns the answer of a call that worked."""
    return result(number, {"content": [{"type": "text", "text": "done"}]})


async def send(writer: asyncio.StreamWriter, mime: str, body: bytes, status: str = "200 OK", more: str = "") -> None:
    """Sends a response."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {mime}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def stream(writer: asyncio.StreamWriter, mime: str, piece: bytes, begin: bytes = b"", pause: float = 0) -> None:
    """Sends the same for ever."""
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {mime}\r\nConnection: close\r\n\r\n".encode() + begin)
    while not writer.is_closing():
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(pause)
    raise ConnectionError


@contextlib.asynccontextmanager
async def listening(wild: Wild) -> AsyncIterator[int]:
    """Runs a server; gives its port."""
    server = await asyncio.start_server(wild.serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def configured(port: int, *more: str) -> str:
    """Returns the configuration of the server."""
    lines = ["[mcp.wild]", f'url = "http://127.0.0.1:{port}/mcp"', 'protocol = "handshake"', "timeout_seconds = 600.0"]
    return "\n".join([*lines, *more, ""])


async def called(wild: Wild, folder: Path, what: str = "", *more: str) -> tuple[ToolCallState, ToolCallState]:
    """Returns a call of the tool, and one after it that the server answers well."""
    async with (
        listening(wild) as port,
        running_server(folder, configured(port, *more), {"KEY": "secret"}) as server,
        connect(server.address) as client,
    ):
        await ready(client)
        accepted = await talk(client, f'/tool wild.do {{"what": "{what}"}}')
        await listed(client, lambda answer: not answer.sources[0].error)
        await talk(client, '/tool wild.do {"what": "ok"}', accepted.session_id)
        first, second = await calls_of(client, accepted)
    assert_sound(folder / "turnwire.db")
    return first, second


async def _endless_json(writer: asyncio.StreamWriter, _: Any) -> None:
    await stream(writer, JSON, b"x" * 65_536, b'{"a":"')


async def _endless_event(writer: asyncio.StreamWriter, _: Any) -> None:
    await stream(writer, EVENTS, b"x" * 65_536, b'data: {"a":"')


async def _bomb(writer: asyncio.StreamWriter, number: Any) -> None:
    body = gzip.compress(result(number, {"content": [{"type": "text", "text": "x" * 10_000_000}]}))
    await send(writer, JSON, body, more="Content-Encoding: gzip\r\n")


async def _no_json(writer: asyncio.StreamWriter, _: Any) -> None:
    await send(writer, JSON, b"<html>")


async def _error(writer: asyncio.StreamWriter, _: Any) -> None:
    await stream(writer, JSON, b"x" * 65_536)


async def _surrogate(writer: asyncio.StreamWriter, number: Any) -> None:
    await send(writer, JSON, done(number).replace(b"done", b"\\ud800"))


async def _broken_off(writer: asyncio.StreamWriter, _: Any) -> None:
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nContent-Length: 1000\r\n\r\n{{".encode())
    raise ConnectionError


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (_endless_json, "larger than 12582912 bytes"),
        (_endless_event, ""),
        (_bomb, "compresses its answers"),
        (_no_json, "Failed to parse JSON"),
        (_error, "larger than 12582912 bytes"),
        (_surrogate, "Failed to parse JSON"),
        (_broken_off, "broke off its answer"),
    ],
)
async def test_an_answer_that_cannot_be_read_ends_its_call(tmp_path: Path, answer: Answer, why: str) -> None:
    """The model reads why, long before the call's time is over, and the next call works."""
    first, second = await called(Wild(answer), tmp_path)
    assert (first.status, why in first.error, second.output) == ("error", True, "done"), first.error


async def test_keys_do_not_follow_a_redirect(tmp_path: Path) -> None:
    """To another port of the same machine, which is another origin; the call fails."""
    other = Wild(_no_json)
    async with listening(other) as elsewhere:

        async def redirect(writer: asyncio.StreamWriter, _: Any) -> None:
            await send(writer, JSON, b"", "307 Temporary Redirect", f"Location: http://127.0.0.1:{elsewhere}/\r\n")

        wild = Wild(redirect)
        first, second = await called(wild, tmp_path, "", 'headers_env = { Authorization = "KEY" }')
    assert (first.status, second.output, other.requests) == ("error", "done", [])
    assert "not followed" in first.error
    assert all(headers["authorization"] == "secret" for _, headers in wild.requests)


async def test_a_session_with_a_long_name_is_refused(tmp_path: Path) -> None:
    """A head of a megabyte is not read; the source says that it failed."""
    async with (
        listening(Wild(_no_json, session="s" * 1_000_000)) as port,
        running_server(tmp_path, configured(port)) as server,
        connect(server.address) as client,
    ):
        await listed(client, lambda answer: answer.sources[0].state == TOOL_SOURCE_STATE_FAILED)


@contextlib.asynccontextmanager
async def timed_out(wild: Wild, folder: Path) -> AsyncIterator[tuple[Client, SendMessageResponse]]:
    """Gives a client, and the message whose call of the tool has ended because its time was over."""
    async with (
        listening(wild) as port,
        running_server(folder, configured(port).replace("600.0", "0.5")) as server,
        connect(server.address) as client,
    ):
        await ready(client)
        accepted = await talk(client, "/tool wild.do {}")
        (call,) = await calls_of(client, accepted)
        assert call.error == "the tool did not answer within 0.5 seconds"
        yield client, accepted


async def test_a_trickle_ends_with_the_time_of_the_call(tmp_path: Path) -> None:
    """A byte now and then is no progress."""

    async def trickle(writer: asyncio.StreamWriter, _: Any) -> None:
        await stream(writer, JSON, b" ", pause=0.01)

    async with timed_out(Wild(trickle), tmp_path):
        pass


@pytest.mark.parametrize("begins", [False, True])
async def test_a_call_whose_time_is_over_leaves_no_connection(tmp_path: Path, begins: bool) -> None:
    """Neither one that was not answered, nor one whose answer has begun; the server goes on."""
    is_asked, is_gone = asyncio.Event(), asyncio.Event()

    async def silent(writer: asyncio.StreamWriter, _: Any) -> None:
        if begins:
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {EVENTS}\r\n\r\n".encode())
        is_asked.set()
        await writer.drain()
        await wild.readers[writer].read()
        is_gone.set()
        raise ConnectionError

    wild = Wild(silent)
    async with timed_out(wild, tmp_path) as (client, accepted):
        assert is_asked.is_set()
        await is_gone.wait()
        await talk(client, '/tool wild.do {"what": "ok"}', accepted.session_id)
        assert (await calls_of(client, accepted))[-1].output == "done"


async def test_a_list_without_end_does_not_make_a_server_ready(tmp_path: Path) -> None:
    """It fails, and is tried again."""
    async with (
        listening(Wild(_no_json, lists=_endless_json)) as port,
        running_server(tmp_path, configured(port)) as server,
        connect(server.address) as client,
    ):
        answer = await listed(client, lambda answer: answer.sources[0].state == TOOL_SOURCE_STATE_FAILED)
        assert "larger than 12582912 bytes" in answer.sources[0].error
