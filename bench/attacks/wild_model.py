"""`python -m bench.attacks.wild_model`: a model server that floods. The name of the model says with what; see `FLOODS`.

It speaks HTTP by hand, because most of what it sends no library would.
"""

import asyncio
import contextlib
import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bench.attacks.listening import listen
from bench.loop import run

MIB = 2**20
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
_MODEL = re.compile(rb'"model": ?"([a-z_0-9]+)"')


class Flood(NamedTuple):
    """What is sent: once, then again and again."""

    what: str
    """In a few words."""
    make: Callable[[], tuple[bytes, bytes]]


def _chunk(**delta: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def _stream(again: Callable[[], bytes], first: bytes = b"") -> Callable[[], tuple[bytes, bytes]]:
    return lambda: (_STREAM + b"\r\n" + _chunk(content="so far ") + first, again())


def packed(body: bytes) -> bytes:
    """Returns a piece of gzip without an end, which may be sent again and again."""
    pack = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    return pack.compress(body) + pack.flush(zlib.Z_FULL_FLUSH)


def _packed_stream(body: Callable[[], bytes], head: bytes = _STREAM) -> Callable[[], tuple[bytes, bytes]]:
    gzip_head = gzip.compress(b"")[:10]
    return lambda: (head + b"content-encoding: gzip\r\n\r\n" + gzip_head, packed(body()))


def _calls() -> bytes:
    return b"".join(
        _chunk(tool_calls=[{"index": n, "id": f"c{n}", "function": {"name": "x", "arguments": "{}"}}])
        for n in range(5000)
    )


def _repeated_names() -> bytes:
    return _chunk(tool_calls=[{"index": 0, "function": {"name": "x", "arguments": '[1,"' + "y" * 200}}]) * 200


def _details() -> bytes:
    return b"".join(_chunk(reasoning_details=[{"index": n, "type": "x", "text": "y" * 50}]) for n in range(500))


def _json(value: bytes) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"a"}}],"x":' + value + b"}\n\n"


_TEXT_OF_30_MB = b'"' + b"x" * 30_000_000 + b'"'
_NO_TEXT_OF_20_MB = b'"\\ud800' + b"x" * 20_000_000 + b'"'
_VALUES_OF_20_MB = b"[" + b"[]," * 7_000_000 + b"0]"

_ERROR = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"

FLOODS: Mapping[str, Flood] = {
    "comments": Flood("comments without end", _stream(lambda: b": x\n\n" * 10_000)),
    "empty_deltas": Flood("deltas without text", _stream(lambda: _chunk(content="") * 1000)),
    "models": Flood("another model in each event", _stream(lambda: _models() * 50)),
    "text": Flood("text without end, in large deltas", _stream(lambda: _chunk(content="x" * MIB))),
    "small_text": Flood("text without end, in small deltas", _stream(lambda: _chunk(content="word ") * 1000)),
    "calls": Flood("5,000 calls, again and again", _stream(_calls)),
    "repeated_names": Flood("a call that tells its name in each fragment", _stream(_repeated_names)),
    "details": Flood("reasoning details", _stream(_details)),
    "events_of_30_mb": Flood("events of 30 MB with one text", _stream(lambda: _json(_TEXT_OF_30_MB))),
    "events_of_values": Flood("events of 20 MB of small values", _stream(lambda: _json(_VALUES_OF_20_MB))),
    "events_of_surrogates": Flood("events of 20 MB, no UTF-8", _stream(lambda: _json(_NO_TEXT_OF_20_MB))),
    "nested": Flood("events of 10 MB of brackets", _stream(lambda: _json(b"[" * 10_000_000))),
    "line": Flood("a line without end", _stream(lambda: b"x" * MIB)),
    "lines_of_data": Flood("an event of empty lines without end", _stream(lambda: b"data:\n" * 100_000)),
    "error_body": Flood("an error without end", lambda: (_ERROR + b"\r\n" + b'{"error":{"message":"', b"x" * MIB)),
    "error_bomb": Flood("an error of gzip", _packed_stream(lambda: b"[]," * (16 * MIB), _ERROR)),
    "json_bomb": Flood("JSON of gzip instead of a stream", _packed_stream(lambda: b"[]," * (16 * MIB), _JSON)),
    "stream_bomb": Flood(
        "a stream of gzip with nothing in it", _packed_stream(lambda: b": " + b" " * (64 * MIB) + b"\n")
    ),
    "event_bomb": Flood("an event of gzip without end", _packed_stream(lambda: b"data: " + b" " * (64 * MIB))),
    "provisional": Flood("answers 100 without end", lambda: (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000)),
    "headers": Flood("headers without end", lambda: (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 10_000)),
    "tiny_chunks": Flood(
        "a byte in each chunk of HTTP",
        lambda: (_STREAM + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n:\r\n" * 50_000),
    ),
}
"""By name of the model."""


def _models() -> bytes:
    return b"".join(b'data: {"model":"%d%s","choices":[]}\n\n' % (n, b"m" * 2000) for n in range(20))


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    made: dict[str, tuple[bytes, bytes]] = _made
    try:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            size = re.search(rb"(?i)content-length: *(\d+)", head)
            body = await reader.readexactly(int(size[1]) if size else 0)
            found = _MODEL.search(body)
            name = found[1].decode() if found else "comments"
            if name not in made:
                made[name] = FLOODS[name].make()
            first, again = made[name]
            writer.write(first)
            while True:
                writer.write(again)
                await writer.drain()
                await asyncio.sleep(0)
    finally:
        writer.transport.abort()


_made: dict[str, tuple[bytes, bytes]] = {}


if __name__ == "__main__":
    os.nice(5)
    run(listen(_serve))
