"""A server that is killed in the middle of an answer, and clients that lose their connections."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from adapters.tests.conftest import serving
from adapters.tests.responses.checked import checked_client
from tests.support.servers.process import ServerProcess

MODEL = "offline/echo"
TOOLS: Any = [{"type": "function", "name": "roll", "parameters": None, "strict": False}]


class Killable:
    """A server process that is killed and started again at the same address."""

    def __init__(self, folder: Path, process: ServerProcess) -> None:
        """Takes a process; use the fixture."""
        self.folder = folder
        self.process = process

    async def kill(self) -> None:
        """Ends the server with SIGKILL."""
        await self.process.kill()

    async def start(self) -> None:
        """Starts it again."""
        self.process = await ServerProcess.start(self.folder, listen=self.process.address)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Killable]:
    """A server in a process of its own."""
    killable = Killable(tmp_path, await ServerProcess.start(tmp_path))
    try:
        yield killable
    finally:
        await killable.kill()


async def events_until(stream: Any, kind: str) -> list[Any]:
    """Returns the events up to the first of a kind."""
    events = []
    async for event in stream:
        events.append(event)
        if event.type == kind:
            break
    return events


def text_of(events: list[Any]) -> str:
    """Returns the text of the deltas."""
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


async def test_an_answer_that_waits_for_its_first_word_is_whole(server: Killable) -> None:
    """Although the server was killed: on the same connection, and on one that goes on behind another."""
    async with serving(server.process.address, ["responses"]) as base, checked_client(base) as client:
        stream = await client.responses.create(model=MODEL, input="/sleep 0.5\none two three", stream=True)
        begun = await events_until(stream, "response.in_progress")
        await server.kill()
        await server.start()
        rest = [event async for event in stream]
        assert rest[-1].type == "response.completed"
        assert text_of(rest) == "one two three"
        named, place = rest[-1].response.id, begun[-1].sequence_number
        resumed = await client.responses.retrieve(named, stream=True, starting_after=place)
        assert text_of([event async for event in resumed]) == "one two three"


async def test_a_text_that_is_cut_is_there_once(server: Killable) -> None:
    """The part that is kept comes once and whole at the end, whichever place a client goes on from."""
    async with serving(server.process.address, ["responses"]) as base, checked_client(base) as client:
        ask = "/rate 20\n" + " ".join(f"word{n}" for n in range(200))
        stream = await client.responses.create(model=MODEL, input=ask, stream=True)
        begun: list[Any] = []
        async for event in stream:
            begun.append(event)
            if len(text_of(begun)) > 100:
                break
        await server.kill()
        await server.start()
        events = begun + [event async for event in stream]
        assert events[-1].type == "response.failed"
        numbers = [event.sequence_number for event in events]
        assert numbers == sorted(set(numbers))
        response = events[-1].response
        kept = response.output_text
        assert ask.endswith(kept) or kept in ask
        [done] = [event for event in events if event.type == "response.output_text.done"]
        assert done.text == kept
        # A delta may have told what the server had not stored: the end has what is kept.
        assert text_of(events).startswith(kept) or kept.startswith(text_of(events))
        assert (await client.responses.retrieve(response.id)).output_text == kept
        for at, event in enumerate(begun):
            resumed = await client.responses.retrieve(response.id, stream=True, starting_after=event.sequence_number)
            rest = [one async for one in resumed]
            assert [one.text for one in rest if one.type == "response.output_text.done"] == [kept]
            assert (text_of(begun[: at + 1]) + text_of(rest))[: len(kept)] == kept


async def test_calls_that_wait_outlive_a_kill_and_another_adapter(server: Killable) -> None:
    """The outputs come to an adapter that did not begin the response, and the turn goes on."""
    async with serving(server.process.address, ["responses"]) as base, checked_client(base) as client:
        asked = await client.responses.create(model=MODEL, input="/tool roll\n/step\nDone.", tools=TOOLS)
    await server.kill()
    await server.start()
    async with serving(server.process.address, ["responses"]) as base, checked_client(base) as client:
        assert (await client.responses.retrieve(asked.id)).to_dict() == asked.to_dict()
        output: Any = {"type": "function_call_output", "call_id": asked.output[0].call_id, "output": "4"}  # type: ignore[union-attr]
        done = await client.responses.create(model=MODEL, input=[output], previous_response_id=asked.id)
        assert done.output_text == "Done."


async def test_without_a_server_the_error_says_so(server: Killable) -> None:
    """With 503, which clients take as a reason to try again."""
    async with serving("127.0.0.1:1", ["responses"]) as base, checked_client(base) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.create(model=MODEL, input="Hello")
        assert caught.value.status_code == 503
