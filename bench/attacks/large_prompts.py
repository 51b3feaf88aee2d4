"""A model server that reads no request, and clients whose messages are large."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from bench.attacks.attack import Attack, Target
from bench.attacks.costly_requests import again, caller
from opencode.message import message_pb2
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from opencode.search.search_pb2 import SearchMessagesRequest
from opencode.search.search_pb2_grpc import SearchServiceStub


@contextlib.asynccontextmanager
async def _silent(folder: Path) -> AsyncIterator[str]:
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


async def _prompts(target: Target) -> None:
    model = ModelSelection(provider=ProviderInfo(id="silent"), model_id="x")
    part = message_pb2.MessagePart(text=message_pb2.TextPart(text="word " * (14 * 2**20 // 5)))
    sent = 0

    async with caller(target) as one:

        async def send() -> None:
            nonlocal sent
            request = message_pb2.SendMessageRequest(parts=[part], model=model)
            await one.messages.SendMessage(request)
            sent += 1

        try:
            await asyncio.gather(*(again(send) for _ in range(4)))
        finally:
            print(f"sent: {sent}")


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
        around=_silent,
        seconds=20,
    ),
    Attack("search_repeats", "searches for phrases in texts of one word", _repeats, seconds=12),
)
