"""`python -m bench.attacks.wild_http`: an MCP server over HTTP that floods. It speaks HTTP by hand, like `wild_model`.

The path of its address says what is wild besides its calls; see `PLACES`. Its tool `do` has an argument `what`, which
says how the call is answered; see `CALLS`.
"""

import asyncio
import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bench.attacks.listening import listen
from bench.attacks.wild_model import MIB, packed
from bench.loop import run

_OK = b"HTTP/1.1 200 OK\r\n"
_EVENTS = _OK + b"content-type: text/event-stream\r\n"
_JSON = _OK + b"content-type: application/json\r\n"
_LENGTH = re.compile(rb"(?i)content-length: *(\d+)")
_GZIP = b"content-encoding: gzip\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
_TOOL: dict[str, Any] = {"name": "do", "inputSchema": {"type": "object"}}


class Flood(NamedTuple):
    """How a call is answered."""

    what: str
    """In a few words."""
    first: Callable[[Any, Any], bytes]
    """What is sent first, by the id of the request and the token of its progress."""
    again: Callable[[Any, Any], bytes] = lambda _, __: b""
    """What is sent then, again and again; nothing leaves the connection open."""
    pause: float = 0.0
    """Seconds after each of those."""


def _message(**values: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **values}).encode()


def _event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"


def _whole(head: bytes, body: bytes) -> bytes:
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def _done(number: Any) -> bytes:
    return _message(id=number, result={"content": [{"type": "text", "text": "done"}]})


def _progress(token: Any) -> bytes:
    return _event(_message(method="notifications/progress", params={"progressToken": token, "progress": 1}))


def _notices(count: int) -> bytes:
    return b"".join(
        _event(_message(method=f"notifications/{name}", params={"level": "info", "data": "x", "uri": "a:b"}))
        for name in ("message", "resources/updated", "prompts/list_changed", "tools/list_changed", "unknown")
        for _ in range(count // 5)
    )


def _begin(_: Any, __: Any) -> bytes:
    return _EVENTS + b"\r\n"


def _long(number: Any, size: int) -> bytes:
    return _whole(_JSON, _message(id=number, result={"content": [{"type": "text", "text": "x" * size}]}))


def _pings(number: Any, _: Any) -> bytes:
    return b"".join(_event(_message(id=f"{number}.{n}.{time.monotonic()}", method="ping")) for n in range(500))


CALLS: Mapping[str, Flood] = {
    "done": Flood("answers at once", lambda number, _: _whole(_JSON, _done(number))),
    "comments": Flood("comments without end", _begin, lambda _, __: b": x\n" * 10_000),
    "events": Flood("progress without end", _begin, lambda _, token: _progress(token) * 1_000),
    "empty_events": Flood("events without data, without end", _begin, lambda _, __: b"event: x\ndata:\n\n" * 5_000),
    "notices": Flood(
        "5,000 notifications before the answer",
        lambda number, _: _EVENTS + b"\r\n" + _notices(5_000) + _event(_done(number)),
    ),
    "pings": Flood("requests without end", _begin, _pings),
    "json": Flood("a body without end", lambda _, __: _JSON + b'\r\n{"a":"', lambda _, __: b"x" * MIB),
    "values": Flood("a body of values", lambda _, __: _JSON + b"\r\n[", lambda _, __: b"[]," * (MIB // 3)),
    "bomb": Flood("a body of gzip", lambda _, __: _JSON + _GZIP, lambda _, __: _BOMB),
    "event_bomb": Flood("a stream of gzip", lambda _, __: _EVENTS + _GZIP, lambda _, __: _BOMB),
    "line": Flood("a line without end", lambda _, __: _EVENTS + b"\r\ndata: ", lambda _, __: b"x" * MIB),
    "field": Flood("a field without end", _begin, lambda _, __: b"x" * MIB),
    "lines_of_data": Flood("an event of empty lines without end", _begin, lambda _, __: b"data:\n" * 100_000),
    "redirects": Flood(
        "redirects in a circle", lambda _, __: _whole(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: \r\n", b"")
    ),
    "headers": Flood("headers without end", lambda _, __: _OK, lambda _, __: b"x: y\r\n" * 10_000),
    "provisional": Flood(
        "answers 100 without end", lambda _, __: b"", lambda _, __: b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000
    ),
    "silent": Flood("no answer", lambda _, __: b""),
    "trickle": Flood("a byte a second", lambda _, __: _JSON + b"\r\n", lambda _, __: b" ", 1.0),
    "tiny_chunks": Flood(
        "a byte in each chunk of HTTP",
        lambda _, __: _EVENTS + b"transfer-encoding: chunked\r\n\r\n",
        lambda _, __: b"1\r\n:\r\n" * 50_000,
    ),
    "again": Flood(
        "streams that end at once and are asked for again",
        lambda _, __: _whole(_EVENTS, b"retry: 0\nid: 1\ndata:\n\n"),
    ),
    "long": Flood("results of 10 MB", lambda number, _: _long(number, 10_000_000)),
    "begun": Flood(
        "11 MB of a result, and no more of it",
        lambda number, _: _JSON + b'\r\n{"jsonrpc":"2.0","id":%d,"a":"' % number + b"x" * 11_000_000,
    ),
}
"""By the argument of the call."""

_BOMB = packed(b" " * (64 * MIB))

PLACES: Mapping[str, str] = {
    "many_tools": "5,000 tools",
    "large_tools": "512 tools with large schemas",
    "changing": "512 tools with large schemas that change all the time",
    "flooding": "notifications and comments without end in its own stream",
    "ending": "a stream of its own that ends at once",
}
"""What is wild besides calls, by the path; nothing at others."""


def _tools(place: str) -> list[dict[str, Any]]:
    match place:
        case "many_tools":
            return [_TOOL, *({**_TOOL, "name": f"t{n}", "description": "x" * 500} for n in range(5_000))]
        case "large_tools" | "changing":
            properties = {f"p{n}": {"type": "object", "properties": {"a": {}}} for n in range(60)}
            schema = {"type": "object", "properties": properties, "title": str(time.monotonic())}
            return [_TOOL, *({**_TOOL, "name": f"t{n}", "inputSchema": schema} for n in range(512))]
    return [_TOOL]


def _own_stream(place: str) -> Flood:
    changed = _event(_message(method="notifications/tools/list_changed"))
    match place:
        case "changing":
            return Flood("", _begin, lambda _, __: changed * 1_000)
        case "flooding":
            return Flood("", _begin, lambda _, __: _notices(1_000) + b": x\n" * 1_000)
        case "ending":
            return Flood("", lambda _, __: _whole(_EVENTS, b"retry: 0\nid: 1\ndata:\n\n"))
    return Flood("", lambda _, __: _whole(b"HTTP/1.1 405 Method Not Allowed\r\n", b""))


def _answer(method: str, place: str, asked: dict[str, Any]) -> Flood:
    params = asked.get("params") or {}
    match method, asked.get("method"):
        case "GET", _:
            return _own_stream(place)
        case "POST", "initialize":
            about = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "wild", "version": "1"}}
            head = _JSON + b"mcp-session-id: s\r\n"
            result = {"protocolVersion": "2025-06-18", **about}
            return Flood("", lambda number, _: _whole(head, _message(id=number, result=result)))
        case "POST", "tools/list":
            return Flood("", lambda number, _: _whole(_JSON, _message(id=number, result={"tools": _tools(place)})))
        case "POST", "tools/call":
            return CALLS[params["arguments"].get("what", "done")]
        case "POST", "ping":
            return Flood("", lambda number, _: _whole(_JSON, _message(id=number, result={})))
    return Flood("", lambda _, __: _whole(b"HTTP/1.1 202 Accepted\r\n", b""))


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, path, _ = head.decode("latin-1").split(" ", 2)
                size = _LENGTH.search(head)
                body = await reader.readexactly(int(size[1]) if size else 0)
                asked = json.loads(body) if body else {}
                flood = _answer(method, path.strip("/"), asked)
                if not await _flood(writer, flood, asked, path):
                    await reader.read()  # until the caller has gone
                    return
    finally:
        writer.transport.abort()


async def _flood(writer: asyncio.StreamWriter, flood: Flood, asked: dict[str, Any], path: str) -> bool:
    """Returns whether the connection may take another request."""
    number, token = asked.get("id"), ((asked.get("params") or {}).get("_meta") or {}).get("progressToken")
    first = flood.first(number, token).replace(b"location: ", b"location: " + path.encode())
    writer.write(first)
    await writer.drain()
    while again := flood.again(number, token):
        writer.write(again)
        await writer.drain()
        await asyncio.sleep(flood.pause)
    return b"content-length" in first[:300]


if __name__ == "__main__":
    os.nice(5)
    run(listen(_serve))
