"""The OpenAI Agents SDK does its ordinary work. Prints one word for each thing that it did."""

import asyncio
import sys

from agents import (
    Agent,
    ModelSettings,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

ROLLED: list[int] = []


@function_tool
def roll(sides: int) -> int:
    """Rolls a die."""
    ROLLED.append(sides)
    return 4


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


asyncio.run(main(sys.argv[1]))
