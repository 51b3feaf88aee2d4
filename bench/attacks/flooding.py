"""`python -m bench.attacks.flooding`: a model server and an MCP server that flood; and the attacks that call them.

It speaks HTTP by hand, because most of what it sends no library would.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import zlib
from typing import Any

from bench.attacks.attack import Attack, Seen, Target
from bench.attacks.services import said, services
from bench.child import ANNOUNCEMENT
from bench.loop import run
from opencode.session.session_pb2 import CreateSessionRequest, GetSessionRequest

MIB = 2**20
TURNS = 8

_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
_LENGTH = re.compile(rb"(?i)content-length: *(\d+)")


def _packed(body: bytes) -> bytes:
    """Returns a piece of gzip without an end, which may be sent again and again."""
    pack = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    return pack.compress(body) + pack.flush(zlib.Z_FULL_FLUSH)


def _result(number: Any, **result: Any) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
    return _JSON + b"mcp-session-id: s\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def _answer(path: str, asked: dict[str, Any]) -> tuple[bytes, bytes]:
    """Returns what is sent first, and what is sent then, again and again."""
    if path.startswith("/v1"):
        delta = {"choices": [{"index": 0, "delta": {"content": "x" * MIB}}]}
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        return head, b"data: " + json.dumps(delta).encode() + b"\n\n"
    match asked.get("method"):
        case "initialize":
            about = {"capabilities": {}, "serverInfo": {"name": "wild", "version": "1"}}
            return _result(asked["id"], protocolVersion="2025-06-18", **about), b""
        case "tools/list":
            return _result(asked["id"], tools=[{"name": "do", "inputSchema": {"type": "object"}}]), b""
        case "tools/call":
            head = b"content-encoding: gzip\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
            return _JSON + head, _packed(b" " * (64 * MIB))
        case "ping":
            return _result(asked["id"]), b""
    return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", b""


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, path, _ = head.decode("latin-1").split(" ", 2)
                size = _LENGTH.search(head)
                body = await reader.readexactly(int(size[1]) if size else 0)
                if method != "POST":
                    writer.write(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
                    continue
                first, again = _answer(path, json.loads(body))
                writer.write(first)
                while again:
                    writer.write(again)
                    await writer.drain()
                    await asyncio.sleep(0)
    finally:
        writer.transport.abort()


async def _listen() -> None:
    """Serves on a free port until SIGTERM, which ends the process at once."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"{ANNOUNCEMENT}http://{host}:{port}", flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    os._exit(0)  # connections may be in the middle of a flood


def configuration(address: str) -> str:
    """Returns the configuration of both servers."""
    model = f'[providers.wild]\nkind = "openai_chat"\nbase_url = "http://{address}/v1"\n'
    return f'{model}[mcp.wild]\nurl = "http://{address}/mcp"\nprotocol = "handshake"\n'


async def _ask(target: Target, seen: Seen, text: str, model: str) -> None:
    """Turns ask, and ask again whenever their answer has ended."""
    async with services(target, seen) as one:

        async def turn() -> None:
            session_id = (await one.sessions.CreateSession(CreateSessionRequest())).id
            await one.messages.SendMessage(said(text, session_id, model))
            asked = GetSessionRequest(session_id=session_id)
            while (await one.sessions.GetSession(asked)).session.active_turn_id:
                await asyncio.sleep(0.05)

        await asyncio.gather(*(one.again(turn) for _ in range(TURNS)))


async def _model_text(target: Target, seen: Seen) -> None:
    await _ask(target, seen, "go", "wild/text")


async def _http_bomb(target: Target, seen: Seen) -> None:
    await _ask(target, seen, "/tool wild.do {}", "offline/echo")


ATTACKS = (
    Attack("model_text", "a model server: text without end", (), "the rest: the answer has ended", _model_text),
    Attack("http_bomb", "an MCP server over HTTP: a body of gzip without end", (), "the result", _http_bomb),
)


if __name__ == "__main__":
    os.nice(5)
    run(_listen())
