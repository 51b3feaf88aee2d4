"""Thousands of small things: sessions, tokens, watches, exports beside deletions, requests that trickle in."""

import asyncio
import base64
import contextlib
import itertools
import os
from collections import Counter

import grpc

from bench.attacks.attack import Attack, Target
from bench.attacks.costly_requests import again, caller
from bench.attacks.wire import END_HEADERS, HEADERS, call, data_frames, frame, message, wire
from opencode.event.event_pb2 import WatchEventsRequest
from opencode.event.event_pb2_grpc import EventServiceStub
from opencode.message import message_pb2
from opencode.session import session_pb2
from opencode.transfer import transfer_pb2, transfer_pb2_grpc

_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


async def _tiny_sessions(target: Target) -> None:
    """Sessions with one short turn each."""
    done = Counter[str]()
    part = message_pb2.MessagePart(text=message_pb2.TextPart(text="hello"))
    async with caller(target) as one:

        async def send() -> None:
            await one.messages.SendMessage(message_pb2.SendMessageRequest(parts=[part]))
            done["sessions"] += 1

        try:
            await asyncio.gather(*(again(send) for _ in range(32)))
        finally:
            print(dict(done))


async def _tokens(target: Target) -> None:
    """Resume tokens and page tokens: old, of other sessions, forged."""
    done = Counter[str]()
    async with caller(target) as one, grpc.aio.insecure_channel(target.address, options=_OPTIONS) as channel:
        events = EventServiceStub(channel)
        session_id, other = await one.new_session(), await one.new_session()
        await one.fill(session_id, 2000)
        stream = events.WatchEvents(WatchEventsRequest(session_id=session_id))
        token = next(filter(None, [batch.resume_token async for batch in _first(stream)]), "")
        forged = itertools.count()

        def tokens() -> list[tuple[str, str]]:
            random = base64.urlsafe_b64encode(os.urandom(60)).decode()
            page = base64.urlsafe_b64encode(b'["messages of %d",1]' % next(forged)).decode()
            return [(session_id, token), (other, token), ("", token), (session_id, random), (session_id, page * 4)]

        async def watch() -> None:
            for session, resume in tokens():
                with contextlib.suppress(grpc.aio.AioRpcError):
                    request = WatchEventsRequest(session_id=session, resume_token=resume)
                    async for _ in _first(events.WatchEvents(request)):
                        done["watches"] += 1

        async def page() -> None:
            for name in ("x", "W10", "W" + "1" * 90_000, base64.urlsafe_b64encode(b'["a",' + b"[" * 60_000).decode()):
                request = message_pb2.ListMessagesRequest(session_id=session_id, page_size=10, page_token=name)
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await one.messages.ListMessages(request)
                done["pages"] += 1
            await one.sessions.ListSessions(session_pb2.ListSessionsRequest(page_size=1))

        try:
            await asyncio.gather(*(again(what) for what in (watch, page) for _ in range(16)))
        finally:
            print(dict(done))


async def _first(stream):  # type: ignore[no-untyped-def]
    async for answer in stream:
        yield answer
        stream.cancel()
        return


async def _watch_storm(target: Target) -> None:
    """Watches of all sessions that are opened and closed, beside 60 answers that stream."""
    opened = 0
    async with caller(target) as one, grpc.aio.insecure_channel(target.address, options=_OPTIONS) as channel:
        events = EventServiceStub(channel)
        part = message_pb2.MessagePart(text=message_pb2.TextPart(text="/rate 20\n/words 100000"))
        for _ in range(60):
            await one.messages.SendMessage(message_pb2.SendMessageRequest(parts=[part]))

        async def watch() -> None:
            nonlocal opened
            async for _ in _first(events.WatchEvents(WatchEventsRequest())):
                opened += 1

        try:
            await asyncio.gather(*(again(watch) for _ in range(64)))
        finally:
            print(f"opened: {opened}")


async def _exports(target: Target) -> None:
    """Exports of all sessions, while they are deleted and made."""
    done = Counter[str]()
    async with caller(target) as one, grpc.aio.insecure_channel(target.address, options=_OPTIONS) as channel:
        transfer = transfer_pb2_grpc.TransferServiceStub(channel)
        sessions = [await one.new_session() for _ in range(20)]
        for session_id in sessions:
            await one.fill(session_id, 500)

        async def export() -> None:
            request = transfer_pb2.ExportSessionsRequest()
            async for _ in transfer.ExportSessions(request):
                done["pieces"] += 1
            done["exports"] += 1

        async def delete() -> None:
            if sessions:
                request = session_pb2.DeleteSessionRequest(session_id=sessions.pop())
                await one.sessions.DeleteSession(request)
                done["deleted"] += 1
            new = await one.new_session()
            await one.fill(new, 200)
            sessions.insert(0, new)

        try:
            await asyncio.gather(*(again(export) for _ in range(4)), *(again(delete) for _ in range(4)))
        finally:
            print(dict(done))


async def _trickles(target: Target) -> None:
    """3,000 requests of which a byte comes now and then; another client's large request has to come meanwhile."""
    head = call("/opencode.message.MessageService/SendMessage")
    begun = message(b"x" * 1000)[:100]
    refused, told = 0, Counter[str]()

    async def trickle() -> None:
        with contextlib.suppress(ConnectionError):
            async with wire(target.host_and_port()) as one:
                for stream in range(1, 1500, 2):
                    await one.send(frame(HEADERS, END_HEADERS, stream, head) + data_frames(stream, begun))
                while not one.is_closed:
                    await asyncio.sleep(3)
                    for stream in range(1, 1500, 2):
                        await one.send(data_frames(stream, b"x"))

    async def large() -> None:
        """Comes in pieces, over a second: more than a request keeps its place."""
        nonlocal refused
        body = message(message_pb2.SendMessageRequest(parts=[_large()]).SerializeToString())
        async with wire(target.host_and_port()) as one:
            for stream in itertools.count(1, 2):
                await asyncio.sleep(1)
                before = one.ended
                await one.send(frame(HEADERS, END_HEADERS, stream, head))
                for at in range(0, len(body), 50_000):
                    await one.send_body(stream, body[at : at + 50_000], end=at + 50_000 >= len(body))
                    await asyncio.sleep(0.05)
                    if one.ended > before:
                        break
                told["ended early" if at + 50_000 < len(body) else "sent"] += 1

    def _large() -> message_pb2.MessagePart:
        return message_pb2.MessagePart(text=message_pb2.TextPart(text="x" * 500_000))

    try:
        await asyncio.gather(*(trickle() for _ in range(4)), large())
    finally:
        print(dict(told))


ATTACKS = (
    Attack("tiny_sessions", "sessions with one short turn, as many as can be", _tiny_sessions, seconds=20),
    Attack("tokens", "resume tokens and page tokens that are old, foreign or forged", _tokens),
    Attack("watch_storm", "64 clients that open and close watches of all sessions", _watch_storm),
    Attack("exports", "exports of all sessions while they are deleted", _exports, seconds=20),
    Attack("trickles", "3,000 requests that come a byte at a time", _trickles, seconds=15),
)
