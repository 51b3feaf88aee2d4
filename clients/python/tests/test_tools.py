"""Functions as tools, and requests of tools to people, against a real server."""

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from opencode.question.question_pb2 import Question
from opencode.tool.tool_pb2 import PermissionRequest
from tests.support.servers.mcp import ENVIRON, asker, ready
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.running import connect, running_server
from turnwire_client import Client, tool_of

RULES = """
[permissions]
"careful" = "ask"
"""


@pytest.fixture(scope="module")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a server that asks before calls of one tool."""
    async with running_server(tmp_path_factory.mktemp("tools"), RULES) as server:
        yield server.address


@dataclass
class Place:
    """Where something is."""

    city: str
    country: str = "NL"


async def test_a_function_answers_the_model(client: Client) -> None:
    """Arguments come as values of their types, the result goes back by itself."""

    @client.tool
    def weather(place: Place, days: Annotated[int, "how many"] = 1) -> dict[str, object]:
        """Tells the weather."""
        return {"where": f"{place.city} {place.country}", "days": days}

    answer = await client.ask('/tool weather {"place": {"city": "Utrecht"}, "days": 2}')
    assert '"where": "Utrecht NL"' in answer
    assert '"days": 2' in answer
    assert weather(Place("Utrecht")) == {"where": "Utrecht NL", "days": 1}


async def test_coroutine_functions_run_at_once(client: Client) -> None:
    """Calls of one answer do not wait for each other."""
    both = asyncio.Barrier(2)

    @client.tool(name="meet", description="Waits for the other one.")
    async def wait() -> str:
        await both.wait()
        return "met"

    assert (await client.ask("/tool meet {}\n/tool meet {}")).count("met") == 2


async def test_an_exception_is_an_error_for_the_model(client: Client) -> None:
    """And the turn goes on."""

    @client.tool
    def broken() -> str:
        """Breaks."""
        raise OSError("the disk is on fire")

    answer = client.ask("/tool broken {}\n/step\nI see.")
    assert await answer == "I see."
    assert answer.accepted is not None
    parts = (await client.messages(answer.accepted.session_id))[1].parts
    assert (parts[0].tool_use.status, parts[0].tool_use.error) == ("error", "OSError: the disk is on fire")


async def test_a_tool_that_takes_too_long_is_an_error(client: Client) -> None:
    """After its own time."""

    @client.tool(timeout_seconds=0.01)
    async def slow() -> None:
        """Never ends."""
        await asyncio.Event().wait()

    assert "0.01 seconds" in await client.ask("/tool slow {}")


async def test_an_output_that_is_too_large_is_an_error(client: Client) -> None:
    """The model reads that it was refused."""

    @client.tool
    def large() -> str:
        """Says too much."""
        return "x" * (17 << 20)

    assert "more than 16 MiB" in (await client.ask("/tool large {}"))


async def test_of_two_watchers_one_runs_a_call(client: Client, address: str) -> None:
    """A call is claimed before it runs."""
    runs = []

    async def count() -> str:
        """Counts."""
        runs.append("")
        await asyncio.sleep(0)
        return "counted"

    tool = tool_of(count)
    async with Client.connect(address) as other:
        accepted = await client.send("/sleep 0.2\n/tool count {}", tools=[tool])

        async def follow(one: Client) -> None:
            async with one.watch(accepted.session_id, tools=[tool]) as updates:
                async for update in updates:
                    if update.kind == "turn_ended":
                        return

        await asyncio.gather(follow(client), follow(other))
    assert len(runs) == 1


async def test_an_open_call_is_run_by_a_watch_that_begins_later(client: Client) -> None:
    """It is among what the watch reads first."""

    def late() -> str:
        """Is late."""
        return "better than never"

    accepted = await client.send("/tool late {}", tools=[tool_of(late)])
    async with client.watch(accepted.session_id) as updates:
        async for update in updates:
            parts = [part for message in update.conversation.messages for part in message.parts]
            if any(part.tool_use.HasField("started_at") for part in parts):
                break
    async with client.watch(accepted.session_id, tools=[tool_of(late)]) as updates:
        async for update in updates:
            if update.kind == "turn_ended":
                break
    assert "better than never" in update.conversation.text(update.conversation.messages[-1].message_id)


async def test_a_watch_that_is_left_ends_quietly(client: Client) -> None:
    """A loop that breaks off needs no closing: the tools end with the watch, and nothing is reported."""

    def idle() -> str:
        """Does nothing."""
        return ""

    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    gc.freeze()  # what other tests have left is many times more than what is looked at here
    try:
        accepted = await client.send("Hello")
        async for _ in client.watch(accepted.session_id, tools=[tool_of(idle)]):
            break
        for _ in range(20):
            gc.collect()
            await asyncio.sleep(0.01)
    finally:
        gc.unfreeze()
    assert reported == []


async def test_an_aborted_turn_ends_its_tools(client: Client) -> None:
    """A coroutine function is cancelled."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @client.tool
    async def endless() -> None:
        """Never ends."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    answer = client.ask("/tool endless {}")
    following = asyncio.ensure_future(answer._all())
    await begun.wait()
    assert answer.accepted is not None
    await client.abort(answer.accepted.session_id)
    await cancelled.wait()
    await following


@pytest.mark.slow
async def test_a_call_is_run_once_over_a_killed_server(tmp_path: Path) -> None:
    """The result of a call goes to the server that comes back."""
    async with server_process(tmp_path) as first, Client.connect(first.address) as client:
        runs, second = [], None

        @client.tool
        async def restart() -> str:
            """Kills the server while it runs, and starts another one."""
            nonlocal second
            runs.append("")
            await first.kill()
            second = await ServerProcess.start(tmp_path, listen=first.address)
            return "survived"

        try:
            assert "survived" in await client.ask("/tool restart {}")
            assert len(runs) == 1
        finally:
            if second is not None:
                await second.kill()


@pytest.mark.parametrize(("decision", "text"), [(True, "done"), ("always", "done"), (False, "not allow")])
async def test_a_function_decides_about_permissions(client: Client, decision: bool, text: str) -> None:
    """A call that is not allowed does not run, and the model reads that."""
    asked: list[PermissionRequest] = []

    @client.tool
    def careful() -> str:
        """Needs a permission."""
        return "done"

    def decide(request: PermissionRequest) -> bool:
        asked.append(request)
        return decision

    assert text in await client.ask("/tool careful {}", on_permission=decide)
    assert [request.type for request in asked] == ["careful"]


async def test_requests_are_answered_by_hand(client: Client) -> None:
    """A watch shows them; a second, other answer is refused."""

    @client.tool
    def careful() -> str:
        """Needs a permission."""
        return "done"

    accepted = await client.send("/tool careful {}")
    async with client.watch(accepted.session_id) as updates:
        async for update in updates:
            held = update.conversation
            if held.permissions and update.kind in ("read", "permission_asked"):
                [request] = held.permissions.values()
                await client.reject(request, "not today")
                await client.reject(request, "not today")
            if update.kind == "turn_ended":
                break
    assert held.permissions == {}
    assert "not today" in held.text(held.messages[-1].message_id)


@pytest.mark.slow
async def test_a_function_answers_questions(tmp_path: Path) -> None:
    """Its return value is the reply to the question; None declines."""
    async with running_server(tmp_path, asker(), ENVIRON) as server, connect(server.address) as stubs:
        await ready(stubs)
        client = await Client.connect(server.address).open()
        asked: list[Question] = []

        def fill(question: Question) -> dict[str, object] | None:
            asked.append(question)
            return {"colour": "red", "coats": 2} if len(asked) == 1 else None

        painted = await client.ask('/tool ask.paint {"what": "the door"}', on_question=fill)
        declined = await client.ask('/tool ask.paint {"what": "the door"}', on_question=fill)
        assert "red" in painted
        assert "red" not in declined
        assert len(asked) == 2
        await client.close()
