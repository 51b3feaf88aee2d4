"""Tokens and money that a turn and a session may use."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from opencode.message.content_pb2 import FINISH_REASON_BUDGET, FINISH_REASON_STOP
from opencode.session.session_pb2 import Budget, SessionSettings
from opencode.turn.turn_pb2 import GenerationOptions
from tests.support.clients.conversation import ask, model, new_session, talk, turn_ended
from tests.support.models.scripts import Call, Say, Tokens, answer
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import Client, connect, running_server

MODEL = model("m", "mine")


def calls_for_ever(_: RecordedRequest) -> ScriptedReply:
    """Calls a tool that nobody has, each time; a call uses a hundred tokens."""
    number = next(_NUMBERS)
    return answer("openai_chat", Call("nowhere", f'{{"n":{number}}}', f"c{number}"), tokens=Tokens(60, 40))


def says_yes(_: RecordedRequest) -> ScriptedReply:
    """Answers with a hundred tokens."""
    return answer("openai_chat", Say("Yes."), tokens=Tokens(60, 40))


_NUMBERS = iter(range(1_000_000))


@contextlib.asynccontextmanager
async def world(folder: Path, reply_to: object, more: str = "") -> AsyncIterator[tuple[Client, ProviderServer]]:
    """Runs server and model; a token costs a millionth of a dollar."""
    async with ProviderServer(reply_to) as provider:  # type: ignore[arg-type]
        toml = f"""
{more}
[providers.mine]
kind = 'openai_chat'
base_url = '{provider.base_url}'
[models."mine/m"]
input_usd_per_million = "1"
output_usd_per_million = "1"
"""
        async with running_server(folder, toml) as server, connect(server.address) as client:
            yield client, provider


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("options", "limits", "steps"),
    [
        ({"max_turn_tokens": 250}, "", 3),
        ({"max_turn_tokens": 200}, "", 2),
        ({"max_turn_cost_pico_usd": 150_000_000}, "", 2),
        ({}, "[limits]\nmax_turn_tokens = 100", 1),
        ({"max_turn_tokens": 1000}, "[limits]\nmax_turn_tokens = 100", 1),
        ({}, '[limits]\nmax_turn_cost_usd = "0.00015"', 2),
    ],
)
async def test_a_turn_ends_when_its_budget_is_used_up(
    options: dict[str, int], limits: str, steps: int, tmp_path: Path
) -> None:
    """No further step begins; the end says which budget it was."""
    async with world(tmp_path, calls_for_ever, limits) as (client, provider):
        accepted = await talk(client, "go", model=MODEL, options=GenerationOptions(**options))
        ended = (await turn_ended(client, accepted)).turn_ended.turn
    assert (ended.finish_reason, ended.steps, len(provider.requests)) == (FINISH_REASON_BUDGET, steps, steps)
    assert (ended.failure.reason, dict(ended.failure.metadata)) == ("BUDGET_EXHAUSTED", {"budget": "turn"})
    assert "turn" in ended.failure.message


async def test_a_session_ends_its_turns_when_its_budget_is_used_up(tmp_path: Path) -> None:
    """Without asking the model; with a larger budget it goes on. Other sessions have their own."""
    async with world(tmp_path, says_yes) as (client, provider):
        session_id = await new_session(client)
        budget = Budget(max_tokens=150)
        await client.sessions.UpdateSession(session_id=session_id, settings=SessionSettings(budget=budget))
        reasons = []
        for _ in range(4):
            accepted = await talk(client, "hi", session_id, model=MODEL)
            reasons.append((await turn_ended(client, accepted)).turn_ended.turn.finish_reason)
        assert reasons == [FINISH_REASON_STOP, FINISH_REASON_STOP, FINISH_REASON_BUDGET, FINISH_REASON_BUDGET]
        assert len(provider.requests) == 2
        budget = Budget(max_tokens=300)
        await client.sessions.UpdateSession(session_id=session_id, settings=SessionSettings(budget=budget))
        for other in (session_id, ""):
            accepted = await talk(client, "hi", other, model=MODEL)
            assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_STOP


async def test_the_servers_limit_counts_for_all_sessions(tmp_path: Path) -> None:
    """Their own settings do not change that."""
    async with world(tmp_path, says_yes, '[limits]\nmax_session_cost_usd = "0.0001"') as (client, provider):
        first = await talk(client, "hi", model=MODEL)
        second = await client.messages.SendMessage(ask("hi", first.session_id, model=MODEL))
        ended = (await turn_ended(client, second)).turn_ended.turn
        assert (ended.finish_reason, ended.steps) == (FINISH_REASON_BUDGET, 0)
        assert "session" in ended.failure.message
        assert len(provider.requests) == 1
