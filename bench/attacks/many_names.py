"""Names of requests without end, and names that come again and again, of clients that do not wait for answers."""

import asyncio
import contextlib
import itertools
import uuid
from collections import Counter

import grpc

from bench.attacks.attack import Attack, Target
from bench.attacks.costly_requests import Caller, again, caller
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest, MessagePart, SendMessageRequest, TextPart

CONNECTIONS, SENDERS = 4, 64

_PARTS = [MessagePart(text=TextPart(text="hello"))]


def _longest() -> str:
    """Returns a new name, as long as one may be: 128 characters of four bytes."""
    return f"{uuid.uuid4()}".ljust(128, "\U0001f600")


def _append(session_id: str, name: str) -> AppendMessageRequest:
    return AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=_PARTS, request_id=name)


async def _new(target: Target, sessions: int) -> None:
    """Stores messages under new names."""
    done = Counter[str]()

    async def sends(one: Caller, ids: list[str]) -> None:
        turns = itertools.cycle(ids)

        async def send() -> None:
            await one.messages.AppendMessage(_append(next(turns), _longest()))
            done["messages"] += 1

        await asyncio.gather(*(again(send) for _ in range(SENDERS)))

    async with contextlib.AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(caller(target)) for _ in range(CONNECTIONS)]
        ids = [await callers[0].new_session() for _ in range(sessions)]
        try:
            await asyncio.gather(*(sends(one, ids) for one in callers))
        finally:
            print(dict(done))


async def _wrong(target: Target) -> None:
    """Sends what is refused, under new names, and other requests under names that were used."""
    done = Counter[str]()
    async with caller(target) as one:
        session_id, used = await one.new_session(), _longest()
        await one.messages.AppendMessage(_append(session_id, used))
        other = [MessagePart(text=TextPart(text="other"))]

        async def send() -> None:
            for request in (
                _append("ses_unknown", _longest()),
                _append(session_id, _longest() + "x"),
                AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=other, request_id=used),
            ):
                try:
                    await one.messages.AppendMessage(request)
                except grpc.aio.AioRpcError as error:
                    done[str(error.code().name)] += 1

        try:
            await asyncio.gather(*(again(send) for _ in range(SENDERS)))
        finally:
            print(dict(done))


async def _resumed(target: Target, *, known: bool) -> None:
    """Sends one request a thousand times at once, gives most of them up before they are answered, and begins again."""
    done = Counter[str]()
    numbers = itertools.count()

    async def storm(one: Caller, name: str) -> None:
        request = SendMessageRequest(parts=_PARTS, request_id=name)
        calls = [one.messages.SendMessage(request) for _ in range(250)]
        await asyncio.sleep(0.01)
        for call in calls[:200]:
            call.cancel()
        for call in calls:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
                done["answered" if (await call).session_id else ""] += 1
        done["storms"] += 1

    async with contextlib.AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(caller(target)) for _ in range(CONNECTIONS)]

        async def storms(one: Caller) -> None:
            while True:
                await storm(one, f"name {0 if known else next(numbers) // CONNECTIONS}")

        try:
            await asyncio.gather(*map(storms, callers))
        finally:
            print(dict(done))


async def _one_session(target: Target) -> None:
    await _new(target, 1)


async def _many_sessions(target: Target) -> None:
    await _new(target, 500)


async def _resumed_new(target: Target) -> None:
    await _resumed(target, known=False)


async def _resumed_known(target: Target) -> None:
    await _resumed(target, known=True)


ATTACKS = (
    Attack("names_one_session", "256 clients store messages under new names in a session", _one_session, seconds=20),
    Attack("names_many_sessions", "the same in 500 sessions", _many_sessions, seconds=20),
    Attack("names_wrong", "names of requests that are refused, and used names", _wrong),
    Attack("resumed_new", "1,000 calls of one new name, most of them given up, again and again", _resumed_new),
    Attack("resumed_known", "1,000 calls of one known name, most of them given up", _resumed_known),
)
