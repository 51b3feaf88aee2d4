"""Requests that are large, slow, or much larger inside than outside."""

import asyncio
import contextlib
import gzip
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from bench.attacks.attack import Attack, Target
from bench.attacks.wire import END_HEADERS, HEADERS, MAX_FRAME, Wire, call, frame, message, wire

SEND = "/opencode.message.MessageService/SendMessage"
GET = "/opencode.session.SessionService/GetSession"

CONNECTIONS = 16


class _Request(NamedTuple):
    """A request that repeats a few bytes, so that who sends it needs no memory."""

    path: str
    size: int
    """Bytes that are sent of its message."""
    announced: int
    """Bytes that its message would have."""
    piece: bytes = b"\xff" * MAX_FRAME
    flags: int = 0
    more: tuple[tuple[str, str], ...] = ()
    """Further headers."""

    @property
    def head(self) -> bytes:
        """The headers of the call."""
        return call(self.path, more=self.more)

    @property
    def is_whole(self) -> bool:
        """Whether all of it is sent."""
        return self.size == self.announced


async def _each(target: Target, count: int, attack: Callable[[Wire], Awaitable[None]]) -> None:
    """Runs an attack on so many connections, and on a new one whenever one is closed."""

    async def again() -> None:
        while True:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                async with wire(target.host_and_port()) as one:
                    await attack(one)
            await asyncio.sleep(0.05)

    await asyncio.gather(*(again() for _ in range(count)))


async def _send_many(one: Wire, streams: int, kind: _Request) -> None:
    """Sends a request on several streams at once; the next one on each when the server has ended it."""
    numbers = itertools.count(1, 2)

    async def send() -> None:
        while True:
            stream = next(numbers)
            await one.send(frame(HEADERS, END_HEADERS, stream, kind.head))
            await _send_one(one, stream, kind)
            await one.until_ended(stream)

    tasks = [asyncio.create_task(send()) for _ in range(streams)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send_one(one: Wire, stream: int, kind: _Request) -> None:
    """Sends the message of a request in pieces, as the windows allow. Gives up when the server has ended it."""
    await one.send_body(stream, message(b"", flags=kind.flags, announced=kind.announced))
    rest = kind.size
    while rest and stream not in one.gone:
        piece = kind.piece[:rest]
        rest -= len(piece)
        await one.send_body(stream, piece, end=kind.is_whole and not rest)


async def _until_closed(one: Wire) -> None:
    while not one.is_closed:
        await asyncio.sleep(0.05)


def _flood(connections: int, streams: int, *kinds: _Request) -> Callable[[Target], Awaitable[None]]:
    """Returns an attack: each connection sends requests of one kind on so many streams at once, again and again."""

    async def run(target: Target) -> None:
        share = connections // len(kinds)
        await asyncio.gather(*(_each(target, share, partial(_send_many, streams=streams, kind=kind)) for kind in kinds))

    return run


async def _slow(target: Target) -> None:
    async def hold(one: Wire) -> None:
        numbers = itertools.count(1, 2)
        for _ in range(500):
            stream = next(numbers)
            await one.send(frame(HEADERS, END_HEADERS, stream, call(SEND)))
            await one.send_body(stream, message(b"\x0a", announced=10_000_000))
        await _until_closed(one)

    await _each(target, 20, hold)


async def _bombs(target: Target) -> None:
    body = gzip.compress(b"\0" * (16 * 2**20 - 64), 9)
    packed = call(SEND, more=(("grpc-encoding", "gzip"),))

    async def send(one: Wire) -> None:
        for stream in itertools.count(1, 2):
            await one.send(frame(HEADERS, END_HEADERS, stream, packed))
            await one.send_body(stream, message(body, flags=1), end=True)
            while stream // 2 - one.ended > 50:
                await asyncio.sleep(0.001)
                if one.is_closed:
                    return

    await _each(target, CONNECTIONS, send)


_LARGE = _Request(SEND, 62 * 2**20, 62 * 2**20)
_UNFINISHED = _Request(SEND, 15 * 2**20 - 1, 15 * 2**20)
_SMALL_UNFINISHED = _Request(SEND, 60 * 1024 - 1, 60 * 1024)
_LONGEST = 2**32 - 1
_ANNOUNCED = (
    _Request(GET, _LONGEST // 2, _LONGEST),
    _Request(GET, _LONGEST // 2, _LONGEST, flags=1),
    _Request(GET, _LONGEST // 2, _LONGEST, flags=1, more=(("grpc-encoding", "gzip"),)),
    _Request(GET, 15 * 2**20 - 1, 15 * 2**20, flags=1, more=(("grpc-encoding", "gzip"),)),
)
# parts without content: two bytes on the wire, and a hundred times as much in memory
_FIELDS = _Request(SEND, 14 * 2**20, 14 * 2**20, piece=b"\x12\x00" * (MAX_FRAME // 2))
# fields that nobody knows, and that a message keeps
_WHOLE = _Request(SEND, 14 * 2**20, 14 * 2**20, piece=b"\x78\x01" * (MAX_FRAME // 2))

ATTACKS = (
    Attack("whole_requests", "100 connections, each with requests of 14 MiB", _flood(100, 1, _WHOLE)),
    Attack("large_requests", "16 x 8 requests of 62 MiB", _flood(16, 8, _LARGE)),
    Attack("unfinished_requests", "16 x 8 requests of 15 MiB without their last byte", _flood(16, 8, _UNFINISHED)),
    Attack("lone_requests", "1,000 connections, each with such a request", _flood(1_000, 1, _UNFINISHED)),
    Attack("small_requests", "20 x 1,000 of 60 KiB without their last byte", _flood(20, 1_000, _SMALL_UNFINISHED)),
    Attack("announced_requests", "messages of 4 GiB, plain and compressed", _flood(32, 8, *_ANNOUNCED)),
    Attack("slow_requests", "10,000 calls whose request never comes", _slow),
    Attack("gzip_bombs", "16 KiB that become 16 MiB", _bombs),
    Attack("many_fields", "14 MiB of empty parts", _flood(4, 8, _FIELDS)),
)
