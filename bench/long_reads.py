"""The wait of others while somebody reads much at once, and while somebody sends a large file."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from bench import report
from bench.child import model_provider, turnwire
from bench.neighbour import figures, neighbour
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest, FilePart, GetMessagesRequest, MessagePart, TextPart
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.session.session_pb2 import CreateSessionRequest, ListSessionsRequest
from opencode.session.session_pb2_grpc import SessionServiceStub

FILE_BYTES = 20 * 2**20
READS_AT_ONCE = 5
WORDS = "A sentence of usual length with a few words more than needed. " * 6


async def measure(folder: Path, quick: bool) -> None:
    """Prints what a neighbour feels beside each of them."""
    sessions, messages = (2_000, 2_000) if quick else (20_000, 20_000)
    report.title(
        "long_reads",
        f"{READS_AT_ONCE} at once: all of {sessions:,} sessions, all of {messages:,} messages; 20 MB attached; ceiling:"
        " the same neighbour with nothing beside it",
    )
    async with model_provider(folder) as model:
        toml = f'[providers.beside]\nkind = "openai_chat"\nbase_url = "http://{model.address}/v1"\n'
        toml += f"[server]\nmax_message_bytes = {FILE_BYTES + 2**20}\nmax_list_bytes = {32 * 2**20}\n"
        async with (
            turnwire(folder, toml) as server,
            grpc.aio.insecure_channel(server.address, options=[("grpc.max_receive_message_length", -1)]) as channel,
            neighbour(server, "beside") as other,
        ):
            service, conversations = SessionServiceStub(channel), MessageServiceStub(channel)
            long_id = (await service.CreateSession(CreateSessionRequest())).id
            await _many(messages, lambda: conversations.AppendMessage(_message(long_id)))
            await _many(sessions, lambda: service.CreateSession(CreateSessionRequest(title=WORDS[:60])))
            await other.begin()
            await asyncio.sleep(3)
            alone = await other.felt()
            file = FilePart(data=bytes(FILE_BYTES), mime="application/octet-stream")
            attached = AppendMessageRequest(
                session_id=long_id, type=MESSAGE_TYPE_USER, parts=[MessagePart(file=file)], request_id="once"
            )
            whole = GetMessagesRequest(session_id=long_id)
            for name, call, times in (
                ("ListSessions", lambda: service.ListSessions(ListSessionsRequest()), READS_AT_ONCE),
                (
                    "GetMessages",
                    lambda: conversations.GetMessages(whole),
                    READS_AT_ONCE,
                ),
                ("20 MB attached", lambda: conversations.AppendMessage(attached), 1),
            ):
                await other.begin()
                begun = time.perf_counter()
                await asyncio.gather(*(call() for _ in range(times)))
                report.show([report.Figure(f"{name} itself", (time.perf_counter() - begun) * 1000, None, "ms", True)])
                await asyncio.sleep(0.5)
                felt = await other.felt()
                report.show(figures(name, felt, alone, delta_p50=None, delta_p99=20, read_p99=30))


def _message(session_id: str) -> AppendMessageRequest:
    return AppendMessageRequest(
        session_id=session_id, type=MESSAGE_TYPE_USER, parts=[MessagePart(text=TextPart(text=WORDS))]
    )


async def _many(count: int, call: Callable[[], Awaitable[object]], at_once: int = 256) -> None:
    for start in range(0, count, at_once):
        await asyncio.gather(*(call() for _ in range(min(at_once, count - start))))
