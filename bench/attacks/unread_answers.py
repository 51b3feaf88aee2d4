"""Clients that ask for large answers and read none of them."""

import asyncio
import contextlib

import grpc

from bench.attacks.attack import Attack, Target
from bench.attacks.costly_requests import LONG_LISTS, caller, surely
from bench.attacks.wire import END_HEADERS, HEADERS, call, data_frames, frame, message, wire
from opencode.event import event_pb2
from opencode.message import message_pb2
from opencode.message.content_pb2 import MESSAGE_TYPE_USER

CONNECTIONS, STREAMS = 8, 25
MESSAGE_BYTES = 12 * 2**20

_NO_WINDOW = (4).to_bytes(2, "big") + bytes(4)
"""Settings: the server may send nothing on a stream."""
_SMALL_WINDOW = (4).to_bytes(2, "big") + (8192).to_bytes(4, "big")
"""What watches get before the message comes."""


async def _long_message(target: Target) -> tuple[str, str]:
    """Returns a session and its one large message."""
    async with caller(target) as one:
        session_id = await one.new_session()
        part = message_pb2.MessagePart(text=message_pb2.TextPart(text="word " * (MESSAGE_BYTES // 5)))
        append = message_pb2.AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[part])
        return session_id, str((await surely(lambda: one.messages.AppendMessage(append))).message_id)


async def _hold(target: Target, path: str, request: bytes, settings: bytes = _NO_WINDOW) -> None:
    async def again() -> None:
        while True:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                async with wire(target.host_and_port(), settings) as one:
                    for stream in range(1, 2 * STREAMS, 2):
                        await one.send(frame(HEADERS, END_HEADERS, stream, call(path)))
                        await one.send(data_frames(stream, message(request), end=True))
                    while not one.is_closed:
                        await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)

    async def refused() -> None:
        """Counts what others are refused meanwhile."""
        answered = refused = 0
        try:
            async with caller(target) as one:
                while True:
                    try:
                        await one.new_session()
                        answered += 1
                    except grpc.aio.AioRpcError:
                        refused += 1
                    await asyncio.sleep(0.05)
        finally:
            print(f"new sessions of others: {answered}")

    await asyncio.gather(refused(), *(again() for _ in range(CONNECTIONS)))


async def _messages(target: Target) -> None:
    session_id, message_id = await _long_message(target)
    request = message_pb2.GetMessageRequest(session_id=session_id, message_id=message_id)
    await _hold(target, "/opencode.message.MessageService/GetMessage", request.SerializeToString())


async def _lists(target: Target) -> None:
    session_id, _ = await _long_message(target)
    request = message_pb2.GetMessagesRequest(session_id=session_id)
    await _hold(target, "/opencode.message.MessageService/GetMessages", request.SerializeToString())


async def _pages(target: Target) -> None:
    session_id, _ = await _long_message(target)
    request = message_pb2.ListMessagesRequest(session_id=session_id, page_size=10)
    await _hold(target, "/opencode.message.MessageService/ListMessages", request.SerializeToString())


async def _watches(target: Target) -> None:
    """All get a large message at once, and none reads it."""
    async with caller(target) as one:
        session_id = await one.new_session()
        request = event_pb2.WatchEventsRequest(session_id=session_id)

        async def append() -> None:
            await asyncio.sleep(2)
            part = message_pb2.MessagePart(text=message_pb2.TextPart(text="word " * (MESSAGE_BYTES // 5)))
            append = message_pb2.AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[part])
            await surely(lambda: one.messages.AppendMessage(append))

        watching = _hold(target, "/opencode.event.EventService/WatchEvents", request.SerializeToString(), _SMALL_WINDOW)
        await asyncio.gather(append(), watching)


ATTACKS = (
    Attack("unread_messages", "200 answers of 12 MiB that nobody reads", _messages),
    Attack("unread_lists", "200 conversations of 12 MiB that nobody reads", _lists, LONG_LISTS),
    Attack("unread_watches", "200 watches of a message of 12 MiB that nobody reads", _watches),
    Attack("unread_pages", "200 pages of 12 MiB that nobody reads", _pages),
)
