"""Requests that are large, slow, or much larger inside than outside."""

import asyncio
import contextlib
import gzip
import itertools

from bench.attacks.attack import Attack, Target
from bench.attacks.wire import END_HEADERS, HEADERS, Wire, call, frame, message, wire

SEND = "/opencode.message.MessageService/SendMessage"
GET = "/opencode.session.SessionService/GetSession"

CONNECTIONS, STREAMS = 16, 8


async def _each(target: Target, count: int, attack: object) -> None:
    """Runs an attack on so many connections, and on a new one whenever one is closed."""

    async def again() -> None:
        while True:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                async with wire(target.host_and_port()) as one:
                    await attack(one)  # type: ignore[operator]
            await asyncio.sleep(0.05)

    await asyncio.gather(*(again() for _ in range(count)))


async def _send_many(one: Wire, path: str, size: int, body: bytes, *, flags: int = 0, whole: bool) -> None:
    """Sends the same body on several streams at once, again and again; leaves out the last byte unless `whole`."""
    numbers = itertools.count(1, 2)

    async def send() -> None:
        while True:
            stream = next(numbers)
            await one.send(frame(HEADERS, END_HEADERS, stream, call(path)))
            data = message(body, flags=flags, announced=size)
            await one.send_body(stream, data if whole else data[:-1], end=whole)
            if not whole:
                await asyncio.Event().wait()

    tasks = [asyncio.create_task(send()) for _ in range(STREAMS)]
    closed = asyncio.create_task(_until_closed(one))
    try:
        await asyncio.wait((*tasks, closed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*tasks, closed):
            task.cancel()
        await asyncio.gather(*tasks, closed, return_exceptions=True)


async def _until_closed(one: Wire) -> None:
    while not one.is_closed:
        await asyncio.sleep(0.05)


async def _large(target: Target) -> None:
    body = b"\xff" * (62 * 2**20)
    await _each(target, CONNECTIONS, lambda one: _send_many(one, SEND, len(body), body, whole=True))


async def _large_unfinished(target: Target) -> None:
    body = b"\xff" * (15 * 2**20)
    await _each(target, CONNECTIONS, lambda one: _send_many(one, SEND, len(body), body, whole=False))


async def _announced(target: Target) -> None:
    body = b"\0" * (1 << 30)
    await _each(target, 4, lambda one: _send_many(one, GET, 2**32 - 1, body, flags=1, whole=False))


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


async def _many_fields(target: Target) -> None:
    """Parts without content: two bytes on the wire, and a hundred times as much in memory."""
    body = b"\x12\x00" * (7 * 2**20)
    await _each(target, 4, lambda one: _send_many(one, SEND, len(body), body, whole=True))


ATTACKS = (
    Attack("large_requests", "16 x 8 requests of 62 MiB", _large),
    Attack("unfinished_requests", "16 x 8 requests of 15 MiB without their last byte", _large_unfinished),
    Attack("announced_requests", "compressed messages of 4 GiB", _announced),
    Attack("slow_requests", "10,000 calls whose request never comes", _slow),
    Attack("gzip_bombs", "16 KiB that become 16 MiB", _bombs),
    Attack("many_fields", "14 MiB of empty parts", _many_fields),
)
