"""Ten thousand watches that are all read: of one session while its answer streams, and of as many sessions."""

import asyncio
import contextlib
from typing import cast

from bench.attacks.attack import Attack, Target
from bench.attacks.costly_requests import caller, surely
from bench.attacks.wire import (
    ACK,
    END_HEADERS,
    HEADERS,
    LARGEST_WINDOW,
    PING,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    call,
    data_frames,
    frame,
    message,
)
from opencode.event.event_pb2 import WatchEventsRequest
from opencode.message.message_pb2 import MessagePart, SendMessageRequest, TextPart

WATCHES, CONNECTIONS = 9_990, 30
"""The neighbour has one too."""

_WATCH = "/opencode.event.EventService/WatchEvents"
_WIDE = (4).to_bytes(2, "big") + (2**31 - 1).to_bytes(4, "big")
_STREAM = "/rate 50\n/words 100000"


class _Reader(asyncio.Protocol):
    """A connection that takes all that comes, and counts it. A library would take longer than the server."""

    def __init__(self) -> None:
        self.frames = self.bytes = self.ended = 0
        self._rest = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(PREFACE + frame(SETTINGS, 0, 0, _WIDE))
        self._transport.write(frame(WINDOW_UPDATE, 0, 0, LARGEST_WINDOW.to_bytes(4, "big")))

    def data_received(self, data: bytes) -> None:
        data, at = self._rest + data, 0
        while at + 9 <= len(data) and at + 9 + (size := int.from_bytes(data[at : at + 3], "big")) <= len(data):
            kind, flags = data[at + 3], data[at + 4]
            if kind == PING and not flags & ACK:
                self._transport.write(frame(PING, ACK, 0, data[at + 9 : at + 9 + size]))
            elif kind == SETTINGS and not flags & ACK:
                self._transport.write(frame(SETTINGS, ACK, 0))
            self.ended += kind == HEADERS and flags & 1
            self.frames += kind == 0
            at += 9 + size
        self.bytes += at
        self._rest = data[at:]

    def watch(self, number: int, session_id: str) -> None:
        """Opens a stream."""
        request, stream = WatchEventsRequest(session_id=session_id).SerializeToString(), 2 * number + 1
        self._transport.write(frame(HEADERS, END_HEADERS, stream, call(_WATCH)))
        self._transport.write(data_frames(stream, message(request), end=True))

    def close(self) -> None:
        """Ends the connection."""
        self._transport.abort()


async def _watch(target: Target, sessions: int, answers: int) -> None:
    async with caller(target) as one, contextlib.AsyncExitStack() as stack:
        ids = [
            found
            for first in range(0, sessions, 200)
            for found in await asyncio.gather(*(one.new_session() for _ in range(min(200, sessions - first))))
        ]
        loop, readers = asyncio.get_running_loop(), list[_Reader]()
        for number in range(CONNECTIONS):
            _, reader = await loop.create_connection(_Reader, *target.host_and_port())
            stack.callback(reader.close)
            readers.append(reader)
            for place in range(WATCHES // CONNECTIONS):
                reader.watch(place, ids[(number + place * CONNECTIONS) % len(ids)])
                if place % 50 == 49:
                    await asyncio.sleep(0.05)
        opened = loop.time()
        text = MessagePart(text=TextPart(text=_STREAM))
        for session_id in ids[:answers]:
            await surely(
                lambda name=session_id: one.messages.SendMessage(SendMessageRequest(session_id=name, parts=[text]))
            )
        try:
            before = sum(reader.frames for reader in readers)
            await asyncio.Event().wait()
        finally:
            seconds = loop.time() - opened
            came = (sum(reader.frames for reader in readers) - before) / seconds
            print(f"{WATCHES} watches, {sum(reader.ended for reader in readers)} ended, {came:,.0f} frames a second")


async def _one_session(target: Target) -> None:
    await _watch(target, 1, 1)


async def _as_many_sessions(target: Target) -> None:
    await _watch(target, WATCHES, 100)


ATTACKS = (
    Attack("watchers_one_session", "10,000 watches of one answer, all read", _one_session, seconds=40.0),
    Attack(
        "watchers_many_sessions",
        "10,000 watches of as many sessions, 100 of which stream",
        _as_many_sessions,
        seconds=60.0,
    ),
)
