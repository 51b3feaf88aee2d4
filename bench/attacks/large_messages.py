"""Messages that are as large as they may be, whole, and of many clients at once."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable

import grpc

from bench.attacks.attack import Attack, Target
from bench.attacks.costly_requests import Caller, again, caller, surely
from bench.attacks.large_prompts import SILENT, WIDE, silent
from bench.attacks.wire import ATTACKER
from opencode.message import message_pb2
from opencode.message.content_pb2 import MESSAGE_TYPE_USER

_CLIENTS = 64

_PART = message_pb2.MessagePart(text=message_pb2.TextPart(text=WIDE))


def _clients(send: Callable[[Caller, str], Awaitable[object]]) -> Callable[[Target], Awaitable[None]]:
    """Returns an attack: so many clients send on a connection each, in a session each, again and again."""

    async def run(target: Target) -> None:
        sent = 0

        async def client() -> None:
            nonlocal sent
            async with caller(target) as one:
                session_id = await surely(one.new_session)

                async def once() -> None:
                    nonlocal sent
                    await send(one, session_id)
                    sent += 1

                await again(once)

        try:
            await asyncio.gather(*(client() for _ in range(_CLIENTS)))
        finally:
            print(f"sent: {sent}")

    return run


async def _append(one: Caller, session_id: str) -> None:
    request = message_pb2.AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[_PART])
    await one.messages.AppendMessage(request)


async def _leave(one: Caller, session_id: str) -> None:
    """Leaves when its message is there, and before it is stored."""
    request = message_pb2.AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[_PART])
    await one.messages.AppendMessage(request, timeout=0.5)


async def _web(target: Target) -> None:
    """The same by the web listener, in the protocol of Connect."""
    host, port = target.host_and_port(web=True)
    statuses = Counter[str]()

    async def client(body: bytes) -> None:
        head = (
            "POST /opencode.message.MessageService/AppendMessage HTTP/1.1\r\nHost: localhost\r\n"
            "Connect-Protocol-Version: 1\r\nContent-Type: application/proto\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        while True:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(host, port, local_addr=ATTACKER)
                try:
                    writer.write(head.encode())
                    writer.write(body)
                    statuses[(await reader.readline())[9:12].decode()] += 1
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.001)

    async with caller(target) as one:
        request = message_pb2.AppendMessageRequest(
            session_id=await surely(one.new_session), type=MESSAGE_TYPE_USER, parts=[_PART]
        )
    body = request.SerializeToString()
    try:
        await asyncio.gather(*(client(body) for _ in range(_CLIENTS)))
    finally:
        print(dict(statuses))


async def _streamed(target: Target) -> None:
    """Streams of turns whose model says nothing; each has brought a large message."""
    message = message_pb2.SendMessageRequest(parts=[_PART], model=SILENT)
    open_calls = list[grpc.aio.UnaryStreamCall[message_pb2.StreamMessageRequest, message_pb2.StreamMessageResponse]]()
    async with caller(target) as one:

        async def stream() -> None:
            call = one.messages.StreamMessage(message_pb2.StreamMessageRequest(message=message))
            await anext(aiter(call))
            open_calls.append(call)

        try:
            await asyncio.gather(*(again(stream) for _ in range(2)))
        finally:
            print(f"open: {len(open_calls)}")


ATTACKS = (
    Attack("large_messages", f"{_CLIENTS} clients that store messages of 14 MiB", _clients(_append), seconds=20),
    Attack("large_messages_left", "the same, whose clients leave soon", _clients(_leave), seconds=20),
    Attack("web_large_messages", "the same by the web listener", _web, seconds=20),
    Attack(
        "large_messages_streamed",
        "open streams of turns, each with a message of 14 MiB",
        _streamed,
        around=silent,
        seconds=20,
    ),
)
