"""A host of Plue: each of its functions is a request, and its updates are events; slow and fast, cut and aborted."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from adapters.tests.conftest import Start, serving
from adapters.tests.sse import Source, source
from opencode.session.session_pb2 import CreateSessionRequest, SessionSettings
from opencode.tool.tool_pb2 import SubmitToolResultRequest
from opencode.turn.turn_pb2 import TURN_STATUS_ENDED, Turn
from tests.support.clients.conversation import FOREVER, tool
from tests.support.models.scripts import Say, Tokens, answer
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.provider import ProviderServer, ScriptedReply
from tests.support.servers.running import connect, running_server
from turnwire_client import Client

PRICED = '[models."mine/m"]\ninput_usd_per_million = "3"\noutput_usd_per_million = "15"\n'
OFFLINE = {"provider_id": "offline", "model_id": "echo"}
MINE = {"provider_id": "mine", "model_id": "m"}


class Plue:
    """A host."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        """Takes the application."""
        self.http = http

    async def session(self) -> str:
        """Creates a session."""
        answered = await self.http.post("/session")
        assert (answered.status_code, answered.json()["code"]) == (201, 0)
        return str(answered.json()["session_id"])

    async def send(self, session: str, body: Any, **headers: str) -> httpx2.Response:
        """plue_message_send."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(f"/session/{session}/message", content=content, headers=headers)

    async def sent(self, session: str, words: str) -> str:
        """Stores a text and returns its id."""
        answered = await self.send(session, {"text": words})
        assert answered.status_code == 201, answered.text
        return str(answered.json()["message_id"])

    async def list(self, session: str) -> Any:
        """plue_message_list."""
        answered = await self.http.get(f"/session/{session}/message")
        assert answered.status_code == 200, answered.text
        return answered.json()

    def respond(self, session: str, message: str, model: dict[str, str], **headers: str) -> Any:
        """plue_message_stream_response."""
        path = f"/session/{session}/message/{message}/response"
        return source(self.http, path, "POST", json=model, headers=headers)


@pytest.fixture
async def plue(turnwire: str, start: Start) -> AsyncIterator[Plue]:
    """A host of a server with the offline model."""
    async with (
        start(turnwire, ["plue"]) as base,
        httpx2.AsyncClient(base_url=f"{base}/plue", timeout=None) as http,
    ):
        yield Plue(http)


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    """A provider of models."""
    async with ProviderServer() as running:
        yield running


@pytest.fixture
async def priced(provider: ProviderServer, tmp_path: Path, start: Start) -> AsyncIterator[Plue]:
    """A host of a server with that provider, whose model has Plue's prices."""
    toml = f"[providers.mine]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n{PRICED}"
    async with (
        running_server(tmp_path, toml) as server,
        start(server.address, ["plue"]) as base,
        httpx2.AsyncClient(base_url=f"{base}/plue", timeout=None) as http,
    ):
        yield Plue(http)


def content(stream: Source) -> str:
    """Returns the text of an answer so far."""
    return "".join(event.data["content"] for event in stream.events if event.data["type"] == "content")


async def test_a_stored_message_is_answered_by_the_named_model(plue: Plue) -> None:
    """Updates have exactly the keys of Plue; the answer is the next message, whole."""
    session = await plue.session()
    assert await plue.list(session) == []
    message = await plue.sent(session, "/reason hm\nhello")
    [stored] = await plue.list(session)
    assert (stored["id"], stored["role"], "usage" in stored) == (message, "user", False)
    async with plue.respond(session, message, OFFLINE) as stream:
        await stream.rest()
    question, answered = await plue.list(session)
    assert {**question, "updated_at": stored["updated_at"]} == stored
    assert [part["type"] for part in answered["parts"]] == ["reasoning", "text"]
    *pieces, done = [event.data for event in stream.events]
    place = {"type": "content", "message_id": answered["id"], "part_index": 1}
    assert all(piece == {**place, "content": piece["content"]} for piece in pieces)
    assert content(stream) == answered["parts"][1]["content"] == "hello"
    assert done == {"type": "done", "message_id": answered["id"], "usage": answered["usage"], "code": 0}
    assert answered["provider_info"] == {"provider_id": "offline", "model_id": "echo", "request_id": "offline-1"}
    assert 0 < question["created_at"] <= answered["created_at"] <= answered["updated_at"]
    assert {event.name for event in stream.events} == {"message"}
    one = await plue.http.get(f"/session/{session}/message/{answered['id']}")
    assert one.json() == answered


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -6), (b"[" * 100_000, -6), (b"", -6), ([], -1), ({}, -1), ({"text": 7}, -1), ({"words": "x"}, -1),
        ({"attachments": [{"file": "x"}]}, -1), ({"attachments": {}}, -1), ({"text": ""}, -1),
    ],
)  # fmt: skip
async def test_bad_json_stores_nothing(plue: Plue, body: Any, code: int) -> None:
    """The code is in the body, and its name."""
    session = await plue.session()
    answered = await plue.send(session, body)
    assert (answered.status_code, answered.json()["code"]) == (400, code)
    assert answered.json()["error"]["name"] == {-6: "JSON_PARSE", -1: "INVALID_PARAM"}[code]
    assert await plue.list(session) == []


async def test_what_is_not_there_has_its_code(plue: Plue) -> None:
    """Unknown messages, those of another session, sessions, models, turns and paths."""
    session, other = await plue.session(), await plue.session()
    message = await plue.sent(session, "hello")
    for path in (
        f"/session/{session}/message/msg_{'0' * 32}",
        f"/session/{other}/message/{message}",
        f"/session/ses_{'0' * 32}/message",
        f"/session/{session}/turn/trn_{'0' * 32}/updates",
        "/nothing",
    ):
        answered = await plue.http.get(path)
        assert (answered.status_code, answered.json()["code"]) == (404, -2), path
    assert (await plue.send(f"ses_{'0' * 32}", {"text": "a"})).json()["code"] == -2
    path = f"/session/{session}/message/{message}/response"
    for model, code in (({"provider_id": "nobody", "model_id": "m"}, -5), ({"provider_id": "offline"}, -1)):
        answered = await plue.http.post(path, json=model)
        assert answered.json()["code"] == code, answered.text
    async with plue.respond(session, message, OFFLINE) as stream:
        await stream.rest()
    again = await plue.http.post(path, json=OFFLINE)
    assert (again.status_code, again.json()["code"], again.json()["error"]["reason"]) == (409, -3, "TURN_EXISTS")


async def test_a_thousand_concurrent_sends_keep_their_order(plue: Plue) -> None:
    """They have a thousand ids, and the list has the order in which they were stored."""
    session = await plue.session()
    gate = asyncio.Semaphore(50)

    async def send(number: int) -> str:
        async with gate:
            return await plue.sent(session, str(number))

    ids = await asyncio.gather(*map(send, range(1_000)))
    listed = await plue.list(session)
    assert len({*ids}) == 1_000
    assert {message["id"]: message["parts"][0]["content"] for message in listed} == {
        message_id: str(number) for number, message_id in enumerate(ids)
    }
    assert await plue.list(session) == listed


async def test_sending_again_stores_once(plue: Plue) -> None:
    """Under one key; another text under it is refused. An answer begins once, too."""
    session = await plue.session()
    first, second = [(await plue.send(session, {"text": "a"}, **{"idempotency-key": "k"})).json() for _ in range(2)]
    assert first == second
    refused = await plue.send(session, {"text": "b"}, **{"idempotency-key": "k"})
    assert refused.json()["code"] == -3
    assert len(await plue.list(session)) == 1
    for _ in range(2):
        async with plue.respond(session, first["message_id"], OFFLINE, **{"idempotency-key": "r"}) as stream:
            await stream.rest()
        assert (content(stream), stream.events[-1].data["type"]) == ("a", "done")
    assert len(await plue.list(session)) == 2


async def test_attachments_come_from_allowed_folders_within_a_limit(tmp_path: Path, start: Start) -> None:
    """With path, content and the language of the file name; anything else is refused and nothing stored."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.py").write_text("print()\n")
    (files / "notes").write_text("words")
    (files / "large.txt").write_text("x" * 101)
    (tmp_path / "secret").write_text("secret")
    toml = f'[files]\nroots = ["{files}"]\nmax_bytes = 100\n'
    async with (
        running_server(tmp_path, toml) as server,
        start(server.address, ["plue"]) as base,
        httpx2.AsyncClient(base_url=f"{base}/plue", timeout=None) as http,
    ):
        plue = Plue(http)
        session = await plue.session()
        for path in (files / "large.txt", tmp_path / "secret", files / "none"):
            refused = await plue.send(session, {"text": "look", "attachments": [{"path": str(path)}]})
            assert refused.json()["code"] == -1, path
        attachments = [{"path": str(files / name)} for name in ("a.py", "notes")]
        assert (await plue.send(session, {"text": "look", "attachments": attachments})).status_code == 201
        [message] = await plue.list(session)
    assert message["parts"] == [
        {"type": "text", "content": "look"},
        {"type": "file", "path": str(files / "a.py"), "content": "print()\n", "language": "python"},
        {"type": "file", "path": str(files / "notes"), "content": "words"},
    ]


@contextlib.asynccontextmanager
async def beside_a_server(tmp_path: Path) -> AsyncIterator[tuple[ServerProcess, Plue]]:
    """Runs a server as a process of its own, with the adapter before it."""
    async with (
        server_process(tmp_path) as server,
        serving(server.address, ["plue"]) as base,
        httpx2.AsyncClient(base_url=f"{base}/plue", timeout=None) as http,
    ):
        yield server, Plue(http)


@contextlib.asynccontextmanager
async def killed_and_restarted(server: ServerProcess, tmp_path: Path) -> AsyncIterator[None]:
    """Kills the server, and runs it again at the same address."""
    await server.kill()
    restarted = await ServerProcess.start(tmp_path, listen=server.address)
    try:
        yield
    finally:
        await restarted.kill()


async def test_a_restart_gives_the_same_bytes(tmp_path: Path) -> None:
    """The list is the same after a kill."""
    async with beside_a_server(tmp_path) as (server, plue):
        session = await plue.session()
        message = await plue.sent(session, "see\n/tool missing {}\n/step\nthere")
        async with plue.respond(session, message, OFFLINE) as stream:
            await stream.rest()
        before = (await plue.http.get(f"/session/{session}/message")).content
        async with killed_and_restarted(server, tmp_path):
            assert (await plue.http.get(f"/session/{session}/message")).content == before


async def test_a_killed_server_keeps_what_had_come(tmp_path: Path) -> None:
    """The stream stays open meanwhile and ends with the outcome; what came is part of the message."""
    async with beside_a_server(tmp_path) as (server, plue):
        session = await plue.session()
        # what came a second ago is stored; of what just came the end may be lost, and an answer that is lost whole
        # is asked for again
        message = await plue.sent(session, f"one two\n/sleep 1\nthree\n{FOREVER}")
        async with plue.respond(session, message, OFFLINE) as stream:
            while "three" not in content(stream):
                await stream.next()
            async with killed_and_restarted(server, tmp_path):
                await stream.rest()
                _, answered, *_ = await plue.list(session)
    done = stream.events[-1].data
    assert (done["type"], done["code"]) == ("done", -9)
    assert [event.data["type"] for event in stream.events].count("done") == 1
    assert answered["parts"][0]["type"] == "text"


async def test_the_last_update_says_what_a_killed_server_has_lost(tmp_path: Path) -> None:
    """Updates and the text that `done` has are the message, whatever of the last moment was stored."""
    async with beside_a_server(tmp_path) as (server, plue):
        session = await plue.session()
        message = await plue.sent(session, "/rate 40\n/words 400")
        async with plue.respond(session, message, OFFLINE) as stream:
            while len(content(stream).split()) < 30:
                await stream.next()
            async with killed_and_restarted(server, tmp_path):
                await stream.rest()
                _, answered, *_ = await plue.list(session)
    done = stream.events[-1].data
    assert (done["type"], done["code"]) == ("done", -9)
    [shown] = [kept["content"] for kept in done.get("kept", [])] or [content(stream)]
    assert [shown] == [part["content"] for part in answered["parts"]]


async def test_parts_of_an_answer_have_the_names_of_plue(plue: Plue, turnwire: str) -> None:
    """Reasoning, text, calls that succeed and that fail, and their results, behind all other parts."""
    async with connect(turnwire) as client:
        created = await client.sessions.CreateSession(
            CreateSessionRequest(settings=SessionSettings(tools=[tool("look")]))
        )
        session = created.id
        message = await plue.sent(session, 'see\n/reason hm\n/tool look {"at": 1.50}\n/tool missing {}\n/step\nthere')
        async with plue.respond(session, message, OFFLINE) as stream:
            while (update := (await stream.next()).data)["type"] != "tool_use":
                pass
            request = SubmitToolResultRequest(
                session_id=session, tool_call_id=update["tool_use_id"], output='{"seen": "a cat"}'
            )
            await client.tools.SubmitToolResult(request)
            await stream.rest()
    listed = (await plue.http.get(f"/session/{session}/message")).text
    _, called, answered = json.loads(listed)
    ids = [part["tool_use_id"] for part in called["parts"] if part["type"] == "tool_use"]
    *parts, failed = called["parts"]
    assert parts == [
        {"type": "text", "content": "see"},
        {"type": "reasoning", "content": "hm"},
        {"type": "tool_use", "tool_name": "look", "parameters": {"at": 1.5}, "tool_use_id": ids[0]},
        {"type": "tool_use", "tool_name": "missing", "parameters": {}, "tool_use_id": ids[1]},
        {"type": "tool_result", "tool_use_id": ids[0], "result": {"seen": "a cat"}, "error": None},
    ]
    assert '"parameters":{"at": 1.50}' in listed
    assert (failed["type"], failed["tool_use_id"], failed["result"]) == ("tool_result", ids[1], None)
    assert failed["error"]
    told = [event.data for event in stream.events]
    assert [update["tool_use_id"] for update in told if update["type"] == "tool_use"] == ids
    assert answered["parts"] == [{"type": "text", "content": "there"}]
    usage = told[-1]["usage"]
    for key in ("input_tokens", "output_tokens", "total_tokens"):
        assert usage[key] == called["usage"][key] + answered["usage"][key]


async def test_cost_is_exact_below_a_cent(provider: ProviderServer, priced: Plue) -> None:
    """1,234,567 tokens in at 3 USD a million and 89,012 out at 15: 5.038881, in `done` and in the message."""
    provider.enqueue(answer("openai_chat", Say("hello"), tokens=Tokens(1_234_567, 89_012)))
    session = await priced.session()
    async with priced.respond(session, await priced.sent(session, "hello"), MINE) as stream:
        await stream.rest()
    cost = {"input_cost": 3.703701, "output_cost": 1.33518, "total_cost": 5.038881}
    usage = {"input_tokens": 1_234_567, "output_tokens": 89_012, "total_tokens": 1_323_579}
    done = stream.events[-1].data
    assert (done["usage"], done["cost"]) == (usage, cost)
    answered = (await priced.list(session))[1]
    assert (answered["usage"], answered["cost"]) == (usage, cost)


async def test_content_comes_before_the_model_says_more(provider: ProviderServer, priced: Plue) -> None:
    """The first token and each one after it: the model goes on only when the host has what it said."""
    words = [f"word{number} " for number in range(6)]
    gates = {word: asyncio.Event() for word in words}
    chunks: list[bytes | asyncio.Event] = []
    for chunk in answer("openai_chat", *map(Say, words)).chunks:
        chunks.append(chunk)
        assert isinstance(chunk, bytes)
        chunks += [gate for word, gate in gates.items() if word.encode() in chunk]
    provider.enqueue(ScriptedReply(tuple(chunks)))
    session = await priced.session()
    async with priced.respond(session, await priced.sent(session, "hello"), MINE) as stream:
        for word in words:
            while word not in content(stream):
                await stream.next()
            gates[word].set()
        await stream.rest()
    assert (content(stream), stream.events[-1].data["code"]) == ("".join(words), 0)


async def test_fast_streams_and_slow_readers_lose_nothing(provider: ProviderServer, priced: Plue) -> None:
    """10,000 tokens in a few writes, of which the host reads none before the answer has ended."""
    words = [f"{number} " for number in range(10_000)]
    chunks = [chunk for chunk in answer("openai_chat", *map(Say, words)).chunks if isinstance(chunk, bytes)]
    writes = [b"".join(chunks[at : at + 2_500]) for at in range(0, len(chunks), 2_500)]
    provider.enqueue(ScriptedReply(tuple(writes)))
    session = await priced.session()
    async with priced.respond(session, await priced.sent(session, "go"), MINE) as stream:
        while len(await priced.list(session)) < 2 or not (await priced.list(session))[1].get("usage"):
            await asyncio.sleep(0)
        await stream.rest()
    assert content(stream) == "".join(words)
    assert [event.data["type"] for event in stream.events].count("done") == 1
    assert stream.events[-1].data["type"] == "done"


async def test_an_abort_frees_the_model_and_the_session(provider: ProviderServer, priced: Plue) -> None:
    """The request to the provider ends, `done` comes once, what came stays, and the next message is answered."""
    provider.enqueue(ScriptedReply((*answer("openai_chat", Say("begun")).chunks[:1], asyncio.Event())))
    provider.enqueue(answer("openai_chat", Say("on we go")))
    session = await priced.session()
    async with priced.respond(session, await priced.sent(session, "hello"), MINE) as stream:
        await stream.next()
        aborted = await priced.http.post(f"/session/{session}/abort")
        assert aborted.json()["code"] == 0
        await stream.rest()
    assert [event.data["type"] for event in stream.events] == ["content", "done"]
    assert stream.events[-1].data["code"] == -9
    await provider.requests[0].disconnected.wait()
    assert (await priced.list(session))[1]["parts"] == [{"type": "text", "content": "begun"}]
    async with priced.respond(session, await priced.sent(session, "and now?"), MINE) as stream:
        await stream.rest()
    assert (content(stream), stream.events[-1].data["code"]) == ("on we go", 0)


async def test_a_broken_connection_loses_no_update(provider: ProviderServer, priced: Plue) -> None:
    """The host goes on behind the last update, while the answer went on: nothing twice, nothing lost."""
    first, *rest = answer("openai_chat", Say("one "), Say("two "), Say("three")).chunks
    go_on = asyncio.Event()
    provider.enqueue(ScriptedReply((first, go_on, *rest)))
    session = await priced.session()
    message = await priced.sent(session, "hello")
    path = f"/session/{session}/message/{message}/response"
    async with priced.http.stream("POST", path, json=MINE) as opened:
        turn = opened.headers["x-plue-turn"]
        cut = Source(opened.aiter_lines())
        await cut.next()
    go_on.set()
    updates = f"/session/{session}/turn/{turn}/updates"
    async with source(priced.http, updates, headers={"last-event-id": cut.last_id}) as stream:
        await stream.rest()
    assert content(cut) + content(stream) == "one two three"
    assert stream.events[-1].data["type"] == "done"
    async with source(priced.http, updates) as whole:
        await whole.rest()
    assert (content(whole), whole.events[-1].data) == ("one two three", stream.events[-1].data)
    wrong = await priced.http.get(updates, headers={"last-event-id": "x"})
    assert (wrong.status_code, wrong.json()["code"]) == (400, -1)


async def test_an_answer_that_ends_while_it_is_read_is_whole(
    provider: ProviderServer, priced: Plue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn is read later than its messages: what the model said in between comes before `done`."""
    first, *rest = answer("openai_chat", Say("one "), Say("two")).chunks
    go_on, turns, turn_now = asyncio.Event(), list[Turn](), Client.turn
    provider.enqueue(ScriptedReply((first, go_on, *rest)))
    session = await priced.session()
    message = await priced.sent(session, "hello")
    path = f"/session/{session}/message/{message}/response"
    async with priced.http.stream("POST", path, json=MINE) as opened:
        turn_id = opened.headers["x-plue-turn"]
        await Source(opened.aiter_lines()).next()

    async def turn_late(client: Client, session_id: str, turn_id: str) -> Turn:
        turns.append(await turn_now(client, session_id, turn_id))
        while len(turns) == 2 and turns[1].status != TURN_STATUS_ENDED:  # the first is that of the request
            go_on.set()
            turns[1] = await turn_now(client, session_id, turn_id)
        return turns[-1]

    monkeypatch.setattr(Client, "turn", turn_late)
    async with source(priced.http, f"/session/{session}/turn/{turn_id}/updates") as stream:
        await stream.rest()
    assert (content(stream), stream.events[-1].data["code"]) == ("one two", 0)


async def test_an_answer_ends_with_the_code_of_its_outcome(provider: ProviderServer, priced: Plue) -> None:
    """That of a failure has words, too."""
    provider.enqueue(ScriptedReply((b'{"error": {"message": "no"}}',), status=401))
    session = await priced.session()
    async with priced.respond(session, await priced.sent(session, "hello"), MINE) as stream:
        await stream.rest()
    [done] = [event.data for event in stream.events]
    assert (done["type"], done["code"]) == ("done", -4)
    assert done["error"]


async def test_a_place_that_is_none_is_refused_or_made_up_for(plue: Plue) -> None:
    """A number that is none, a token of elsewhere: an error, or the updates from what the state has."""
    session = await plue.session()
    message = await plue.sent(session, "hello")
    async with plue.respond(session, message, OFFLINE) as stream:
        whole = await stream.rest()
    turn = json.loads(base64.urlsafe_b64decode(stream.last_id))[0]
    path = f"/session/{session}/turn/{turn}/updates"
    elsewhere = base64.urlsafe_b64encode(json.dumps([turn, "elsewhere", "", [], [], []]).encode()).decode()
    async with source(plue.http, path, headers={"last-event-id": elsewhere}) as again:
        assert [event.data for event in await again.rest()][-1] == whole[-1].data
        assert content(again) == "hello"
    state = f'["{turn}", "", "", [], [["m", 1e999, 1, 1]], []]'
    seen = base64.urlsafe_b64encode(state.encode()).decode()
    refused = await plue.http.get(path, headers={"last-event-id": seen})
    assert (refused.status_code, refused.json()["code"]) == (400, -1)
