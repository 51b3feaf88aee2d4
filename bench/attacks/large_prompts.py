"""A model server that reads no request, and clients whose messages are large."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import grpc

from bench.attacks.attack import Attack, Target
from bench.attacks.costly_requests import again, caller, surely
from opencode.message import message_pb2
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.model.model_pb2 import ModelName
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from opencode.search.search_pb2 import SearchMessagesRequest
from opencode.search.search_pb2_grpc import SearchServiceStub
from opencode.session.session_pb2 import ForkSessionRequest
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.turn.turn_pb2 import BUSY_POLICY_INTERRUPT, BUSY_POLICY_QUEUE, TurnSettings
from opencode.turn.turn_service_pb2 import EditQueuedMessageRequest, RegenerateMessageRequest

_LONG_MESSAGES = 6
"""Of the session that is forked; 11 MiB each."""


_WAITING_SESSIONS = 64

WIDE = "word " * (14 * 2**20 // 5) + "🎈"
"""14 MiB that take 56 in memory: each character is as wide as the last one."""


@contextlib.asynccontextmanager
async def silent(folder: Path) -> AsyncIterator[str]:
    """Runs a model server that reads no request; yields the configuration of its provider."""
    stopped = asyncio.Event()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reads 64 KiB ahead, and no more."""
        try:
            await stopped.wait()
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        yield f'[providers.silent]\nkind = "openai_chat"\nbase_url = "http://{host}:{port}/v1"\n'
    finally:
        stopped.set()
        server.close()


SILENT = ModelSelection(provider=ProviderInfo(id="silent"), model_id="x")
"""A model of that server."""


async def _prompts(target: Target) -> None:
    part = message_pb2.MessagePart(text=message_pb2.TextPart(text=WIDE))
    sent = 0

    async with caller(target) as one:

        async def send() -> None:
            nonlocal sent
            request = message_pb2.SendMessageRequest(parts=[part], model=SILENT)
            await one.messages.SendMessage(request)
            sent += 1

        try:
            await asyncio.gather(*(again(send) for _ in range(4)))
        finally:
            print(f"sent: {sent}")


async def _forks(target: Target) -> None:
    """Short messages to forks of one long session: each needs all of it for its prompt."""
    long = [message_pb2.MessagePart(text=message_pb2.TextPart(text="word " * (11 * 2**20 // 5)))]
    short = [message_pb2.MessagePart(text=message_pb2.TextPart(text="go"))]
    asked = 0
    async with caller(target) as one, grpc.aio.insecure_channel(target.address) as channel:
        sessions = SessionServiceStub(channel)
        session_id = await surely(one.new_session)
        append = message_pb2.AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=long)
        for _ in range(_LONG_MESSAGES):
            await surely(partial(one.messages.AppendMessage, append))

        async def ask_fork() -> None:
            nonlocal asked
            fork = await sessions.ForkSession(ForkSessionRequest(session_id=session_id))
            request = message_pb2.SendMessageRequest(session_id=fork.session.id, parts=short, model=SILENT)
            await surely(partial(one.messages.SendMessage, request))
            asked += 1

        try:
            await asyncio.gather(*(again(ask_fork) for _ in range(2)))
        finally:
            print(f"forks asked: {asked}")


async def _waiting(target: Target) -> None:
    """Messages that wait behind turns of as many sessions, which all end at once; again and again."""
    short = [message_pb2.MessagePart(text=message_pb2.TextPart(text="go"))]
    long = [message_pb2.MessagePart(text=message_pb2.TextPart(text=WIDE))]
    begun = 0
    async with caller(target) as one:
        running = [await one.new_session() for _ in range(_WAITING_SESSIONS)]

        async def begin(session_id: str) -> None:
            first = message_pb2.SendMessageRequest(session_id=session_id, parts=short, model=SILENT)
            await surely(partial(one.messages.SendMessage, first))
            await surely(
                partial(one.messages.SendMessage, message_pb2.SendMessageRequest(session_id=session_id, parts=long))
            )

        while True:
            for session_id in running:
                await begin(session_id)
            abort = (message_pb2.AbortSessionRequest(session_id=one_id, keep_queue=True) for one_id in running)
            await asyncio.gather(*(surely(partial(one.messages.AbortSession, request)) for request in abort))
            begun += len(running)
            print(f"begun: {begun}")


async def _edited(target: Target) -> None:
    """Edits of the policies of messages that wait in as many sessions, at once, again and again."""
    short = [message_pb2.MessagePart(text=message_pb2.TextPart(text="go"))]
    long = [message_pb2.MessagePart(text=message_pb2.TextPart(text=WIDE))]
    waiting = list[tuple[str, str]]()
    edited = 0
    async with caller(target) as one:
        for _ in range(_WAITING_SESSIONS):
            session_id = await one.new_session()
            first = message_pb2.SendMessageRequest(session_id=session_id, parts=short, model=SILENT)
            await surely(partial(one.messages.SendMessage, first))
            second = message_pb2.SendMessageRequest(session_id=session_id, parts=long)
            waiting.append((session_id, (await surely(partial(one.messages.SendMessage, second))).message_id))

        async def edit(session_id: str, message_id: str) -> None:
            nonlocal edited
            await one.turns.EditQueuedMessage(
                EditQueuedMessageRequest(session_id=session_id, message_id=message_id, busy_policy=BUSY_POLICY_QUEUE)
            )
            edited += 1

        try:
            await asyncio.gather(*(again(partial(edit, *one_of_them)) for one_of_them in waiting))
        finally:
            print(f"edited: {edited}")


async def _answered_again(target: Target) -> None:
    """Large questions of as many sessions that are answered again, at once, again and again."""
    long = [message_pb2.MessagePart(text=message_pb2.TextPart(text=WIDE))]
    questions = list[tuple[str, str]]()
    asked = 0
    async with caller(target) as one:
        for _ in range(_WAITING_SESSIONS):
            session_id = await one.new_session()
            append = message_pb2.AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=long)
            appended = await surely(partial(one.messages.AppendMessage, append))
            questions.append((session_id, appended.message_id))

        async def ask(session_id: str, message_id: str) -> None:
            nonlocal asked
            await one.turns.RegenerateMessage(
                RegenerateMessageRequest(
                    session_id=session_id,
                    message_id=message_id,
                    settings=TurnSettings(model=ModelName(provider_id="silent", model_id="x")),
                    busy_policy=BUSY_POLICY_INTERRUPT,
                )
            )
            asked += 1

        try:
            await asyncio.gather(*(again(partial(ask, *question)) for question in questions))
        finally:
            print(f"asked again: {asked}")


async def _repeats(target: Target) -> None:
    """Many large texts of one word, and searches for phrases of that word."""
    async with caller(target) as one, grpc.aio.insecure_channel(target.address) as channel:
        search = SearchServiceStub(channel)
        session_id = await one.new_session()
        for size in (3_000_000, 3_000_000, 200_000, 200_000, 200_000):
            part = message_pb2.MessagePart(text=message_pb2.TextPart(text="ab " * (size // 3)))
            with contextlib.suppress(grpc.aio.AioRpcError):
                await one.messages.AppendMessage(
                    message_pb2.AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[part])
                )
        await asyncio.sleep(1)
        query = '"' + "ab " * 62 + 'zz*"'
        found: dict[str, int] = {}

        async def look() -> None:
            try:
                await search.SearchMessages(SearchMessagesRequest(query=query))
                found["ok"] = found.get("ok", 0) + 1
            except grpc.aio.AioRpcError as error:
                found[error.details()[:60]] = found.get(error.details()[:60], 0) + 1
                raise

        try:
            await asyncio.gather(*(again(look) for _ in range(8)))
        finally:
            print(found)


ATTACKS = (
    Attack(
        "large_prompts",
        "14 MiB each for a model server that reads nothing",
        _prompts,
        around=silent,
        seconds=20,
    ),
    Attack(
        "large_prompts_of_forks",
        "forks of a session of 66 MiB, for a model server that reads nothing",
        _forks,
        around=silent,
        seconds=40,
    ),
    Attack(
        "large_messages_at_once",
        "turns of 64 sessions that end at once, each with a message of 14 MiB behind it",
        _waiting,
        around=silent,
        seconds=60,
    ),
    Attack(
        "large_edits_at_once",
        "edits of messages of 14 MiB that wait in 64 sessions, at the same time",
        _edited,
        around=silent,
        seconds=60,
    ),
    Attack(
        "large_questions_again",
        "questions of 14 MiB of 64 sessions that are answered again, at the same time",
        _answered_again,
        around=silent,
        seconds=60,
    ),
    Attack("search_repeats", "searches for phrases in texts of one word", _repeats, seconds=12),
)
