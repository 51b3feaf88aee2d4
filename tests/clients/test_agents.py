"""The examples for agents of one's own do what docs/guides/your-own-agent.md says, with real libraries and no model.

They run where TURNWIRE_TEST_AGENTS names a folder with the packages of .ci/agents.txt. Nothing calls out.
"""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from opencode.message.content_pb2 import (
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_TOOL_RESULT,
    MESSAGE_TYPE_USER,
)
from opencode.session.session_pb2 import CreateSessionRequest
from opencode.session.session_pb2_grpc import SessionServiceStub
from tests.support.servers.running import running_server
from turnwire_client import Client

EXAMPLES = Path(__file__).parents[2] / "examples/agents"
PACKAGES = os.environ.get("TURNWIRE_TEST_AGENTS", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PACKAGES, reason="runs where TURNWIRE_TEST_AGENTS has the agent libraries"),
]
if PACKAGES:
    sys.path += [PACKAGES, str(EXAMPLES)]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a fresh server."""
    async with running_server(tmp_path) as server, Client.connect(server.address) as connected:
        yield connected


@pytest.fixture
async def session_id(client: Client) -> str:
    """A new session."""
    return (await client.call(client.stub(SessionServiceStub).CreateSession, CreateSessionRequest())).id


def scripted(*answers: list[Any]) -> Any:
    """Returns a model of the OpenAI Agents SDK that gives these answers, and keeps what it was sent."""
    from agents import Model, ModelResponse, Usage

    class Scripted(Model):
        def __init__(self) -> None:
            self.sent: list[Any] = []
            self.answers = list(answers)

        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
            self.sent.append(input if isinstance(input, str) else list(input))
            return ModelResponse(output=self.answers.pop(0), usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    return Scripted()


def said(words: str) -> Any:
    """Returns an item with a model's text."""
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    text = ResponseOutputText(text=words, type="output_text", annotations=[])
    return ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")


def calls(call_id: str, arguments: str = '{"at":"it"}') -> Any:
    """Returns an item with a model's call of `look`."""
    from openai.types.responses import ResponseFunctionToolCall

    return ResponseFunctionToolCall(call_id=call_id, name="look", arguments=arguments, type="function_call")


def looking(model: Any) -> Any:
    """Returns an agent that may look."""
    from agents import Agent, function_tool, set_tracing_disabled

    set_tracing_disabled(True)

    def look(at: str) -> str:
        """Looks."""
        return f"a cat at {at}"

    return Agent(name="Looker", model=model, tools=[function_tool(look)])


async def test_an_openai_agent_keeps_its_session_in_turnwire(client: Client, session_id: str) -> None:
    """Two runs share it; people see messages, calls and results; the server's own turn is part of the next run."""
    from agents import Runner
    from openai_agents_session import TurnwireSession

    session = TurnwireSession(client, session_id)
    first = scripted([calls("c1"), calls("c2")], [said("Two cats.")])
    result = await Runner.run(looking(first), "What is there?", session=session)
    assert result.final_output == "Two cats."
    messages = await client.messages(session_id)
    assert [message.type for message in messages] == [
        MESSAGE_TYPE_USER,
        *[MESSAGE_TYPE_ASSISTANT] * 2,
        *[MESSAGE_TYPE_TOOL_RESULT] * 2,
        MESSAGE_TYPE_ASSISTANT,
    ]
    assert [m.parts[0].tool_use.output for m in messages[1:3]] == ["a cat at it"] * 2
    await client.append(session_id, "for people", type=MESSAGE_TYPE_HOST)
    assert await client.ask("Say it again.", session_id) == "Say it again."
    second = scripted([said("Bye.")])
    await Runner.run(looking(second), "And now?", session=session)
    [sent] = second.sent
    assert [(item.get("role") or item["type"]) for item in sent] == [
        "user",
        *["function_call"] * 2,
        *["function_call_output"] * 2,
        *["assistant", "user", "assistant", "user"],
    ]
    assert [item["content"] for item in sent if item.get("role")][-3:] == ["Say it again."] * 2 + ["And now?"]


async def test_items_come_back_and_go(client: Client, session_id: str) -> None:
    """The newest ones with a limit; pop_item takes one away, a result from its call too; clear_session takes all."""
    from openai_agents_session import TurnwireSession

    session = TurnwireSession(client, session_id)
    assert await session.pop_item() is None
    items: list[Any] = [
        {"role": "user", "content": "look"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
        {"role": "assistant", "content": "Done."},
    ]
    await session.add_items(items)
    assert await session.get_items() == items
    assert [await session.get_items(limit=limit) for limit in (0, 2, 99)] == [[], items[-2:], items]
    other = TurnwireSession(client, session_id)
    for left in range(len(items) - 1, -1, -1):
        assert await other.pop_item() == items[left]
        assert await session.get_items() == items[:left]
    sealed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    await session.add_items([sealed, *items])  # type: ignore[list-item]
    assert await session.get_items() == items
    await session.clear_session()
    assert await session.get_items() == []
    with pytest.raises(ValueError, match="'computer_call'"):
        await session.add_items([{"type": "computer_call"}])  # type: ignore[list-item]


async def test_an_item_of_the_servers_answer_can_be_popped(client: Client, session_id: str) -> None:
    """Such an answer may be several items; the others stay."""
    from openai_agents_session import TurnwireSession

    session = TurnwireSession(client, session_id)
    await client.ask("hello\n/tool nothing {}\n/step\nDone.", session_id)
    items = await session.get_items()
    assert len(items) > 2
    for left in range(len(items) - 1, -1, -1):
        assert await session.pop_item() == items[left]
        assert await session.get_items() == items[:left]


async def test_pydantic_ai_keeps_its_history_in_turnwire(client: Client, session_id: str) -> None:
    """A run with calls is stored and goes on, also from what the server's own turn added; usage is only reported."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.models.test import TestModel
    from pydantic_ai_history import load, store

    agent = Agent(TestModel(custom_output_text="Two cats."), system_prompt="Be brief.")

    @agent.tool_plain
    def look(at: str) -> str:
        """Looks."""
        return f"a cat at {at}"

    result = await agent.run("What is there?", message_history=await load(client, session_id))
    await store(client, session_id, result.new_messages())
    messages = await client.messages(session_id)
    [answer] = [m for m in messages if m.type == MESSAGE_TYPE_ASSISTANT and m.parts[0].HasField("tool_use")]
    assert answer.model_run.is_reported
    assert answer.usage.output_tokens > 0
    assert answer.parts[0].tool_use.output.startswith("a cat at")
    assert await client.ask("Say it again.", session_id) == "Say it again."

    seen: list[list[ModelMessage]] = []

    def reply(history: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        seen.append(history)
        return ModelResponse(parts=[TextPart("Bye.")])

    further = await agent.run("And now?", model=FunctionModel(reply), message_history=await load(client, session_id))
    assert further.output == "Bye."
    [history] = seen
    parts = [part for message in history for part in message.parts]
    assert [part.part_kind for part in parts] == [
        "system-prompt", "user-prompt", "tool-call", "tool-return", "text", "user-prompt", "text", "user-prompt",
    ]  # fmt: skip
    [returned] = [part for part in parts if isinstance(part, ToolReturnPart)]
    assert (returned.tool_name, str(returned.content)[:8]) == ("look", "a cat at")
    await store(client, session_id, further.new_messages())
    assert len(await client.messages(session_id)) == len(messages) + 4
