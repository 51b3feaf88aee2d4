"""Services as attacks call them, and what is there before an attack begins."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc

from bench.attacks.attack import Seen, Target
from opencode.event.event_pb2_grpc import EventServiceStub
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import AppendMessageRequest, MessagePart, SendMessageRequest, TextPart
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from opencode.session.session_pb2 import CreateSessionRequest
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.turn.turn_service_pb2_grpc import TurnServiceStub

LARGE = "word " * (14 * 2**20 // 5) + "🎈"
"""14 MiB that take 56 in memory: each character is as wide as the last one."""

_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


class Services:
    """Methods to call, on one connection. Each call that is refused tells the limit."""

    def __init__(self, channel: grpc.aio.Channel, seen: Seen | None) -> None:
        """Takes an open channel."""
        self._seen = seen
        self.events = EventServiceStub(channel)
        self.messages = MessageServiceStub(channel)
        self.sessions = SessionServiceStub(channel)
        self.turns = TurnServiceStub(channel)

    async def again(self, work: Callable[[], Awaitable[object]]) -> None:
        """Calls again and again; a refusal is as good as an answer."""
        while True:
            try:
                await work()
            except grpc.aio.AioRpcError as error:
                if self._seen is not None:
                    for key, value in error.trailing_metadata() or ():
                        if key == "grpc-status-details-bin" and isinstance(value, bytes):
                            self._seen.note(value)
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def services(target: Target, seen: Seen | None = None) -> AsyncIterator[Services]:
    """Opens a connection."""
    async with grpc.aio.insecure_channel(target.address, options=_OPTIONS) as channel:
        yield Services(channel, seen)


async def new_session(target: Target) -> str:
    """Returns the id of a new session."""
    async with services(target) as one:
        return (await one.sessions.CreateSession(CreateSessionRequest())).id


async def stored(target: Target, text: str) -> tuple[str, str]:
    """Stores a message in a new session. Returns both ids."""
    session_id = await new_session(target)
    async with services(target) as one:
        part = MessagePart(text=TextPart(text=text))
        append = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[part])
        return session_id, (await one.messages.AppendMessage(append)).message_id


def said(text: str, session_id: str = "", model: str = "offline/echo") -> SendMessageRequest:
    """Returns a message for "provider/model"."""
    provider, _, name = model.partition("/")
    selection = ModelSelection(provider=ProviderInfo(id=provider), model_id=name)
    return SendMessageRequest(session_id=session_id, parts=[MessagePart(text=TextPart(text=text))], model=selection)
