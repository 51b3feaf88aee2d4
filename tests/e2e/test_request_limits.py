"""What one request may bring, all of it together."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from opencode.message.message_pb2 import ExplainContextRequest, SendMessageRequest
from opencode.session.session_pb2 import ListSessionsRequest
from opencode.tool.tool_pb2 import ToolDefinition
from opencode.turn.turn_pb2 import TurnSettings
from opencode.turn.turn_service_pb2 import RegenerateMessageRequest, StartTurnRequest
from tests.support.clients.conversation import ask, model, refused, talk, text
from tests.support.servers.running import Client, connect, running_server

LIMITS = """
[limits]
max_message_bytes = 10_000
max_tools_bytes = 6_000
max_schema_steps = 1_500
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
    assert not (await client.sessions.ListSessions(ListSessionsRequest())).sessions
    await client.messages.SendMessage(ask("y", model=model("echo"), **fields))


async def test_the_tools_of_a_request_have_a_limit(client: Client) -> None:
    """In every request that brings some; the field is named."""
    answered = await talk(client, "hello")
    tools = [tool(3_001, name=name) for name in "ab"]
    settings = TurnSettings(tools=tools)
    session_id, message_id = answered.session_id, answered.message_id
    calls = {
        "tools": client.messages.SendMessage(ask("hello", tools=tools)),
        "settings.tools": client.messages.ExplainContext(
            ExplainContextRequest(session_id=session_id, settings=settings)
        ),
    }
    for field, call in calls.items():
        refusal = await refused(call)
        assert (refusal.reason, refusal.fields) == ("MESSAGE_TOO_LARGE", [field])
    late = StartTurnRequest(session_id=session_id, user_message_id=message_id, settings=settings)
    again = RegenerateMessageRequest(session_id=session_id, message_id=message_id, settings=settings)
    for one in (client.turns.StartTurn(late), client.turns.RegenerateMessage(again)):
        refusal = await refused(one)
        assert (refusal.reason, refusal.fields) == ("MESSAGE_TOO_LARGE", ["settings.tools"])


async def test_costly_schemas_are_refused_with_their_field(client: Client) -> None:
    """Those before it are known from then on, so the same request may be taken later."""

    def dense(number: int) -> str:
        return json.dumps({"title": str(number), "properties": {f"{n}": {} for n in range(150)}})

    tools = [tool(1, dense(number), f"t{number}") for number in range(3)]
    refusal = await refused(client.messages.SendMessage(ask("hello", tools=tools)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    [field] = refusal.fields
    assert field in ("tools[1].input_schema_json", "tools[2].input_schema_json")
    assert (refusal.metadata["limit"], refusal.metadata["limitValue"]) == ("limits.max_schema_steps", "1500")
    await client.messages.SendMessage(ask("hello", tools=tools))


async def test_a_schema_that_no_check_of_ends_is_refused(client: Client) -> None:
    """The library would fail on it in the middle of a turn."""
    request = SendMessageRequest(parts=[text("hello")], tools=[tool(1, '{"not":{"$ref":"#"}}')])
    refusal = await refused(client.messages.SendMessage(request))
    assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["tools[0].input_schema_json"])
