"""Requests that are large, slow, or much larger inside than outside."""

import asyncio
import contextlib
import gzip
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from bench.attacks.attack import TOO_MANY, Attack, Seen, Target
from bench.attacks.many_calls import LIST
from bench.attacks.services import LARGE, new_session
from bench.attacks.wire import ATTACKER, END_HEADERS, HEADERS, MAX_FRAME, Wire, call, data_frames, frame, message, wire
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest, MessagePart, TextPart
from opencode.session.session_pb2 import ListSessionsRequest

APPEND = "/opencode.message.MessageService/AppendMessage"
SEND = "/opencode.message.MessageService/SendMessage"


class _Request(NamedTuple):
    """A request that repeats a few bytes, so that who sends it needs no memory."""

    size: int
    """Bytes that are sent of its message."""
    announced: int
    """Bytes that its message would have."""
    piece: bytes = b"\xff" * MAX_FRAME

    async def send(self, one: Wire, stream: int) -> None:
        """Sends the message in pieces, as the windows allow. Gives up when the server has ended the stream."""
        await one.send_body(stream, message(b"", announced=self.announced))
        rest = self.size
        while rest and stream not in one.gone:
            piece = self.piece[:rest]
            rest -= len(piece)
            await one.send_body(stream, piece, end=self.size == self.announced and not rest)


_UNFINISHED = _Request(15 * 2**20 - 1, 15 * 2**20)
_SMALL_UNFINISHED = _Request(60 * 1024 - 1, 60 * 1024)
# parts without content: two bytes on the wire, and a hundred times as much in memory
_FIELDS = _Request(14 * 2**20, 14 * 2**20, b"\x12\x00" * (MAX_FRAME // 2))
# fields that nobody knows, and that a message keeps
_WHOLE = _Request(14 * 2**20, 14 * 2**20, b"\x78\x01" * (MAX_FRAME // 2))


async def _each(target: Target, seen: Seen, count: int, attack: Callable[[Wire], Awaitable[None]]) -> None:
    """Runs an attack on so many connections, and on a new one whenever one is closed."""

    async def again() -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with wire(target.host_and_port(), seen=seen) as one:
                    await attack(one)
            await asyncio.sleep(0.05)

    await asyncio.gather(*(again() for _ in range(count)))


def _flood(connections: int, streams: int, kind: _Request) -> Callable[[Target, Seen], Awaitable[None]]:
    """Returns an attack: each connection sends requests on so many streams at once, again and again."""

    async def many(one: Wire) -> None:
        numbers = itertools.count(1, 2)

        async def send() -> None:
            while True:
                stream = next(numbers)
                await one.send(frame(HEADERS, END_HEADERS, stream, call(SEND)))
                await kind.send(one, stream)
                await one.until_ended(stream)

        async with asyncio.TaskGroup() as group:
            for _ in range(streams):
                group.create_task(send())

    async def run(target: Target, seen: Seen) -> None:
        await _each(target, seen, connections, many)

    return run


async def _slow(target: Target, seen: Seen) -> None:
    async def hold(one: Wire) -> None:
        for stream in range(1, 500, 2):
            head = frame(HEADERS, END_HEADERS, stream, call(SEND))
            await one.send(head + data_frames(stream, message(b"\x0a", announced=10_000_000)))
        await _closed(one)

    await _each(target, seen, 20, hold)


async def _bombs(target: Target, seen: Seen) -> None:
    body = message(gzip.compress(b"\0" * (16 * 2**20 - 64), 9), flags=1)
    packed = call(SEND, more=(("grpc-encoding", "gzip"),))
    await _each(target, seen, 16, partial(_repeat, head=packed, body=body))


def _messages(connections: int, at_once: int, text: str) -> Callable[[Target, Seen], Awaitable[None]]:
    """Returns an attack: each connection stores so many messages at once, again and again.

    It begins with small requests, as if it were an honest one.
    """

    async def run(target: Target, seen: Seen) -> None:
        part = MessagePart(text=TextPart(text=text))
        request = AppendMessageRequest(session_id=await new_session(target), type=MESSAGE_TYPE_USER, parts=[part])
        body = message(request.SerializeToString())
        small = message(ListSessionsRequest(page_size=1).SerializeToString())

        async def store(one: Wire) -> None:
            numbers = itertools.count(1, 2)

            async def send(path: str, body: bytes) -> None:
                stream = next(numbers)
                await one.send(frame(HEADERS, END_HEADERS, stream, call(path)))
                await one.send_body(stream, body, end=True)
                await one.until_ended(stream)

            async def again() -> None:
                while True:
                    await send(APPEND, body)

            for _ in range(10):
                await send(LIST, small)

            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(again())

        await _each(target, seen, connections, store)

    return run


async def _small_first(target: Target, seen: Seen) -> None:
    """Networks send small requests, and then each of them many large ones at once."""
    small, networks = message(ListSessionsRequest(page_size=1).SerializeToString()), 20
    ready = asyncio.Barrier(networks)

    async def attack(number: int) -> None:
        source = ATTACKER and (f"127.0.1.{number}", 0)
        async with wire(target.host_and_port(), seen=seen, source=source) as one:
            streams = itertools.count(1, 2)
            for stream in itertools.islice(streams, 10):
                await one.send(frame(HEADERS, END_HEADERS, stream, call(LIST)))
                await one.send_body(stream, small, end=True)
                await one.until_ended(stream)
            await ready.wait()

            async def send(stream: int) -> None:
                await one.send(frame(HEADERS, END_HEADERS, stream, call(SEND)))
                await _WHOLE.send(one, stream)
                await one.until_ended(stream)

            while True:
                async with asyncio.TaskGroup() as group:
                    for stream in itertools.islice(streams, 8):
                        group.create_task(send(stream))

    await asyncio.gather(*(attack(number) for number in range(1, networks + 1)))


async def _repeat(one: Wire, *, head: bytes, body: bytes, at_once: int = 50) -> None:
    """Sends a request again and again, so many at once."""
    for stream in itertools.count(1, 2):
        await one.send(frame(HEADERS, END_HEADERS, stream, head))
        await one.send_body(stream, body, end=True)
        if stream // 2 - one.ended >= at_once - 1:
            await one.until_ended(stream)


async def _closed(one: Wire) -> None:
    while not one.is_closed:
        await asyncio.sleep(0.05)


ATTACKS = (
    Attack(
        "whole_requests",
        "100 connections, each with requests of 14 MiB",
        ("limits.max_request_memory_bytes", "limits.max_memory_bytes"),
        "further large requests, and those that are not whole",
        _flood(100, 1, _WHOLE),
    ),
    Attack(
        "large_messages",
        "16 clients that store messages of 14 MiB",
        ("limits.max_request_memory_bytes", "limits.max_memory_bytes"),
        "further large requests, and those that are not whole",
        _messages(16, 1, LARGE),
        seconds=5.0,
    ),
    Attack(
        "many_messages",
        "50 clients that store two messages of 8 MiB each at a time",
        ("limits.max_request_memory_bytes", "limits.max_memory_bytes"),
        "further large requests, and those that are not whole",
        _messages(50, 2, "x" * 2**23),
        seconds=5.0,
    ),
    Attack(
        "lone_requests",
        "500 connections, each with a request of 15 MiB without its last byte",
        ("limits.max_memory_bytes",),
        "requests that are not whole",
        _flood(500, 1, _UNFINISHED),
    ),
    Attack(
        "small_first",
        "20 networks, each with 10 small requests and then 8 of 14 MiB at a time",
        ("limits.max_request_memory_bytes", "limits.max_memory_bytes"),
        "further large requests, and those that are not whole",
        _small_first,
    ),
    Attack(
        "small_requests",
        "20 x 1,000 of 60 KiB without their last byte",
        (),
        "nothing for 30 seconds: 16 KiB of each are in memory until its call begins",
        _flood(20, 1_000, _SMALL_UNFINISHED),
    ),
    Attack(
        "slow_requests",
        "5,000 calls whose request never comes",
        (),
        "nothing for 30 seconds",
        _slow,
    ),
    Attack("gzip_bombs", "16 KiB that become 16 MiB", (TOO_MANY,), "the request, before it is parsed", _bombs),
    Attack(
        "many_fields", "14 MiB of empty parts", (TOO_MANY,), "the request, before it is parsed", _flood(4, 8, _FIELDS)
    ),
)
