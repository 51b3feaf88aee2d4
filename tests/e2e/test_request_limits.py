"""What one request may bring, all of it together."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from opencode.message.message_pb2 import DISPOSITION_DUPLICATE, GetMessageRequest
from opencode.tool.tool_pb2 import ToolDefinition
from opencode.turn.turn_pb2 import TurnSettings
from opencode.turn.turn_service_pb2 import GetTurnRequest, RegenerateMessageRequest, StartTurnRequest
from tests.support.clients.conversation import FOREVER, ask, model, refused, talk, watching
from tests.support.clients.tool_calls import LOOK
from tests.support.servers.running import Client, connect, running_server

LIMITS = """
[limits]
max_message_bytes = 10_000
max_tools_bytes = 6_000
"""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server with small limits."""
    async with running_server(tmp_path, LIMITS) as server, connect(server.address) as one:
        yield one


def tool(size: int, schema: str = "", name: str = "t") -> ToolDefinition:
    """Returns a tool of so many bytes, beside its schema."""
    return ToolDefinition(name=name, description="x" * (size - 1), input_schema_json=schema)


LARGE: list[dict[str, object]] = [
    {"system": "x" * 7_000},
    {"system": "é" * 3_500},
    {"tools": [tool(3_500, name="a"), tool(2_400, name="b")], "metadata_json": json.dumps({"a": "x" * 1_000})},
    {"metadata_json": json.dumps({"a": "x" * 7_000})},
    {"system": "x" * 4_000, "sender": "x" * 1_000, "sender_name": "x" * 1_000, "metadata_json": '{"a":1000}'},
]


@pytest.mark.parametrize("fields", LARGE)
async def test_everything_of_a_message_counts(client: Client, fields: dict[str, object]) -> None:
    """Text, prompt, tools, metadata and names together; each alone would fit, and nothing is stored."""
    words = "y" * 4_000
    refusal = await refused(client.messages.SendMessage(ask(words, model=model("echo"), **fields)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE")
    assert int(refusal.metadata["actualBytes"]) > int(refusal.metadata["maxBytes"]) == 10_000
    assert not (await client.sessions.ListSessions()).sessions
    await client.messages.SendMessage(ask("y", model=model("echo"), **fields))


@pytest.mark.slow
async def test_the_tools_of_a_request_have_a_limit(client: Client) -> None:
    """In every request that brings some; the field is named."""
    answered = await talk(client, "hello")
    tools = [tool(3_001, name=name) for name in "ab"]
    settings = TurnSettings(tools=tools)
    session_id, message_id = answered.session_id, answered.message_id
    calls = {
        "tools": client.messages.SendMessage(ask("hello", tools=tools)),
        "settings.tools": client.messages.ExplainContext(session_id=session_id, settings=settings),
    }
    for field, call in calls.items():
        refusal = await refused(call)
        assert (refusal.reason, refusal.fields) == ("MESSAGE_TOO_LARGE", [field])
    late = StartTurnRequest(session_id=session_id, user_message_id=message_id, settings=settings)
    again = RegenerateMessageRequest(session_id=session_id, message_id=message_id, settings=settings)
    for one in (client.turns.StartTurn(late), client.turns.RegenerateMessage(again)):
        refusal = await refused(one)
        assert (refusal.reason, refusal.fields) == ("MESSAGE_TOO_LARGE", ["settings.tools"])


async def test_a_schema_that_no_check_of_ends_fails_no_turn(client: Client) -> None:
    """The check of the arguments is given up, and the client runs its tool."""
    endless = tool(1, '{"allOf":[{"$ref":"#"},{"$ref":"#"}]}', "look")
    accepted = await client.messages.SendMessage(ask(LOOK, tools=[endless]))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        assert (await watch.until_kind("tool_call_updated")).tool_call_updated.state.status == "pending"


@pytest.mark.slow
async def test_what_waits_keeps_its_tools_over_a_restart(tmp_path: Path) -> None:
    """They are on disk; the turn has all of them when it begins."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        first = await client.messages.SendMessage(ask(FOREVER))
        tools = [tool(1000, '{"type":"object"}', "look")]
        words = LOOK + "\n" + "y" * 5000
        waiting = await client.messages.SendMessage(ask(words, first.session_id, tools=tools, system="be brief"))
        assert waiting.queue_position == 1
    async with running_server(tmp_path) as server, connect(server.address) as client:
        asked = GetTurnRequest(session_id=first.session_id, turn_id=waiting.turn_id)
        settings = (await client.turns.GetTurn(asked)).turn.settings
        assert (list(settings.tools), settings.system) == (tools, "be brief")
        await client.messages.AbortSession(session_id=first.session_id, keep_queue=True)
        async with watching(client, first.session_id, after_sequence=0) as watch:
            await watch.until_kind("tool_call_updated")
        question = GetMessageRequest(session_id=first.session_id, message_id=waiting.message_id)
        assert (await client.messages.GetMessage(question)).message.parts[0].text.text == words
        settings = (await client.turns.GetTurn(asked)).turn.settings
        assert (list(settings.tools), settings.system) == (tools, "be brief")


@pytest.mark.slow
async def test_a_storm_of_one_name_counts_once(tmp_path: Path) -> None:
    """From 64 connections at one moment: one message, and every caller gets its id."""
    async with running_server(tmp_path) as server, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(server.address)) for _ in range(64)]
        request = ask("hello", request_id="storm")
        answers = await asyncio.gather(*(client.messages.SendMessage(request) for client in clients))
        assert len({(answer.session_id, answer.message_id, answer.turn_id) for answer in answers}) == 1
        assert sum(answer.disposition != DISPOSITION_DUPLICATE for answer in answers) == 1
        assert len((await clients[0].sessions.ListSessions()).sessions) == 1
