"""The OpenAI Agents SDK does its ordinary work. Prints one word for each thing that it did."""

import asyncio
import sys

from agents import (
    Agent,
    HostedMCPTool,
    MCPToolApprovalFunctionResult,
    MCPToolApprovalRequest,
    ModelSettings,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

ROLLED: list[int] = []
ASKED: list[str] = []


@function_tool
def roll(sides: int) -> int:
    """Rolls a die."""
    ROLLED.append(sides)
    return 4


@function_tool(needs_approval=True)
def burn(sides: int) -> int:
    """Rolls a die that nobody may roll unasked."""
    ROLLED.append(sides)
    return 1


def approved(request: MCPToolApprovalRequest) -> MCPToolApprovalFunctionResult:
    """Lets a call of a tool of the server run."""
    ASKED.append(request.data.name)
    return {"approve": True}


def refused(_: MCPToolApprovalRequest) -> MCPToolApprovalFunctionResult:
    """Lets none run."""
    return {"approve": False, "reason": "not today"}


async def main(base: str) -> None:
    """Does everything; raises when something is wrong."""
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=base, api_key="none", max_retries=0)
    model = OpenAIResponsesModel("offline/echo", client)
    agent = Agent(name="Dice", instructions="Be brief.", model=model, tools=[roll])
    prompt = '/tool roll {"sides": 6}\n/step\n/tool roll {"sides": 8}\n/step\nDone.'

    plain = await Runner.run(agent, "Hello there")
    assert plain.final_output == "Hello there"
    print("plain")

    streamed = Runner.run_streamed(agent, "/rate 50\none two three")
    deltas = [
        event.data.delta
        async for event in streamed.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    assert "".join(deltas) == "one two three"
    print("streamed")

    looped = await Runner.run(agent, prompt)
    assert looped.final_output == "Done."
    assert ROLLED == [6, 8]
    print("tools")

    chained = await Runner.run(agent, prompt, auto_previous_response_id=True)
    assert chained.final_output == "Done."
    assert ROLLED == [6, 8, 6, 8]
    print("previous responses")

    session = OpenAIConversationsSession(openai_client=client)
    for words in ("One", "Two"):
        result = await Runner.run(agent, words, session=session)
        assert result.final_output == words
    looped = await Runner.run(agent, prompt, session=session)
    assert looped.final_output == "Done."
    assert len(await session.get_items()) == 4 + 6
    print("conversation")

    conversation = await client.conversations.create()
    for words in ("One", "Two", prompt):
        result = await Runner.run(agent, words, conversation_id=conversation.id)
    assert result.final_output == "Done."
    print("conversation of the server")

    required = agent.clone(model_settings=ModelSettings(tool_choice="required"))
    assert (await Runner.run(required, "Hello")).final_output
    assert len(ROLLED) == 9
    print("required")

    add = '/tool test.add {"a": 2, "b": 3}\n/step\nDone.'
    for answer in (approved, refused):
        server = HostedMCPTool(tool_config={"type": "mcp", "server_label": "test"}, on_approval_request=answer)
        asking = Agent(name="Adder", model=model, tools=[server])
        for chained_by_id in (False, True):
            done = await Runner.run(asking, add, auto_previous_response_id=chained_by_id)
            assert done.final_output == "Done."
            [call] = [one for answer in done.raw_responses for one in answer.output if one.type == "mcp_call"]
            assert (call.output == "the sum is 5") is (answer is approved)
    assert ASKED == ["add", "add"]
    print("approvals by a function")

    server = HostedMCPTool(tool_config={"type": "mcp", "server_label": "test"})
    asking = Agent(name="Adder", model=model, tools=[server, burn])
    for words in (add, '/tool burn {"sides": 6}\n/step\nDone.'):
        stopped = await Runner.run(asking, words)
        [interruption] = stopped.interruptions
        state = stopped.to_state()
        state.approve(interruption)
        resumed = await Runner.run(asking, state)
        assert resumed.final_output == "Done."
    print("approvals by a state")


asyncio.run(main(sys.argv[1]))
