"""A provider that dies in the middle."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from opencode.message.content_pb2 import (
    FINISH_REASON_INTERRUPTED,
    FINISH_REASON_STOP,
    MESSAGE_STATUS_INTERRUPTED,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_SYSTEM,
)
from tests.support.clients.conversation import (
    answer_to,
    ask,
    model,
    new_session,
    talk,
    text,
    turn_ended,
    watching,
    words_of,
)
from tests.support.servers.provider import ProviderServer, ScriptedReply
from tests.support.servers.running import Client, connect, running_server
from turnwire.providers.http.transport import CHUNK_BYTES

MINE = model("m", "mine")


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    """A provider over HTTP."""
    async with ProviderServer() as running:
        yield running


@pytest.fixture
async def client(tmp_path: Path, provider: ProviderServer) -> AsyncIterator[Client]:
    """A client of a server that has that provider as "mine"."""
    toml = f'[providers.mine]\nkind = "openai_chat"\nbase_url = "{provider.base_url}"\napi_key_env = "MY_KEY"'
    async with running_server(tmp_path, toml, {"MY_KEY": "k"}) as server, connect(server.address) as connected:
        yield connected


def chunk(words: str, finish: str | None = None) -> bytes:
    """Returns one chunk of the Chat Completions API."""
    choice = {"index": 0, "delta": {"content": words}, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c1", "model": "m-1", "choices": [choice]}).encode() + b"\n\n"


def whole(words: str) -> ScriptedReply:
    """Returns a complete answer."""
    return ScriptedReply((chunk(words), chunk("", "stop"), b"data: [DONE]\n\n"))


async def test_provider_that_dies_leaves_the_text(client: Client, provider: ProviderServer) -> None:
    """INTERRUPTED with the text so far, once; no second attempt is glued to it; the next message works."""
    provider.enqueue(ScriptedReply((chunk("half of "), chunk("an answer")), cut=True))
    accepted = await client.messages.SendMessage(ask("hello", model=MINE))
    assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_INTERRUPTED
    answer = await answer_to(client, accepted)
    assert (words_of(answer), answer.status, answer.failure.reason) == (
        "half of an answer",
        MESSAGE_STATUS_INTERRUPTED,
        "PROVIDER_STREAM_CUT",
    )
    assert len(provider.requests) == 1
    provider.enqueue(whole("better"))
    again = await talk(client, "go on", accepted.session_id, model=MINE)
    assert words_of(await answer_to(client, again)) == "better"
    sent = provider.requests[1].body["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "user"]
    assert "half of an answer" in json.dumps(sent[1])


async def test_abort_reaches_the_provider(client: Client, provider: ProviderServer) -> None:
    """The provider's connection is closed, so that it stops generating."""
    provider.enqueue(ScriptedReply((chunk("one "), asyncio.Event())))
    accepted = await client.messages.SendMessage(ask("hello", model=MINE))
    async with watching(client, accepted.session_id, after_sequence=0) as watch:
        await watch.until_text("one")
    await client.messages.AbortSession(session_id=accepted.session_id)
    await provider.requests[0].disconnected.wait()
    assert words_of(await answer_to(client, accepted)) == "one "


async def test_host_messages_never_reach_the_model(client: Client, provider: ProviderServer) -> None:
    """System messages do; queued ones wait until their own turn."""
    session_id = await new_session(client)
    for kind, words in ((MESSAGE_TYPE_HOST, "host secret"), (MESSAGE_TYPE_SYSTEM, "be kind")):
        await client.messages.AppendMessage(
            session_id=session_id, type=kind, parts=[text(words)], metadata_json='{"m":"meta"}'
        )
    go = asyncio.Event()
    provider.enqueue(ScriptedReply((chunk("first"), go, chunk("", "stop"), b"data: [DONE]\n\n")))
    provider.enqueue(whole("second"))
    first = await client.messages.SendMessage(ask("one", session_id, model=MINE))
    queued = await client.messages.SendMessage(ask("two", session_id, model=MINE))
    async with watching(client, session_id, after_sequence=first.sequence) as watch:
        await watch.until_text("first")
    go.set()
    assert (await turn_ended(client, queued)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
    bodies = [json.dumps(request.body["messages"]) for request in provider.requests]
    assert all("be kind" in body and "host secret" not in body and "meta" not in body for body in bodies)
    assert "two" not in bodies[0]
    assert [m["role"] for m in provider.requests[1].body["messages"]] == ["system", "user", "assistant", "user"]


async def test_odd_values_do_not_cost_the_answer(client: Client, provider: ProviderServer) -> None:
    """Half a surrogate pair in a name or a count beyond all sense: the text is stored, and the turn ends in order."""
    odd = (
        b'data: {"id":"c\\ud800","model":"m\\udc00","choices":[{"index":0,"delta":{"content":"kept"},'
        b'"finish_reason":"stop\\ud83d"}],"usage":{"prompt_tokens":1e300,"completion_tokens":1e20}}\n\n'
    )
    provider.enqueue(ScriptedReply((odd, b"data: [DONE]\n\n")))
    accepted = await client.messages.SendMessage(ask("hello", model=MINE))
    await turn_ended(client, accepted)
    answer = await answer_to(client, accepted)
    assert (words_of(answer), answer.HasField("usage")) == ("kept", False)
    assert answer.status != MESSAGE_STATUS_INTERRUPTED


async def test_end_marker_alone_is_no_answer(client: Client, provider: ProviderServer) -> None:
    """A body that holds nothing but [DONE] was cut before it began, and is asked for again."""
    provider.enqueue(ScriptedReply((b"data: [DONE]\n\n",)))
    provider.enqueue(whole("here"))
    accepted = await client.messages.SendMessage(ask("hello", model=MINE))
    await turn_ended(client, accepted)
    assert words_of(await answer_to(client, accepted)) == "here"


async def test_answer_has_a_size(tmp_path: Path, provider: ProviderServer) -> None:
    """One that never ends is ended; what came is kept, at most a read beyond the limit."""
    toml = (
        f'[limits]\nmax_answer_bytes = 1000\n[providers.mine]\nkind = "openai_chat"\nbase_url = "{provider.base_url}"\n'
    )
    provider.enqueue(ScriptedReply(tuple(chunk("x" * 100) for _ in range(1000))))
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        accepted = await client.messages.SendMessage(ask("hello", model=MINE))
        ended = (await turn_ended(client, accepted)).turn_ended.turn
        assert ended.failure.reason == "PROVIDER_STREAM_FAILED"
        assert 1000 < len(words_of(await answer_to(client, accepted))) <= 1000 + CHUNK_BYTES
