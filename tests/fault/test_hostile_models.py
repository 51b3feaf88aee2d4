"""A model server that floods: its turn ends in order, what came is kept, and a neighbour goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from opencode.message.content_pb2 import FINISH_REASON_ERROR, FINISH_REASON_INTERRUPTED, FINISH_REASON_STOP
from tests.support.clients.conversation import answer_to, ask, model, talk, turn_ended, words_of
from tests.support.servers.provider import ProviderServer, ScriptedReply
from tests.support.servers.raw import RawServer, sending
from tests.support.servers.running import Client, connect, running_server

pytestmark = pytest.mark.slow

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
LIMITS = """\
[retries]
first_delay_seconds = 0.001
[limits]
max_answer_received_bytes = 2000000
max_answer_parts = 50
max_answer_bytes = 20000
"""


def chunk(**delta: object) -> bytes:
    """Returns one event with a delta."""
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def calls() -> bytes:
    """Returns a hundred events, each with a call of its own."""
    return b"".join(chunk(tool_calls=[{"index": n, "id": f"c{n}", "function": {"name": "x"}}]) for n in range(100))


FLOODS = {
    "comments": (b": nothing\n\n" * 100, "max_answer_received_bytes"),
    "empty deltas": (chunk(content="") * 20, "max_answer_received_bytes"),
    "models": (b'data: {"model":"%s","choices":[]}\n\n' % (b"m" * 9000), "max_answer_received_bytes"),
    "text": (chunk(content="x" * 1000), "max_answer_bytes"),
    "calls": (calls(), "max_answer_parts"),
    "parts": (chunk(content="x") + chunk(reasoning="y"), "max_answer_parts"),
    "kept fields": (chunk(reasoning_details=[{"index": 0, "data": "z" * 1000}]), "max_answer_received_bytes"),
    "a line without end": (b"x" * 5000, "max_answer_received_bytes"),
}


@pytest.fixture
async def calm() -> AsyncIterator[ProviderServer]:
    """A model server that answers in order."""
    done = b'data: {"choices":[{"index":0,"delta":{"content":"calm"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    async with ProviderServer(lambda _: ScriptedReply((done,))) as server:
        yield server


def table(name: str, base_url: str) -> str:
    """Returns the configuration of a model server."""
    return f'[providers.{name}]\nkind = "openai_chat"\nbase_url = "{base_url}"\n'


@pytest.mark.parametrize("flood", FLOODS)
async def test_an_answer_that_never_ends(flood: str, tmp_path: Path, calm: ProviderServer) -> None:
    """Its turn fails with the limit, and what came before the flood is kept; it is asked once only."""
    forever, limit = FLOODS[flood]
    async with RawServer(sending(HEAD, chunk(content="so far"), forever=forever)) as wild:
        toml = LIMITS + table("wild", wild.base_url) + table("calm", calm.base_url)
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            accepted = await client.messages.SendMessage(ask("hello", model=model("m", "wild")))
            assert words_of(await answer_to(client, await talk(client, "hi", model=model("m", "calm")))) == "calm"
            ended = (await turn_ended(client, accepted)).turn_ended.turn
            assert (ended.finish_reason, ended.failure.reason) == (FINISH_REASON_ERROR, "PROVIDER_STREAM_FAILED")
            told = ended.failure.metadata
            host = wild.base_url.split("/")[2]
            assert (told["limit"], told["providerId"]) == (f"limits.{limit}", "wild")
            assert told.get("providerHost") == host
            assert f"the provider wild at {host} " in ended.failure.message
            assert words_of(await answer_to(client, accepted)).startswith("so far")
            assert wild.connections == 1


async def test_a_flood_without_content_is_asked_for_once(tmp_path: Path) -> None:
    """An answer that went over a limit before its first content would do so again."""
    async with RawServer(sending(HEAD, forever=b": nothing\n\n" * 100)) as wild:
        toml = LIMITS + table("wild", wild.base_url)
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            accepted = await client.messages.SendMessage(ask("hello", model=model("m", "wild")))
            ended = (await turn_ended(client, accepted)).turn_ended.turn
            assert (ended.failure.reason, wild.connections) == ("PROVIDER_STREAM_FAILED", 1)


@pytest.fixture
async def client(tmp_path: Path, calm: ProviderServer) -> AsyncIterator[Client]:
    """A client of a server with one model server, which tests script."""
    toml = table("calm", calm.base_url) + "[retries]\nmax_retries = 0\nlongest_delay_seconds = 2\n"
    async with running_server(tmp_path, toml) as server, connect(server.address) as connected:
        yield connected


async def test_words_of_a_provider_are_short_when_they_are_stored(client: Client, calm: ProviderServer) -> None:
    """Names, ids and reasons of a megabyte, with line breaks and NUL."""
    long = "a\n\0b" + "c" * 1_000_000
    call = {"index": 0, "id": long, "function": {"name": long, "arguments": "{}"}}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": long}
    body = {"id": long, "model": long, "choices": [choice]}
    calm.enqueue(ScriptedReply((b"data: " + json.dumps(body).encode() + b"\n\n", b"data: [DONE]\n\n")))
    accepted = await client.messages.SendMessage(ask("hello", model=model("m", "calm")))
    await turn_ended(client, accepted)
    stored = await client.messages.GetMessages(session_id=accepted.session_id)
    assert stored.ByteSize() < 20_000
    assert "a??b" + "c" * 252 in {message.provider_finish_reason for message in stored.messages}


async def test_a_wait_that_is_too_long_is_told(client: Client, calm: ProviderServer) -> None:
    """The turn ends at once, and the client learns how long the provider would have it wait."""
    headers = {"retry-after": "3600", "content-type": "application/json"}
    calm.enqueue(ScriptedReply((b'{"error":{"message":"slow down"}}',), 429, headers))
    accepted = await client.messages.SendMessage(ask("hello", model=model("m", "calm")))
    failure = (await turn_ended(client, accepted)).turn_ended.turn.failure
    assert (failure.reason, failure.retry_after.seconds) == ("PROVIDER_RATE_LIMITED", 3600)
    assert dict(failure.metadata) == {
        "status": "429",
        "providerMessage": "slow down",
        "providerId": "calm",
        "providerHost": calm.base_url.split("/")[2],
        "retryAfterSeconds": "3600",
        "limit": "retries.longest_delay_seconds",
        "limitValue": "2",
    }


@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "silent"])
async def test_a_stall_ends_as_a_cut_does(is_cut: bool, tmp_path: Path) -> None:
    """Both leave half an answer: interrupted, with what came."""
    async with ProviderServer() as wild:
        wild.enqueue(ScriptedReply((chunk(content="half"), *(() if is_cut else (asyncio.Event(),))), cut=is_cut))
        toml = table("wild", wild.base_url) + ("" if is_cut else "timeout_seconds = 1\n")
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            accepted = await client.messages.SendMessage(ask("hello", model=model("m", "wild")))
            ended = (await turn_ended(client, accepted)).turn_ended.turn
            assert (ended.finish_reason, ended.failure.reason) == (FINISH_REASON_INTERRUPTED, "PROVIDER_STREAM_CUT")
            assert words_of(await answer_to(client, accepted)) == "half"
            again = await client.messages.SendMessage(ask("again", model=model("echo")))
            assert (await turn_ended(client, again)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
