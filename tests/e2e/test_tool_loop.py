"""The tool loop against each API's wire format: arguments, permissions, repetitions, truncated steps."""

import asyncio
import json
from pathlib import Path

import pytest

from opencode.message.content_pb2 import FINISH_REASON_ERROR, FINISH_REASON_INTERRUPTED, FINISH_REASON_STOP
from opencode.tool.tool_pb2 import PermissionResponse
from tests.support.clients.conversation import ask, displayed, model, tool, turn_ended, watching
from tests.support.models.scripts import APIS, CHECKS, Call, Say, answer
from tests.support.servers.provider import ProviderServer
from tests.support.servers.running import Client, connect, running_server

NUMBER = '{"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}'


def configuration(api: str, provider: ProviderServer) -> str:
    """Returns the configuration with the model "mine/m", where one tool asks."""
    return f"[providers.mine]\nkind = '{api}'\nbase_url = '{provider.base_url}'\n[permissions]\n'send' = 'ask'\n"


@pytest.mark.matrix
@pytest.mark.parametrize("api", APIS)
async def test_every_call_of_a_step_gets_its_result(api: str, tmp_path: Path) -> None:
    """Wrong arguments, an unknown tool, a rejected call and one that ran: the model reads all four, in one request."""
    async with ProviderServer() as provider:
        calls = (
            Call("count", '{"n": "one"}', "call_1"),
            Call("fly", "{}", "call_2"),
            Call("send", '{"n": 1.0}', "call_3"),
            Call("count", '{"n": 2.50}', "call_4"),
        )
        provider.enqueue(answer(api, Say("I try."), *calls))
        provider.enqueue(answer(api, Say("I see.")))
        async with running_server(tmp_path, configuration(api, provider)) as server, connect(server.address) as client:
            tools = [tool("count", NUMBER), tool("send", NUMBER)]
            accepted = await client.messages.SendMessage(ask("go", model=model("m", "mine"), tools=tools))
            async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
                asked = (await watch.until_kind("permission_asked")).permission_asked.permission
            shown = [c for m in await displayed(client, accepted.session_id) for c in m.tool_calls]
            assert [call.status for call in shown] == ["error", "error", "pending", "pending"]
            await client.permissions.RespondToPermission(
                PermissionResponse(
                    session_id=asked.session_id, permission_id=asked.id, response="reject", reason="not today"
                )
            )
            await client.tools.SubmitToolResult(session_id=asked.session_id, tool_call_id=shown[3].id, output="counted")
            assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
        assert [violation for request in provider.requests for violation in CHECKS[api](request.body)] == []
        sent = json.dumps(provider.requests[-1].body)
        for words in ("there is no tool named 'fly'", "not today", "counted"):
            assert words in sent
        assert "2.5" in sent


async def statuses(client: Client, session_id: str) -> list[str]:
    """Returns those of all calls of a conversation."""
    return [call.status for message in await displayed(client, session_id) for call in message.tool_calls]


@pytest.mark.slow
async def test_large_tools_outlive_what_is_kept_of_their_turn(tmp_path: Path) -> None:
    """Calls are checked and answered by them, also after a restart, and each request has them."""
    api, about = APIS[0], "what it does " * 10_000
    async with ProviderServer() as provider:
        provider.enqueue(answer(api, Call("count", '{"n": "one"}', "call_1"), Call("count", '{"n": 2.5}', "call_2")))
        provider.enqueue(answer(api, Say("I see.")))
        settings = configuration(api, provider)
        async with running_server(tmp_path, settings) as server, connect(server.address) as client:
            large = tool("count", NUMBER)
            large.description = about
            sent = ask("go", model=model("m", "mine"), tools=[large], system=about)
            accepted = await client.messages.SendMessage(sent)
            while await statuses(client, accepted.session_id) != ["error", "pending"]:
                await asyncio.sleep(0.01)
            [run] = [owner.run for owner in server._turns._owners.values()]  # type: ignore[union-attr]
            assert run is not None and (run.turn.tools, run.turn.system) == ((), None)
        async with running_server(tmp_path, settings) as server, connect(server.address) as client:
            assert await statuses(client, accepted.session_id) == ["error", "pending"]
            [*_, call] = [c for m in await displayed(client, accepted.session_id) for c in m.tool_calls]
            await client.tools.SubmitToolResult(session_id=accepted.session_id, tool_call_id=call.id, output="counted")
            assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
        for request in provider.requests:
            assert json.dumps(request.body).count(about) == 2


@pytest.mark.matrix
@pytest.mark.parametrize("api", APIS)
async def test_the_same_call_again_and_again_ends_the_turn(api: str, tmp_path: Path) -> None:
    """After three steps with the same call and the same result."""
    async with ProviderServer(lambda _: answer(api, Call("fly"))) as provider:
        async with running_server(tmp_path, configuration(api, provider)) as server, connect(server.address) as client:
            accepted = await client.messages.SendMessage(ask("go", model=model("m", "mine")))
            ended = (await turn_ended(client, accepted)).turn_ended.turn
        assert (ended.finish_reason, ended.failure.reason, ended.steps) == (
            FINISH_REASON_ERROR,
            "TOOL_CALL_REPEATED",
            3,
        )


@pytest.mark.matrix
@pytest.mark.parametrize("api", APIS)
async def test_a_truncated_step_runs_nothing(api: str, tmp_path: Path) -> None:
    """Its calls are shown, never run and never sent back; the session takes the next message."""
    async with ProviderServer() as provider:
        provider.enqueue(answer(api, Say("I try."), Call("count", '{"n": 1}'), cut=True))
        provider.enqueue(answer(api, Say("Again?")))
        async with running_server(tmp_path, configuration(api, provider)) as server, connect(server.address) as client:
            tools = [tool("count", NUMBER)]
            accepted = await client.messages.SendMessage(ask("go", model=model("m", "mine"), tools=tools))
            assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_INTERRUPTED
            (call,) = [c for m in await displayed(client, accepted.session_id) for c in m.tool_calls]
            assert call.status in ("error", "cancelled")
            again = await client.messages.SendMessage(ask("on", accepted.session_id, model=model("m", "mine")))
            assert (await turn_ended(client, again)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
        assert [violation for request in provider.requests for violation in CHECKS[api](request.body)] == []
        assert len(provider.requests) == 2
