"""Streams whose events are large, and web calls, of clients that read none of them."""

import asyncio
import contextlib

from bench.attacks.attack import Attack, Target
from bench.attacks.costly_requests import caller, surely
from bench.attacks.wire import END_HEADERS, HEADERS, call, data_frames, frame, message, wire
from opencode.event import event_pb2
from opencode.message import message_pb2
from opencode.message.content_pb2 import MESSAGE_TYPE_USER

CONNECTIONS, STREAMS, SESSIONS = 8, 25, 100
MESSAGE_BYTES = 12 * 2**20
SMALL_BYTES = 15 * 1024
"""Answers up to 16 KiB have no place."""

_WATCH = "/opencode.event.EventService/WatchEvents"
_SUBSCRIBE = "/opencode.event.EventService/SubscribeGlobalEvents"
_GET = "/opencode.message.MessageService/GetMessage"
_NO_WINDOW = (4).to_bytes(2, "big") + bytes(4)
_SMALL_WINDOW = (4).to_bytes(2, "big") + (8192).to_bytes(4, "big")


def _large(session_id: str, size: int = MESSAGE_BYTES) -> message_pb2.AppendMessageRequest:
    part = message_pb2.MessagePart(text=message_pb2.TextPart(text="word " * (size // 5)))
    return message_pb2.AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[part])


async def _hold(target: Target, path: str, requests: list[bytes]) -> None:
    """Opens 25 streams on each of eight connections, which are opened again when they are closed."""

    async def again(number: int) -> None:
        while True:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                async with wire(target.host_and_port(), _SMALL_WINDOW) as one:
                    for place in range(STREAMS):
                        request = requests[(number * STREAMS + place) % len(requests)]
                        await one.send(frame(HEADERS, END_HEADERS, 2 * place + 1, call(path)))
                        await one.send(data_frames(2 * place + 1, message(request), end=True))
                    while not one.is_closed:
                        await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)

    await asyncio.gather(*(again(number) for number in range(CONNECTIONS)))


async def _replays(target: Target) -> None:
    """Watches from the beginning of a session with a large message."""
    async with caller(target) as one:
        session_id = await one.new_session()
        await surely(lambda: one.messages.AppendMessage(_large(session_id)))
    request = event_pb2.WatchEventsRequest(session_id=session_id, after_sequence=0)
    await _hold(target, _WATCH, [request.SerializeToString()])


async def _sessions(target: Target) -> None:
    """Watches of many sessions, each of which gets a large message."""
    async with caller(target) as one:
        ids = [await one.new_session() for _ in range(SESSIONS)]

        async def append() -> None:
            await asyncio.sleep(2)
            for session_id in ids:
                await surely(lambda session_id=session_id: one.messages.AppendMessage(_large(session_id)))
            print("all are appended")

        requests = [event_pb2.WatchEventsRequest(session_id=one_id).SerializeToString() for one_id in ids]
        await asyncio.gather(append(), _hold(target, _WATCH, requests))


async def _small(target: Target) -> None:
    """Thousands of streams, each with as much unread as has no place."""
    async with caller(target) as one:
        session_id = await one.new_session()
        await surely(lambda: one.messages.AppendMessage(_large(session_id, SMALL_BYTES)))
    request = event_pb2.WatchEventsRequest(session_id=session_id, after_sequence=0).SerializeToString()
    head, opened = call(_WATCH), [0]

    async def again() -> None:
        while True:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                async with wire(target.host_and_port(), _NO_WINDOW) as one:
                    for place in range(100):
                        await one.send(frame(HEADERS, END_HEADERS, 2 * place + 1, head))
                        await one.send(data_frames(2 * place + 1, message(request), end=True))
                    opened[0] += 100
                    while not one.is_closed:
                        await asyncio.sleep(0.5)
            await asyncio.sleep(0.05)

    try:
        await asyncio.gather(*(again() for _ in range(100)))
    finally:
        print(f"streams: {opened[0]}")


async def _subscriptions(target: Target) -> None:
    """Simple streams of all sessions, of which one gets a large message."""
    async with caller(target) as one:
        session_id = await one.new_session()

        async def append() -> None:
            await asyncio.sleep(2)
            await surely(lambda: one.messages.AppendMessage(_large(session_id)))

        await asyncio.gather(append(), _hold(target, _SUBSCRIBE, [b""]))


async def _web(target: Target) -> None:
    """Calls over HTTP/1.1 whose large answers are not read."""
    async with caller(target) as one:
        session_id = await one.new_session()
        appended = await surely(lambda: one.messages.AppendMessage(_large(session_id)))
    request = message_pb2.GetMessageRequest(session_id=session_id, message_id=appended.message_id)
    body = request.SerializeToString()
    host = f"host: {target.web}\r\ncontent-type: application/proto\r\ncontent-length: {len(body)}\r\n\r\n"
    head = f"POST {_GET} HTTP/1.1\r\n{host}"

    async def again() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(*target.host_and_port(web=True), limit=1024)
                writer.write(head.encode() + body)
                while not reader.at_eof() and not writer.is_closing():
                    await asyncio.sleep(0.1)
                writer.close()
            await asyncio.sleep(0.05)

    await asyncio.gather(*(again() for _ in range(200)))


ATTACKS = (
    Attack("unread_replays", "200 watches that begin with a message of 12 MiB that nobody reads", _replays),
    Attack("unread_sessions", "100 sessions with a watch and a message of 12 MiB each", _sessions, seconds=25.0),
    Attack("unread_small", "10,000 watches with 15 KiB that nobody reads", _small, seconds=40.0),
    Attack("unread_subscriptions", "200 simple streams that do not read a message of 12 MiB", _subscriptions),
    Attack("web_unread", "200 web calls with answers of 12 MiB that nobody reads", _web),
)
