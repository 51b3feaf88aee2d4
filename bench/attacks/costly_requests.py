"""Requests that are valid, and cost much: schemas, full queues, whole lists, and one name for all."""

import asyncio
import contextlib
import itertools
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from bench.attacks.attack import Attack, Target
from opencode.event import event_pb2_grpc
from opencode.message import message_pb2, message_pb2_grpc
from opencode.message.content_pb2 import MESSAGE_TYPE_TOOL_RESULT, MESSAGE_TYPE_USER, ToolResultContent
from opencode.model.model_pb2 import ModelName
from opencode.model.selection_pb2 import ModelSelection
from opencode.provider.provider_pb2 import ProviderInfo
from opencode.session import session_pb2, session_pb2_grpc
from opencode.tool import tool_pb2, tool_pb2_grpc
from opencode.turn import turn_service_pb2, turn_service_pb2_grpc
from opencode.turn.turn_pb2 import TurnSettings

_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
LONG_LISTS = f"[server]\nmax_list_bytes = {32 * 2**20}\n"
"""Lets lists without pages be as large as an operator may allow."""

_ECHO = ModelSelection(provider=ProviderInfo(id="offline"), model_id="echo")
_NAME = ModelName(provider_id="offline", model_id="echo")


class Caller:
    """The services that are called, on one connection."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        """Takes an open channel."""
        self.events = event_pb2_grpc.EventServiceStub(channel)
        self.messages = message_pb2_grpc.MessageServiceStub(channel)
        self.sessions = session_pb2_grpc.SessionServiceStub(channel)
        self.tools = tool_pb2_grpc.ToolServiceStub(channel)
        self.turns = turn_service_pb2_grpc.TurnServiceStub(channel)

    async def new_session(self, **settings: object) -> str:
        """Returns the id of a new session."""
        settings_ = session_pb2.SessionSettings(**settings)  # type: ignore[arg-type]
        request = session_pb2.CreateSessionRequest(settings=settings_)
        return str((await surely(lambda: self.sessions.CreateSession(request))).id)

    async def fill(self, session_id: str, messages: int) -> None:
        """Appends messages of 400 characters to a session."""
        part = message_pb2.MessagePart(text=message_pb2.TextPart(text="words " * 66))
        append = message_pb2.AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[part])
        for _ in range(messages // 100):
            await asyncio.gather(*(surely(lambda: self.messages.AppendMessage(append)) for _ in range(100)))


@contextlib.asynccontextmanager
async def caller(target: Target) -> AsyncIterator[Caller]:
    """Opens a connection."""
    async with grpc.aio.insecure_channel(target.address, options=_OPTIONS) as channel:
        yield Caller(channel)


async def surely(work: Callable[[], Awaitable[Any]]) -> Any:
    """Calls until there is an answer, and returns it."""
    while True:
        try:
            return await work()
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.05)


async def again(work: Callable[[], Awaitable[object]]) -> None:
    """Calls again and again; a refusal is as good as an answer."""
    while True:
        try:
            await work()
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.001)


def _send(text: str, session_id: str = "", **fields: object) -> message_pb2.SendMessageRequest:
    part = message_pb2.MessagePart(text=message_pb2.TextPart(text=text))
    return message_pb2.SendMessageRequest(session_id=session_id, parts=[part], model=_ECHO, **fields)  # type: ignore[arg-type]


def _tool(name: str, schema: str, description: str = "") -> tool_pb2.ToolDefinition:
    return tool_pb2.ToolDefinition(name=name, description=description, input_schema_json=schema)


async def _new_schemas(target: Target) -> None:
    """Each is new, and as costly for its bytes as schemas are."""
    counter = itertools.count()

    def request(size: int, count: int) -> message_pb2.SendMessageRequest:
        properties = {f"{n}": {"type": "object", "properties": {"a": {}}} for n in range(size)}
        schemas = (json.dumps({"title": str(next(counter)), "properties": properties}) for _ in range(count))
        return _send("hello", tools=[_tool(f"t{n}", schema) for n, schema in enumerate(schemas)])

    async with caller(target) as one:
        many = [again(lambda: one.messages.SendMessage(request(1300, 128))) for _ in range(4)]
        few = [again(lambda: one.messages.SendMessage(request(1300, 15))) for _ in range(8)]
        await asyncio.gather(*many, *few)


async def _costly_arguments(target: Target) -> None:
    """A schema whose references double thirty times checks the arguments of calls, one after the other."""
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
    schema = json.dumps({"$ref": "#/$defs/d0", "$defs": {**doubling, "d30": {}}})
    calls = "/tool look {}\n" * 20
    async with caller(target) as one:
        await asyncio.gather(
            *(again(lambda: one.messages.SendMessage(_send(calls, tools=[_tool("look", schema)]))) for _ in range(16))
        )


async def _large_queues(target: Target) -> None:
    """Fills queues with all that messages may bring, then edits and moves what waits."""
    tools = [_tool(f"t{n}", "", "x" * 8000) for n in range(128)]
    async with caller(target) as one:
        sessions = [await one.new_session() for _ in range(4)]
        for session_id in sessions:
            await one.messages.SendMessage(_send("/sleep 600", session_id))
        waiting = list[tuple[str, str]]()
        for session_id in sessions * 24:
            with contextlib.suppress(grpc.aio.AioRpcError):
                large = _send("y" * 6_000_000, session_id, tools=tools, system="z" * 900_000)
                waiting.append((session_id, (await one.messages.SendMessage(large)).message_id))

        async def move(place: int) -> None:
            session_id, message_id = waiting[place % len(waiting)]
            move = turn_service_pb2.MoveQueuedMessageRequest(session_id=session_id, message_id=message_id)
            await one.turns.MoveQueuedMessage(move)

        async def edit(place: int) -> None:
            session_id, message_id = waiting[place % len(waiting)]
            part = message_pb2.MessagePart(text=message_pb2.TextPart(text="w" * 3_000_000))
            await one.turns.EditQueuedMessage(
                turn_service_pb2.EditQueuedMessageRequest(session_id=session_id, message_id=message_id, parts=[part])
            )

        places = itertools.count()
        moves = [again(lambda: move(next(places))) for _ in range(8)]
        await asyncio.gather(*moves, *(again(lambda: edit(next(places))) for _ in range(2)))


async def _whole_lists(target: Target) -> None:
    """Lists without pages, whole conversations and unknown calls, many at once."""
    async with caller(target) as one:
        long = await one.new_session()
        for _ in range(40):
            await asyncio.gather(*(one.new_session(title="x" * 1000, labels={"a": "b"}) for _ in range(50)))
        await one.fill(long, 10_000)
        settings = TurnSettings(model=_NAME)
        result = message_pb2.MessagePart(tool_result=ToolResultContent(call_id="unknown", output="x"))
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: one.sessions.ListSessions(session_pb2.ListSessionsRequest()),
            lambda: one.messages.GetMessages(message_pb2.GetMessagesRequest(session_id=long)),
            lambda: one.messages.ExplainContext(message_pb2.ExplainContextRequest(session_id=long, settings=settings)),
            lambda: one.messages.AppendMessage(
                message_pb2.AppendMessageRequest(session_id=long, type=MESSAGE_TYPE_TOOL_RESULT, parts=[result])
            ),
            lambda: one.tools.SubmitToolResult(
                tool_pb2.SubmitToolResultRequest(session_id=long, tool_call_id="unknown", output="x")
            ),
        ]
        await asyncio.gather(*(again(call) for call in calls for _ in range(8)))


async def _one_name(target: Target) -> None:
    """64 connections send the same named request at the same moment, again and again."""
    name = str(uuid.uuid4())

    async def storm(number: int) -> None:
        nonlocal name
        async with caller(target) as one:
            for count in itertools.count():
                if number == 0 and count % 20 == 0:
                    name = str(uuid.uuid4())
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await one.messages.SendMessage(_send("hello", request_id=name))

    await asyncio.gather(*(storm(number) for number in range(64)))


async def _forks(target: Target) -> None:
    """Copies of a long conversation, one after the other on eight connections, and changes of labels."""
    async with caller(target) as one:
        long, labelled = await one.new_session(), await one.new_session()
        await one.fill(long, 2000)
        numbers = itertools.count()

        async def label() -> None:
            settings = session_pb2.SessionSettings(labels={f"l{n}": str(next(numbers)) for n in range(64)})
            request = session_pb2.UpdateSessionRequest(session_id=labelled, settings=settings)
            await one.sessions.UpdateSession(request)

        fork = session_pb2.ForkSessionRequest(session_id=long)
        forks = [again(lambda: one.sessions.ForkSession(fork)) for _ in range(8)]
        await asyncio.gather(*forks, *(again(label) for _ in range(8)))


ATTACKS = (
    Attack("new_schemas", "12 senders of new schemas, up to 57 KiB x 128", _new_schemas),
    Attack("costly_arguments", "calls checked against a schema that doubles", _costly_arguments),
    Attack("large_queues", "96 waiting messages of 8 MB, edited and moved", _large_queues, seconds=30.0),
    Attack("whole_lists", "40 readers of whole lists and conversations", _whole_lists, LONG_LISTS, seconds=30.0),
    Attack("one_name", "64 connections with one request_id", _one_name),
    Attack("forks", "copies of 2,000 messages, and changes of labels", _forks, seconds=20.0),
)
