"""Clients that ask for answers and read none of them."""

import asyncio
import base64
import contextlib
import re

from bench.attacks.attack import Attack, Prepared, Seen, Target
from bench.attacks.many_calls import GET, WATCH, closed, connected
from bench.attacks.services import new_session, said, services, stored
from bench.attacks.wire import ATTACKER, END_HEADERS, HEADERS, Wire, call, data_frames, frame, message
from opencode.event.event_pb2 import WatchEventsRequest
from opencode.message.message_pb2 import GetMessageRequest
from opencode.session.session_pb2 import GetSessionRequest

_MESSAGE = "/opencode.message.MessageService/GetMessage"
_CHECK_HEALTH = "/grpc.health.v1.Health/Check"

_SMALL_WINDOW = (4).to_bytes(2, "big") + (16).to_bytes(4, "big")
"""Settings: the server may send 16 bytes on a stream. A refusal needs them: gRPC sends an empty message before it."""

_DETAILS = re.compile(rb'"value":"([^"]*)"')
"""Finds the details of an error of Connect."""


async def _unread(target: Target, seen: Seen, path: str, body: bytes, connections: int, streams: int) -> None:
    """Asks on so many streams of each of so many connections, and takes no answer."""
    head = call(path)

    async def ask(one: Wire) -> None:
        calls = (
            frame(HEADERS, END_HEADERS, stream, head) + data_frames(stream, message(body), end=True)
            for stream in range(1, 2 * streams, 2)
        )
        await one.send(b"".join(calls))
        await closed(one)

    await connected(target, seen, connections, ask, _SMALL_WINDOW)


async def _small(target: Target, seen: Seen) -> None:
    request = GetSessionRequest(session_id=await new_session(target))
    await _unread(target, seen, GET, request.SerializeToString(), 5, 1_000)


async def _checks(target: Target, seen: Seen) -> None:
    await _unread(target, seen, _CHECK_HEALTH, b"", 10, 1_000)


async def _messages(target: Target, seen: Seen) -> None:
    session_id, message_id = await stored(target, "word " * 800_000)
    request = GetMessageRequest(session_id=session_id, message_id=message_id)
    await _unread(target, seen, _MESSAGE, request.SerializeToString(), 8, 25)


async def _deaf_watchers(target: Target, seen: Seen) -> None:
    """Watchers of one answer who never read, though their connections are alive."""
    session_id = await new_session(target)
    request = WatchEventsRequest(session_id=session_id).SerializeToString()

    async def answer() -> None:
        async with services(target) as one:
            await asyncio.sleep(1)
            await one.messages.SendMessage(said("/rate 2000\n/words 10000", session_id))

    await asyncio.gather(answer(), _unread(target, seen, WATCH, request, 6, 500))


async def _web_messages(target: Target, seen: Seen) -> None:
    """Over HTTP/1.1, a call on each of 100 connections. The system's own buffers take some 4 MB of each answer."""
    session_id, message_id = await stored(target, "word " * 2_400_000)
    body = GetMessageRequest(session_id=session_id, message_id=message_id).SerializeToString()
    head = (
        f"POST {_MESSAGE} HTTP/1.1\r\nhost: {target.web}\r\ncontent-type: application/proto\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )

    async def again() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    *target.host_and_port(web=True), limit=4096, local_addr=ATTACKER
                )
                try:
                    writer.write(head.encode() + body)
                    began = await reader.read(4096)
                    for details in _DETAILS.findall(began):
                        seen.note(base64.b64decode(details + b"=="))
                    if b" 200 " in began[:16]:
                        await asyncio.sleep(3600)
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.05)

    await asyncio.gather(*(again() for _ in range(100)))


ATTACKS = (
    Attack(
        "small_unread",
        "5,000 small answers that nobody reads, where an address may have 1,000 calls",
        ("limits.max_calls_per_address",),
        "further calls of the address",
        _small,
        lambda _: Prepared("[limits]\nmax_calls_per_address = 1000\n"),
        seconds=6.0,
    ),
    Attack(
        "health_unread",
        "10,000 health checks that nobody reads",
        (),
        "nothing: bounded by streams and connections",
        _checks,
    ),
    Attack(
        "unread_messages",
        "200 answers of 4 MB that nobody reads",
        ("limits.max_sending_bytes",),
        "further large answers",
        _messages,
        seconds=5.0,
    ),
    Attack(
        "deaf_watchers",
        "3,000 watches of an answer that nobody reads",
        (),
        "nothing: the streams wait",
        _deaf_watchers,
        seconds=5.0,
    ),
    Attack(
        "web_unread",
        "100 calls over HTTP/1.1 with answers of 12 MB that nobody reads",
        ("limits.max_sending_bytes",),
        "further large answers",
        _web_messages,
    ),
)
