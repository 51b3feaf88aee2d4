"""The client side of the load: calls that send and receive raw bytes, so that the client's own work stays small."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from bench.bare_server import Method
from opencode.event.event_pb2 import WatchEventsRequest, WatchEventsResponse
from opencode.message.content_pb2 import MESSAGE_TYPE_USER
from opencode.message.message_pb2 import (
    AbortSessionRequest,
    AppendMessageRequest,
    AppendMessageResponse,
    GetMessagesRequest,
    MessagePart,
    SendMessageRequest,
    SendMessageResponse,
    TextPart,
)
from opencode.model.model_pb2 import ModelName
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from opencode.session.session_pb2 import CreateSessionRequest, GetSessionRequest, GetSessionResponse, SessionInfo
from opencode.tool.tool_pb2 import SubmitToolResultRequest
from opencode.turn.turn_pb2 import TurnSettings
from opencode.turn.turn_service_pb2 import StartTurnRequest, StartTurnResponse
from turnwire.api.grpc.wakeups import unblocked_wakeups

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    # one connection per channel, even with many channels to the same address
    ("grpc.use_local_subchannel_pool", 1),
]


@contextlib.asynccontextmanager
async def connect(address: str, token: str = "") -> AsyncIterator["Client"]:
    """Opens a channel and closes it afterwards. A token is sent with each call."""
    interceptors = [_Unary(token), _Stream(token)] if token else None
    with unblocked_wakeups():
        channel = grpc.aio.insecure_channel(address, options=_OPTIONS, interceptors=interceptors)
    async with channel:
        yield Client(channel)


class _Token:
    """Adds a credential to calls."""

    def __init__(self, token: str) -> None:
        self._authorization = ("authorization", f"Bearer {token}")

    async def _go_on(self, continuation: Any, details: grpc.aio.ClientCallDetails, request: bytes) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), self._authorization)
        return await continuation(details._replace(metadata=metadata), request)


class _Unary(_Token, grpc.aio.UnaryUnaryClientInterceptor):
    intercept_unary_unary = _Token._go_on


class _Stream(_Token, grpc.aio.UnaryStreamClientInterceptor):
    intercept_unary_stream = _Token._go_on


class Client:
    """The calls that the measurements make, on Turnwire or on the bare server."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        """Takes an open channel; its owner closes it."""
        self._channel = channel
        self._send = self._message("SendMessage")
        self._append = self._message("AppendMessage")
        self._abort = self._message("AbortSession")
        self._pages = self._message("GetMessages")
        self._create = channel.unary_unary("/opencode.session.SessionService/CreateSession")
        self._list = channel.unary_unary("/opencode.session.SessionService/ListSessions")
        self._get = channel.unary_unary("/opencode.session.SessionService/GetSession")
        self._start = channel.unary_unary("/opencode.turn.TurnService/StartTurn")
        self._explain = self._message("ExplainContext")
        self._submit = channel.unary_unary("/opencode.tool.ToolService/SubmitToolResult")
        self._watch = channel.unary_stream("/opencode.event.EventService/WatchEvents")

    def _message(self, name: str) -> Callable[[bytes], Awaitable[bytes]]:
        return self._channel.unary_unary(f"/opencode.message.MessageService/{name}")

    async def create_session(self) -> str:
        """Creates a session and returns its id."""
        answer = await self._create(CreateSessionRequest().SerializeToString())
        return SessionInfo.FromString(answer).id

    async def get_bytes(self, request: bytes) -> bytes:
        """Calls GetSession, unparsed."""
        answer: bytes = await self._get(request)
        return answer

    async def list_sessions(self, request: bytes) -> bytes:
        """Calls ListSessions, unparsed."""
        answer: bytes = await self._list(request)
        return answer

    async def is_running(self, session_id: str) -> bool:
        """Returns whether a turn runs or waits in the session."""
        answer = await self._get(GetSessionRequest(session_id=session_id).SerializeToString())
        return GetSessionResponse.FromString(answer).session.active_turn_id != ""

    async def send(self, session_id: str, text: str, model: str = "offline/echo") -> SendMessageResponse:
        """Sends a message to "provider/model"."""
        return SendMessageResponse.FromString(await self.send_bytes(send_request(session_id, text, model)))

    async def send_bytes(self, request: bytes) -> bytes:
        """Sends an encoded message."""
        return await self._send(request)

    async def abort(self, session_id: str) -> None:
        """Ends the session's turn and drops queued messages."""
        await self._abort(AbortSessionRequest(session_id=session_id).SerializeToString())

    async def append(self, session_id: str, text: str) -> AppendMessageResponse:
        """Stores a user message without a turn."""
        return AppendMessageResponse.FromString(await self.append_bytes(append_request(session_id, text)))

    async def append_bytes(self, request: bytes) -> bytes:
        """Stores an encoded message."""
        return await self._append(request)

    async def answer(self, session_id: str, message_id: str, model: str) -> Any:
        """Has a stored message answered by "provider/model" and returns the open stream of raw batches of its turn."""
        provider_id, _, model_id = model.partition("/")
        settings = TurnSettings(model=ModelName(provider_id=provider_id, model_id=model_id))
        request = StartTurnRequest(session_id=session_id, user_message_id=message_id, settings=settings)
        started = StartTurnResponse.FromString(await self._start(request.SerializeToString()))
        return self._watch(
            WatchEventsRequest(session_id=session_id, resume_token=started.resume_token).SerializeToString()
        )

    async def explain(self, request: bytes) -> bytes:
        """Calls ExplainContext, unparsed."""
        answer: bytes = await self._explain(request)
        return answer

    async def submit(self, session_id: str, tool_call_id: str, output: str) -> None:
        """Gives the result of a tool call."""
        request = SubmitToolResultRequest(session_id=session_id, tool_call_id=tool_call_id, output=output)
        await self._submit(request.SerializeToString())

    async def messages(self, session_id: str) -> bytes:
        """Reads all display messages of a session, unparsed."""
        return await self._pages(GetMessagesRequest(session_id=session_id).SerializeToString())

    async def watch(self, session_id: str) -> Any:
        """Watches a session and returns the open stream of raw batches once it is live."""
        call = self._watch(WatchEventsRequest(session_id=session_id).SerializeToString())
        while (batch := await call.read()) is not grpc.aio.EOF:
            if any(event.HasField("caught_up") for event in WatchEventsResponse.FromString(batch).events):
                return call
        raise RuntimeError("the watch ended before it was live")

    async def bare(self, method: Method, request: bytes = b"") -> bytes:
        """Calls a unary method of the bare server."""
        answer: bytes = await self.bare_call(method)(request)
        return answer

    def bare_call(self, method: Method) -> Any:
        """Returns a unary method of the bare server, to be called repeatedly."""
        return self._channel.unary_unary(method.path)

    async def bare_stream(self, method: Method, request: bytes = b"") -> Any:
        """Opens a stream of the bare server and returns it once the server has accepted it."""
        call = self._channel.unary_stream(method.path)(request)
        await call.initial_metadata()
        return call


def send_request(session_id: str, text: str, model: str) -> bytes:
    """Returns the bytes of a SendMessageRequest."""
    provider_id, _, model_id = model.partition("/")
    return SendMessageRequest(
        session_id=session_id,
        parts=[MessagePart(text=TextPart(text=text))],
        model=ModelSelection(provider=ProviderInfo(id=provider_id), model_id=model_id),
    ).SerializeToString()


def append_request(session_id: str, text: str) -> bytes:
    """Returns the bytes of an AppendMessageRequest."""
    return AppendMessageRequest(
        session_id=session_id, type=MESSAGE_TYPE_USER, parts=[MessagePart(text=TextPart(text=text))]
    ).SerializeToString()
