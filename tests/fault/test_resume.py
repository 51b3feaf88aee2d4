"""Turns go on after kill -9 and after a stop, from their last step that ended in order."""

import asyncio
import json
from pathlib import Path

import pytest

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import FINISH_REASON_INTERRUPTED, FINISH_REASON_STOP, MESSAGE_TYPE_ASSISTANT
from opencode.message.message_pb2 import SendMessageResponse
from opencode.tool.tool_pb2 import SubmitToolResultRequest, ToolCallState
from opencode.turn.turn_pb2 import GenerationOptions
from opencode.usage.usage_pb2 import USAGE_DIMENSION_SESSION, QueryUsageRequest
from tests.support.clients.conversation import (
    answer_to,
    ask,
    displayed,
    messages_of,
    model,
    session_of,
    tool,
    turn_ended,
    watching,
    words_of,
)
from tests.support.models.scripts import APIS, CHECKS, Call, Say, Think, answer
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.mcp import ENVIRON, stdio
from tests.support.servers.process import server_process
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import Client, connect, running_server

pytestmark = pytest.mark.slow

STEPS = 30


def reply_to(api: str, steps: int, speaks: asyncio.Event) -> ProviderServer:
    """Returns a model that calls the tool "look" once in each step but the last, however often it is asked.

    It is silent while `speaks` is not set: a turn that ends in the middle of an answer does not go on.
    """

    def reply(request: RecordedRequest) -> ScriptedReply:
        number = json.dumps(request.body).count('"seen ') + 1
        if number == steps:
            return ScriptedReply((speaks, *answer(api, Say("All seen.")).chunks))
        call = Call("look", f'{{"number": {number}.0}}', f"call_{number}")
        said = answer(api, Think(f"thought {number}", f"seal-{number}"), Say(f"Step {number}."), call)
        return ScriptedReply((speaks, *said.chunks))

    return ProviderServer(reply)


async def next_call(client: Client, accepted: SendMessageResponse, number: int) -> ToolCallState:
    """Waits until the call of a step can be answered: its event is stored. A snapshot may show the call before that."""

    def is_next(event: SessionEvent) -> bool:
        state = event.tool_call_updated.state
        return (state.call_id, state.status) == (f"call_{number}", "pending")

    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        return (await watch.until(is_next)).tool_call_updated.state


def result(accepted: SendMessageResponse, call: ToolCallState, number: int) -> SubmitToolResultRequest:
    """Returns the result of a step's call."""
    return SubmitToolResultRequest(session_id=accepted.session_id, tool_call_id=call.id, output=f"seen {number}")


async def check_conversation(client: Client, accepted: SendMessageResponse, steps: int) -> None:
    """Checks that each step is there and counted once, with its call and result, and that the events tell the same."""
    ended = (await turn_ended(client, accepted)).turn_ended.turn
    assert (ended.finish_reason, ended.steps) == (FINISH_REASON_STOP, steps)
    stored = await messages_of(client, accepted.session_id)
    answers = [message for message in stored if message.type == MESSAGE_TYPE_ASSISTANT]
    assert [words_of(message) for message in answers] == [f"Step {n}." for n in range(1, steps)] + ["All seen."]
    outputs = [part.tool_use.output for message in answers for part in message.parts if part.HasField("tool_use")]
    assert outputs == [f"seen {n}" for n in range(1, steps)]
    fold = SessionFold(accepted.session_id)
    async with watching(client, accepted.session_id, fold, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    assert comparable(fold.listed()) == comparable(stored)
    assert list(fold.ended_turns) == [accepted.turn_id]
    by_session = QueryUsageRequest(group_by=[USAGE_DIMENSION_SESSION])
    rows = {row.session_id: row for row in (await client.usage.QueryUsage(by_session)).rows}
    used = rows[accepted.session_id]
    assert (used.usage, used.steps, used.turns) == (ended.usage, steps, 1)
    assert used.usage.input_tokens > 0


def check_requests(api: str, provider: ProviderServer, steps: int) -> None:
    """Checks that every request obeys the API's rules, and that sealed reasoning goes back as it came."""
    assert [violation for request in provider.requests for violation in CHECKS[api](request.body)] == []
    last = json.dumps(provider.requests[-1].body)
    if api != "openai_chat":  # it has no sealed reasoning
        assert [f"seal-{n}" in last for n in range(1, steps)] == [True] * (steps - 1)
    assert [f'{{\\"number\\": {n}.0}}' in last or f'"number": {n}.0' in last for n in range(1, steps)] == [True] * (
        steps - 1
    )


def configuration(api: str, provider: ProviderServer) -> str:
    """Returns the configuration with the model "mine/m"."""
    return f"[providers.mine]\nkind = '{api}'\nbase_url = '{provider.base_url}'\n"


async def test_killed_at_every_step(tmp_path: Path) -> None:
    """Thirty steps, a kill at each: while the call waits, or as soon as its result is confirmed. Nothing is lost."""
    speaks = asyncio.Event()
    speaks.set()
    async with reply_to("anthropic", STEPS, speaks) as provider:
        toml = configuration("anthropic", provider)
        async with server_process(tmp_path, toml) as server, connect(server.address) as client:
            request = ask("look around", model=model("m", "mine"), tools=[tool("look")], request_id="r")
            accepted = await client.messages.SendMessage(request)
            call = await next_call(client, accepted, 1)
            await server.kill()
        for number in range(1, STEPS):
            async with server_process(tmp_path, toml) as server, connect(server.address) as client:
                assert (await session_of(client, accepted.session_id)).active_turn_id == accepted.turn_id
                if call.call_id != f"call_{number}":
                    call = await next_call(client, accepted, number)
                waits_for_call = number % 2 and number + 1 < STEPS
                if not waits_for_call and number + 1 < STEPS:
                    speaks.clear()
                confirmed = await client.tools.SubmitToolResult(result(accepted, call, number))
                assert confirmed.tool_call.status == "success"
                if waits_for_call:
                    call = await next_call(client, accepted, number + 1)
                if number + 1 == STEPS:
                    await check_conversation(client, accepted, STEPS)
                await server.kill()
                speaks.set()
        check_requests("anthropic", provider, STEPS)


@pytest.mark.parametrize("api", APIS)
async def test_thirty_steps_with_stops(api: str, tmp_path: Path) -> None:
    """The same with an orderly stop and start at every tenth step, for each API."""
    speaks = asyncio.Event()
    speaks.set()
    async with reply_to(api, STEPS, speaks) as provider:
        toml = configuration(api, provider)
        accepted: SendMessageResponse | None = None
        for tens in range(3):
            async with running_server(tmp_path, toml) as server, connect(server.address) as client:
                if accepted is None:
                    request = ask("look around", model=model("m", "mine"), tools=[tool("look")])
                    accepted = await client.messages.SendMessage(request)
                for number in range(max(1, tens * 10), min(STEPS, tens * 10 + 10)):
                    call = await next_call(client, accepted, number)
                    if number % 10 == 9 and tens < 2:
                        speaks.clear()
                    await client.tools.SubmitToolResult(result(accepted, call, number))
                if tens == 2:
                    await check_conversation(client, accepted, STEPS)
            speaks.set()
        check_requests(api, provider, STEPS)
        assert len(provider.requests) <= STEPS + 2  # at most the step during each stop is asked again


async def test_silent_model_is_asked_again(tmp_path: Path) -> None:
    """A server that was killed before the first word asks again, and the answer goes into the same message."""
    async with ProviderServer() as provider:
        toml = configuration("openai_chat", provider)
        for _ in range(3):
            provider.enqueue(ScriptedReply((asyncio.Event(),)))
        async with server_process(tmp_path, toml) as server, connect(server.address) as client:
            accepted = await client.messages.SendMessage(ask("hello", model=model("m", "mine")))
            async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
                message = (await watch.until_kind("message_added", 2)).message_added.message
            while not provider.requests:
                await asyncio.sleep(0.01)
            await server.kill()
        for attempt in range(2):
            async with server_process(tmp_path, toml) as server:
                while len(provider.requests) < attempt + 2:
                    await asyncio.sleep(0.01)
                await server.kill()
        provider.enqueue(answer("openai_chat", Say("Here I am.")))
        async with server_process(tmp_path, toml) as server, connect(server.address) as client:
            ended = (await turn_ended(client, accepted)).turn_ended.turn
            said = await answer_to(client, accepted)
        assert (ended.finish_reason, ended.steps) == (FINISH_REASON_STOP, 1)
        assert (said.message_id, words_of(said)) == (message.message_id, "Here I am.")


async def test_turn_that_never_gets_anywhere_is_given_up(tmp_path: Path) -> None:
    """A turn during which the server died four times without a word of the model ends, and the session goes on."""
    async with ProviderServer() as provider:
        for _ in range(4):
            provider.enqueue(ScriptedReply((asyncio.Event(),)))
        toml = configuration("openai_chat", provider)
        async with server_process(tmp_path, toml) as server, connect(server.address) as client:
            accepted = await client.messages.SendMessage(ask("hello", model=model("m", "mine")))
            while not provider.requests:
                await asyncio.sleep(0.01)
            await server.kill()
        for attempt in range(3):
            async with server_process(tmp_path, toml) as server:
                while len(provider.requests) < attempt + 2:
                    await asyncio.sleep(0.01)
                await server.kill()
        async with server_process(tmp_path, toml) as server, connect(server.address) as client:
            ended = (await turn_ended(client, accepted)).turn_ended.turn
            assert (ended.finish_reason, ended.failure.reason) == (FINISH_REASON_INTERRUPTED, "SERVER_RESTARTED")
            assert not (await session_of(client, accepted.session_id)).active_turn_id
        assert len(provider.requests) == 4


async def test_tool_that_ran_is_not_run_twice(tmp_path: Path) -> None:
    """A kill while an MCP tool runs: the model reads that nobody knows, the other calls of the step are run."""
    toml = stdio(tmp_path) + "[limits]\nmax_parallel_tool_calls = 1\n"
    words = '/tool test.slow {}\n/tool test.add {"a": 1, "b": 1}\n/step\nGood.'
    async with server_process(tmp_path, toml, ENVIRON) as server, connect(server.address) as client:
        accepted = await client.messages.SendMessage(ask(words, options=GenerationOptions(max_steps=5)))
        async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
            await watch.until_kind("tool_log")
        await server.kill()
    (tmp_path / "slow_began").unlink()
    async with server_process(tmp_path, toml, ENVIRON) as server, connect(server.address) as client:
        ended = (await turn_ended(client, accepted)).turn_ended.turn
        assert ended.finish_reason == FINISH_REASON_STOP
        shown = await displayed(client, accepted.session_id)
        calls = [call for message in shown for call in message.tool_calls]
        assert [(call.status, call.output) for call in calls] == [("error", ""), ("success", "the sum is 2")]
        assert "restarted" in calls[0].error
    assert not (tmp_path / "slow_began").exists()


async def test_turn_whose_provider_is_gone_fails_by_name(tmp_path: Path) -> None:
    """The configuration may lose a provider between two starts; the session goes on with another model."""
    mine = '[providers.mine]\nkind = "offline"\n'
    async with running_server(tmp_path, mine) as server, connect(server.address) as client:
        asked = ask("/tool look {}", model=model("echo", "mine"), tools=[tool("look")])
        accepted = await client.messages.SendMessage(asked)
        async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
            call = (await watch.until_kind("tool_call_updated")).tool_call_updated.state
    async with running_server(tmp_path) as server, connect(server.address) as client:
        await client.tools.SubmitToolResult(result(accepted, call, 1))
        failure = (await turn_ended(client, accepted)).turn_ended.turn.failure
        assert (failure.reason, "'mine'" in failure.message) == ("MODEL_UNKNOWN", True)
        again = await client.messages.SendMessage(ask("and now?", accepted.session_id))
        assert (await turn_ended(client, again)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
