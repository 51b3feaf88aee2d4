"""plue_message_stream_response as docs/migrating.md shows it, on a real server: slow and fast, cut and aborted."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from opencode.event.event_pb2 import WatchEventsRequest
from opencode.message.content_pb2 import MESSAGE_STATUS_INTERRUPTED, PART_STATUS_COMPLETE
from opencode.message.message_pb2 import AbortSessionRequest
from opencode.tool.tool_pb2 import SubmitToolResultRequest
from opencode.turn.turn_pb2 import TurnSettings
from opencode.turn.turn_service_pb2 import StartTurnRequest
from tests.support.clients.conversation import (
    messages_of,
    model_name,
    new_session,
    refused,
    talk,
    tool,
    watching,
    words_of,
)
from tests.support.clients.documented import documented
from tests.support.models.scripts import APIS, Say, Tokens, answer
from tests.support.servers.process import server_process
from tests.support.servers.provider import ProviderServer, ScriptedReply
from tests.support.servers.running import Client, connect, running_server
from turnwire.interop.plue import PlueCode, Updates, message_json

PLUE = documented("Plue")
PRICED = '[models."mine/m"]\ninput_usd_per_million = "3"\noutput_usd_per_million = "15"\n'

Told = list[dict[str, Any]]


def _toml(provider: ProviderServer, api: str = "openai_chat") -> str:
    return f"[providers.mine]\nkind = '{api}'\nbase_url = '{provider.base_url}'\n{PRICED}"


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    """A provider of models."""
    async with ProviderServer() as serving:
        yield serving


@pytest.fixture
async def priced(provider: ProviderServer, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server with that provider, whose model has Plue's prices."""
    async with running_server(tmp_path, _toml(provider)) as server, connect(server.address) as connected:
        yield connected


async def _sent(client: Client, text: str = "hello", **settings: Any) -> tuple[str, str]:
    """Stores a message in a new session, without an answer."""
    session_id = await new_session(client, **settings)
    return session_id, await PLUE.plue_message_send(client.messages, session_id, json.dumps({"text": text}))


async def _stream(client: Client, session_id: str, message_id: str, callback: Any, model: str = "mine/m") -> PlueCode:
    provider_id, _, model_id = model.partition("/")
    code: PlueCode = await PLUE.plue_message_stream_response(
        client.turns, client.events, session_id, message_id, provider_id, model_id, callback
    )
    return code


async def _told(client: Client, text: str, model: str = "offline/echo") -> tuple[Told, PlueCode]:
    """Stores a message, has it answered and returns the updates and the outcome."""
    session_id, message_id = await _sent(client, text)
    told: Told = []
    code = await _stream(client, session_id, message_id, lambda update: told.append(json.loads(update)), model)
    return told, code


def _content(told: Told) -> str:
    return "".join(update["content"] for update in told if update["type"] == "content")


async def test_a_stored_message_is_answered_by_the_named_model(client: Client) -> None:
    """Updates have exactly the keys of Plue; the answer is the next message."""
    session_id, message_id = await _sent(client)
    told: Told = []
    code = await _stream(client, session_id, message_id, lambda u: told.append(json.loads(u)), "offline/reasoning")
    question, answered = json.loads(await PLUE.plue_message_list(client.messages, session_id))
    assert (question["message_id"], code) == (message_id, PlueCode.OK)
    assert [part["type"] for part in answered["parts"]] == ["reasoning", "text"]
    *content, done = told
    place = {"type": "content", "message_id": answered["message_id"], "part_index": 1}
    assert [{key: update[key] for key in place} for update in content] == [place] * len(content)
    assert all(update.keys() == {*place, "content"} for update in content)
    assert _content(content) == answered["parts"][1]["content"] == "hello"
    assert done == {"type": "done", "message_id": answered["message_id"], "usage": answered["usage"]}
    assert json.loads(await PLUE.plue_message_get(client.messages, session_id, answered["message_id"])) == answered


@pytest.mark.parametrize("api", APIS)
async def test_content_comes_before_the_model_says_more(api: str, tmp_path: Path) -> None:
    """The first token and each one after it: the model goes on only when the editor has what it said."""
    words = [f"word{number} " for number in range(6)]
    gates = {word: asyncio.Event() for word in words}
    chunks: list[bytes | asyncio.Event] = []
    for chunk in answer(api, *map(Say, words)).chunks:
        chunks.append(chunk)
        assert isinstance(chunk, bytes)
        if b"delta" in chunk:
            chunks += [gate for word, gate in gates.items() if word.encode() in chunk and gate not in chunks]
    assert [chunk for chunk in chunks if isinstance(chunk, asyncio.Event)] == list(gates.values())

    def callback(update: str) -> None:
        for word, gate in gates.items():
            if word in json.loads(update).get("content", ""):
                gate.set()

    async with ProviderServer() as provider:
        provider.enqueue(ScriptedReply(tuple(chunks)))
        async with running_server(tmp_path, _toml(provider, api)) as server, connect(server.address) as client:
            assert await _stream(client, *await _sent(client), callback) is PlueCode.OK


async def test_a_fast_stream_loses_nothing(provider: ProviderServer, priced: Client) -> None:
    """10,000 tokens in a few writes: they join to the text, and `done` is last and there once."""
    words = [f"{number} " for number in range(10_000)]
    chunks = [chunk for chunk in answer("openai_chat", *map(Say, words)).chunks if isinstance(chunk, bytes)]
    writes = [b"".join(chunks[at : at + 2_500]) for at in range(0, len(chunks), 2_500)]
    provider.enqueue(ScriptedReply(tuple(writes)))
    told, code = await _told(priced, "go", "mine/m")
    assert code is PlueCode.OK
    assert _content(told) == "".join(words)
    assert [update["type"] for update in told].count("done") == 1
    assert told[-1]["type"] == "done"


async def test_an_editor_that_reads_slowly_gets_everything(tmp_path: Path) -> None:
    """It takes no update until the answer has ended, megabytes later: content joins to the text all the same."""
    async with (
        running_server(tmp_path) as server,
        connect(server.address) as client,
        connect(server.address) as slow,
    ):
        session_id, message_id = await _sent(client, "/words 60000")
        settings = TurnSettings(model=model_name("echo"))
        request = StartTurnRequest(session_id=session_id, user_message_id=message_id, settings=settings)
        started = await client.turns.StartTurn(request)
        watch = slow.events.WatchEvents(WatchEventsRequest(session_id=session_id, resume_token=started.resume_token))
        batch = await watch.read()
        async with watching(client, session_id, after_sequence=0) as quick:
            await quick.until_turn_ended(started.turn.turn_id)
        updates, told = Updates(started.turn.turn_id), list[dict[str, Any]]()
        while updates.code is None:
            told += [json.loads(update) for event in batch.events for update in updates.apply(event)]
            batch = await watch.read() if updates.code is None else batch
        watch.cancel()
        answered = (await messages_of(client, session_id))[1]
    assert len(words_of(answered)) > 300_000
    assert _content(told) == words_of(answered)
    assert told[-1]["type"] == "done"


async def test_parts_of_an_answer_have_the_names_of_plue(client: Client) -> None:
    """Reasoning, text, calls that succeed and that fail, and their results."""
    session_id, message_id = await _sent(
        client, 'see\n/reason hm\n/tool look {"at": 1.50}\n/tool missing {}\n/step\nthere', tools=[tool("look")]
    )
    told: Told = []

    async def run_the_tool() -> None:
        async with watching(client, session_id, after_sequence=0) as watch:
            due = await watch.until(lambda e: e.tool_call_updated.state.status == "pending")
            call_id = due.tool_call_updated.state.id
            request = SubmitToolResultRequest(session_id=session_id, tool_call_id=call_id, output="a cat")
            await client.tools.SubmitToolResult(request)

    _, code = await asyncio.gather(
        run_the_tool(),
        _stream(client, session_id, message_id, lambda update: told.append(json.loads(update)), "offline/echo"),
    )
    assert code is PlueCode.OK
    _, called, answered = json.loads(await PLUE.plue_message_list(client.messages, session_id))
    ids = [part["tool_use_id"] for part in called["parts"] if part["type"] == "tool_use"]
    *parts, failed = called["parts"]
    assert parts == [
        {"type": "text", "content": "see"},
        {"type": "reasoning", "content": "hm"},
        {"type": "tool_use", "tool_name": "look", "parameters": {"at": 1.5}, "tool_use_id": ids[0]},
        {"type": "tool_use", "tool_name": "missing", "parameters": {}, "tool_use_id": ids[1]},
        {"type": "tool_result", "tool_use_id": ids[0], "result": "a cat", "error": None},
    ]
    assert (failed["type"], failed["tool_use_id"], failed["result"]) == ("tool_result", ids[1], None)
    assert failed["error"]
    assert [u["tool_use_id"] for u in told if u["type"] == "tool_use"] == ids
    assert answered["parts"] == [{"type": "text", "content": "there"}]


async def test_cost_is_exact_below_a_cent(provider: ProviderServer, priced: Client) -> None:
    """1,234,567 tokens in at 3 USD a million and 89,012 out at 15: 5.038881, in `done` and in the message."""
    provider.enqueue(answer("openai_chat", Say("hello"), tokens=Tokens(1_234_567, 89_012)))
    session_id, message_id = await _sent(priced)
    told: list[str] = []
    await _stream(priced, session_id, message_id, told.append)
    written = '"usage":{"input_tokens":1234567,"output_tokens":89012,"total_tokens":1323579},"cost":5.038881}'
    assert told[-1].endswith(written)
    assert message_json((await messages_of(priced, session_id))[1]).endswith(written)


async def test_an_abort_frees_the_model_and_the_session(provider: ProviderServer, priced: Client) -> None:
    """The request to the provider ends, `done` comes once, what came stays, and the next message is answered."""
    provider.enqueue(ScriptedReply((*answer("openai_chat", Say("begun")).chunks[:1], asyncio.Event())))
    provider.enqueue(answer("openai_chat", Say("on we go")))
    session_id, message_id = await _sent(priced)
    told: Told = []
    begun = asyncio.Event()

    def callback(update: str) -> None:
        told.append(json.loads(update))
        begun.set()

    streaming = asyncio.create_task(_stream(priced, session_id, message_id, callback))
    await begun.wait()
    await priced.messages.AbortSession(AbortSessionRequest(session_id=session_id))
    assert await streaming is PlueCode.ABORTED
    await provider.requests[0].disconnected.wait()
    assert [update["type"] for update in told] == ["content", "done"]
    [answered] = json.loads(await PLUE.plue_message_list(priced.messages, session_id))[1:2]
    assert answered["parts"] == [{"type": "text", "content": "begun"}]
    again = await PLUE.plue_message_send(priced.messages, session_id, '{"text": "and now?"}')
    assert await _stream(priced, session_id, again, callback) is PlueCode.OK


async def test_a_broken_connection_loses_no_update(provider: ProviderServer, priced: Client) -> None:
    """The next watch goes on behind the last batch, while the answer went on: nothing twice, nothing lost."""
    first, *rest = answer("openai_chat", Say("one "), Say("two "), Say("three")).chunks
    go_on = asyncio.Event()
    provider.enqueue(ScriptedReply((first, go_on, *rest)))
    session_id, message_id = await _sent(priced)
    settings = TurnSettings(model=model_name("m", "mine"))
    request = StartTurnRequest(session_id=session_id, user_message_id=message_id, settings=settings)
    started = await priced.turns.StartTurn(request)
    updates, told = Updates(started.turn.turn_id), list[dict[str, Any]]()
    async with watching(priced, session_id, resume_token=started.resume_token) as broken:
        while not told:
            told += [json.loads(update) for event in await broken.batch() for update in updates.apply(event)]
    async with watching(priced, session_id, resume_token=broken.token) as resumed:
        go_on.set()
        while updates.code is None:
            told += [json.loads(update) for event in await resumed.batch() for update in updates.apply(event)]
    assert (_content(told), updates.code) == ("one two three", PlueCode.OK)
    assert [update["type"] for update in told].count("done") == 1


async def test_a_killed_server_keeps_what_had_come(tmp_path: Path) -> None:
    """The next server lists it and ends the answer: -9, `done` once, and the message can be answered by another."""
    async with server_process(tmp_path) as server, connect(server.address) as client:
        session_id, message_id = await _sent(client, "one two\n/reason hm\n/sleep 600")
        settings = TurnSettings(model=model_name("echo"))
        request = StartTurnRequest(session_id=session_id, user_message_id=message_id, settings=settings)
        started = await client.turns.StartTurn(request)
        async with watching(client, session_id, resume_token=started.resume_token) as watch:
            await watch.until(lambda event: event.part_finished.part.status == PART_STATUS_COMPLETE)
        await server.kill()
    updates, told = Updates(started.turn.turn_id), list[dict[str, Any]]()
    async with server_process(tmp_path) as server, connect(server.address) as client:
        async with watching(client, session_id, resume_token=started.resume_token) as watch:
            await watch.until_turn_ended(started.turn.turn_id)
        told = [json.loads(update) for event in watch.events for update in updates.apply(event)]
        assert (_content(told), told[-1]["type"], updates.code) == ("one two", "done", PlueCode.ABORTED)
        answered = (await messages_of(client, session_id))[1]
        assert answered.status == MESSAGE_STATUS_INTERRUPTED
        assert json.loads(message_json(answered))["parts"][0] == {"type": "text", "content": "one two"}
        await talk(client, "on we go", session_id)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("hello", PlueCode.OK),
        ("/error refused", PlueCode.INVALID_PARAM),
        ("/error context_full", PlueCode.INVALID_PARAM),
        ("/error credentials", PlueCode.PROVIDER_AUTH),
        ("one two\n/cut 1", PlueCode.IO),
        ("one\n/error failed", PlueCode.IO),
        ("/error timeout", PlueCode.TIMEOUT),
        ("/error unavailable", PlueCode.TIMEOUT),
        ("/error rate_limited", PlueCode.TIMEOUT),
    ],
)
async def test_an_answer_ends_with_the_code_of_its_outcome(tmp_path: Path, words: str, code: PlueCode) -> None:
    """And with `done`, whatever it is."""
    quick = "[retries]\nmax_retries = 0\n"
    async with running_server(tmp_path, quick) as server, connect(server.address) as client:
        told, outcome = await _told(client, words)
    assert (outcome, told[-1]["type"]) == (code, "done")


async def test_a_refused_call_has_its_code(client: Client) -> None:
    """Nothing starts: no such message, an answer that is there already, no such model, no such provider."""
    session_id, message_id = await _sent(client)
    await _stream(client, session_id, message_id, str, "offline/echo")
    other = await PLUE.plue_message_send(client.messages, session_id, '{"text": "and now?"}')
    for wanted, name, code in (
        ("msg_none", "offline/echo", PlueCode.NOT_FOUND),
        (message_id, "offline/echo", PlueCode.ALREADY_EXISTS),
        (other, "offline/none", PlueCode.PROVIDER_INIT),
        (other, "nobody/m", PlueCode.PROVIDER_INIT),
    ):
        assert (await refused(_stream(client, session_id, wanted, str, name))).plue_code == code
    assert len(await messages_of(client, session_id)) == 3
