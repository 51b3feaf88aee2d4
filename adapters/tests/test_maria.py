"""A client of Maria: its JSON goes in, its envelopes come out of an event stream, in the order that it was promised."""

import asyncio
import contextlib
import json
import shutil
import sqlite3
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from adapters.tests.conftest import Start, serving
from adapters.tests.sse import Source, source
from opencode.message.content_pb2 import MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import AbortSessionRequest, AppendMessageRequest, SendMessageRequest
from opencode.session.session_pb2 import (
    ClearSessionRequest,
    CreateSessionRequest,
    DeleteSessionRequest,
    SessionSettings,
)
from opencode.tool.tool_pb2 import SubmitToolResultRequest
from tests.support.clients.conversation import FOREVER, messages_of, text, tool
from tests.support.servers.process import ServerProcess, server_process
from tests.support.servers.running import Client, connect
from turnwire_adapters.maria.ids import session_id_of

QUEUE = "maria.queued_messages.synchronized"


class Maria:
    """A client of the HTTP application, and one of the server behind it."""

    def __init__(self, http: httpx2.AsyncClient, client: Client) -> None:
        """Takes both."""
        self.http = http
        self.client = client

    async def task(self, **given: Any) -> str:
        """Creates a task and returns its id."""
        answer = await self.http.post("/v1/task", json=given)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["task"]["id"])

    async def send(self, task: str, words: str) -> Any:
        """Sends a user message and returns the answer."""
        message = {"role": "user", "content": words}
        answer = await self.http.post(f"/task/{task}/message", json={"message": message})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def events(self, task: str, **headers: str) -> contextlib.AbstractAsyncContextManager[Source]:
        """Opens the events of a task."""
        return source(self.http, f"/task/{task}/events", headers=headers)


@pytest.fixture
async def maria(turnwire: str, start: Start) -> AsyncIterator[Maria]:
    """A client of Maria."""
    async with (
        start(turnwire, ["maria"]) as base,
        httpx2.AsyncClient(base_url=f"{base}/maria", timeout=None) as http,
        connect(turnwire) as client,
    ):
        yield Maria(http, client)


def envelopes(stream: Source) -> list[dict[str, Any]]:
    """Returns the envelopes so far."""
    return [event.data for event in stream.events if event.name == "maria"]


def names(stream: Source) -> list[str]:
    """Returns the names of the envelopes so far."""
    return [envelope["msg"] for envelope in envelopes(stream)]


def queues(stream: Source) -> list[list[str]]:
    """Returns what waited, each time that it was told."""
    return [[entry["id"] for entry in event.data] for event in stream.events if event.name == QUEUE]


def only(stream: Source, msg: str) -> list[dict[str, Any]]:
    """Returns the envelopes of a name."""
    return [envelope for envelope in envelopes(stream) if envelope["msg"] == msg]


def place(stream: Source) -> int:
    """Returns the sequence in the last id."""
    return int(stream.last_id.partition("-")[0])


async def until(stream: Source, msg: str, count: int = 1) -> Source:
    """Reads until there are so many envelopes of a name."""
    while names(stream).count(msg) < count:
        await stream.next()
    return stream


async def answer_call(client: Client, task: str, call: dict[str, Any], output: str) -> None:
    """Submits the result of a call that an envelope names."""
    session_id = session_id_of(task)
    calls = [part.tool_use for m in await messages_of(client, session_id) for part in m.parts]
    [found] = [state.id for state in calls if call["id"] in (state.call_id, state.id)]
    request = SubmitToolResultRequest(session_id=session_id, tool_call_id=found, output=output)
    await client.tools.SubmitToolResult(request)


async def send_with_tools(client: Client, task: str, words: str, *tools: str) -> None:
    """Sends a message that offers tools."""
    request = SendMessageRequest(session_id=session_id_of(task), parts=[text(words)], tools=list(map(tool, tools)))
    await client.messages.SendMessage(request)


async def test_envelopes_come_in_the_stated_order(maria: Maria) -> None:
    """Queued, joined, each step, each call with its result, the end; and the conversation is what they said."""
    task = await maria.task()
    async with maria.events(task) as stream:
        await stream.next()
        words = '/reason hm\nLet me see.\n/tool weather {"city": "Bern"}\n/tool missing {}\n/step\nIt rains.'
        await send_with_tools(maria.client, task, words, "weather")
        [called] = only(await until(stream, "PreToolCall"), "PreToolCall")
        await answer_call(maria.client, task, called["tool_call"], "rain")
        await until(stream, "PostConversation")
    assert stream.events[0].name == QUEUE
    assert names(stream) == [
        "MessageQueued", "PreConversation", "MessageUnqueued", "MessageAdded", "RequestCompleted",
        "PreToolCall", "PostToolCall", "MessageAdded", "PreToolCall", "PostToolCall", "MessageAdded",
        "RequestCompleted", "PostConversation",
    ]  # fmt: skip
    assert len({envelope["id"] for envelope in envelopes(stream)}) == len(envelopes(stream))
    [queued], [unqueued] = only(stream, "MessageQueued"), only(stream, "MessageUnqueued")
    assert unqueued["message"] == {"id": queued["message"]["id"]}
    assert str(uuid.UUID(queued["message"]["id"])) == queued["message"]["id"]
    assert queued["message"]["message"] == {"role": "user", "content": words}
    first, last = only(stream, "RequestCompleted")
    assert first["message"]["content"] == "Let me see."
    assert [call["function"]["name"] for call in first["message"]["tool_calls"]] == ["weather", "missing"]
    assert last["message"] == {"role": "assistant", "content": "It rains.", "tool_calls": []}
    usage = first["usage"][0]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    rained, missing = only(stream, "PostToolCall")
    assert (called["name"], called["args"], rained["result"], rained["text"]) == (
        "weather", {"city": "Bern"}, "rain", "rain",
    )  # fmt: skip
    assert ("error" in rained, "result" in missing, missing["error"]) == (False, False, missing["text"])
    added = [envelope["message"] for envelope in only(stream, "MessageAdded")]
    told = [*added[:1], first["message"], *added[1:], last["message"]]
    conversation = (await maria.http.get(f"/task/{task}/messages")).json()
    assert [{"tool_calls": [], **m} if m["role"] == "assistant" else m for m in conversation] == told


async def test_the_queue_comes_first_and_after_each_change(maria: Maria) -> None:
    """On every subscription and for itself; waiting messages have their ids, next first."""
    task = await maria.task()
    started = await maria.send(task, FOREVER)
    waiting = [await maria.send(task, words) for words in ("two", "three")]
    assert (started["queued"], [one["queued"] for one in waiting]) == (False, [True, True])
    ids = [one["id"] for one in waiting]
    entries = [
        {"id": ids[0], "message": {"role": "user", "content": "two"}},
        {"id": ids[1], "message": {"role": "user", "content": "three"}},
    ]
    async with maria.events(task) as stream:
        assert (await stream.next()).data == entries
        for path in (f"/task/{task}/queued_messages", f"/v1/queued_messages?task={task}", "/v1/queued-messages"):
            assert (await maria.http.get(path)).json() == entries, path
        assert (await maria.http.get(f"/v1/task/{task}")).json()["task"]["queued_messages"] == entries
        cancelled = await maria.http.post(f"/task/{task}/cancel")
        await until(stream, "PostConversation")
    assert cancelled.json() == {"pending_messages": entries, "dropped": ids}
    assert queues(stream)[0] == ids
    assert queues(stream)[-1] == []
    assert sorted(one["message"]["id"] for one in only(stream, "MessageUnqueued")) == sorted(ids)
    again = await maria.http.post(f"/task/{task}/cancel")
    assert (again.status_code, again.json()["error"]["code"]) == (404, -1)


async def test_calls_that_end_out_of_order_are_told_in_order(maria: Maria) -> None:
    """The result of the second call waits for that of the first."""
    task = await maria.task()
    async with maria.events(task) as stream:
        await stream.next()
        await send_with_tools(maria.client, task, "/tool first {}\n/tool second {}\n/step\ndone", "first", "second")
        [first] = only(await until(stream, "PreToolCall"), "PreToolCall")
        completed = only(stream, "RequestCompleted")[0]["message"]["tool_calls"]
        await answer_call(maria.client, task, completed[1], "2")
        await answer_call(maria.client, task, first["tool_call"], "1")
        await until(stream, "PostConversation")
    calls = [(e["msg"], e.get("name")) for e in envelopes(stream) if "ToolCall" in e["msg"]]
    assert calls == [
        ("PreToolCall", "first"), ("PostToolCall", "first"), ("PreToolCall", "second"), ("PostToolCall", "second"),
    ]  # fmt: skip


async def test_a_client_that_joins_late_is_told_the_rest(maria: Maria) -> None:
    """While a call waits: it is announced with its result, under the ids that others got, and nothing comes twice."""
    task = await maria.task()
    async with maria.events(task) as early:
        await early.next()
        await send_with_tools(maria.client, task, "/tool look {}\n/step\ndone", "look")
        [call] = only(await until(early, "PreToolCall"), "PreToolCall")
        async with maria.events(task) as late:
            await late.next()
            await answer_call(maria.client, task, call["tool_call"], "1")
            told = {one["id"]: one for one in envelopes(await until(late, "PostConversation"))}
        everything = {one["id"]: one for one in envelopes(await until(early, "PostConversation"))}
    assert names(late) == ["PreToolCall", "PostToolCall", "MessageAdded", "RequestCompleted", "PostConversation"]
    assert told.items() <= everything.items()


async def test_an_event_source_that_connects_again_misses_nothing(maria: Maria) -> None:
    """With the last id, from any place: what comes twice has the same id, all the rest is there."""
    task = await maria.task()
    async with maria.events(task) as stream:
        await stream.next()
        await send_with_tools(maria.client, task, "one\n/tool look {}\n/step\ndone", "look")
        [call] = only(await until(stream, "PreToolCall"), "PreToolCall")
        await answer_call(maria.client, task, call["tool_call"], "1")
        await until(stream, "PostConversation")
    whole = envelopes(stream)
    for event in [event for event in stream.events if event.name == "maria"]:
        if not event.id:
            continue
        async with maria.events(task, **{"last-event-id": event.id}) as again:
            first = await again.next()
            assert first.name == QUEUE
            known = [one.data["id"] for one in stream.events[: stream.events.index(event) + 1] if one.name == "maria"]
            missed = [one for one in whole if one["id"] not in known]
            while len([one for one in envelopes(again) if one["id"] not in known]) < len(missed):
                await again.next()
            assert [one for one in envelopes(again) if one["id"] not in known] == missed
    async with maria.events(task, **{"last-event-id": "0"}) as replayed:
        assert envelopes(await until(replayed, "PostConversation")) == whole


async def test_a_connection_outlives_a_killed_server(tmp_path: Path) -> None:
    """The stream stays open while the server is started again, and goes on."""
    async with server_process(tmp_path) as server:
        address = server.address
        async with (
            serving(address, ["maria"]) as base,
            httpx2.AsyncClient(base_url=f"{base}/maria", timeout=None) as http,
        ):
            task = (await http.post("/task", json={})).json()["task"]["id"]
            async with source(http, f"/task/{task}/events") as stream:
                await stream.next()
                await server.kill()
                restarted = await ServerProcess.start(tmp_path, listen=address)
                try:
                    message = {"role": "user", "content": "after it"}
                    sent = await http.post(f"/task/{task}/message", json={"message": message})
                    assert sent.status_code == 200, sent.text
                    await until(stream, "PostConversation")
                finally:
                    await restarted.kill()
    assert only(stream, "RequestCompleted")[0]["message"]["content"] == "after it"


async def test_an_event_source_from_behind_the_end_is_told_what_follows(maria: Maria) -> None:
    """A restored backup ends before the place that a client has seen: the queue comes, and then all that happens."""
    task = await maria.task()
    async with maria.events(task, **{"last-event-id": "99999999"}) as stream:
        assert (await stream.next()).name == QUEUE
        assert place(stream) < 99999999
        await maria.send(task, "after it")
        await until(stream, "PostConversation")
    assert names(stream)[0] == "MessageQueued"
    assert only(stream, "RequestCompleted")[0]["message"]["content"] == "after it"


@pytest.mark.parametrize("meanwhile", [0, 3])
async def test_an_event_source_goes_on_after_a_restored_backup(tmp_path: Path, meanwhile: int) -> None:
    """It connects again with the place that it had reached, which the session has lost, or has again by other words."""
    database, copy = tmp_path / "turnwire.db", tmp_path / "backup.db"
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(server_process(tmp_path))
        address = server.address
        base = await stack.enter_async_context(serving(address, ["maria"]))
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=f"{base}/maria", timeout=None))
        client = await stack.enter_async_context(connect(address))
        maria = Maria(http, client)
        task = await maria.task()
        with contextlib.closing(sqlite3.connect(database)) as source_of_copy:
            source_of_copy.execute("VACUUM INTO ?", (str(copy),))
        async with maria.events(task) as before:
            await before.next()
            for count, words in enumerate(("one", "two"), 1):
                await maria.send(task, words)
                await until(before, "PostConversation", count)
        await server.terminate()
        for file in tmp_path.glob("turnwire.db*"):
            file.unlink()
        shutil.copy(copy, database)
        restored = await ServerProcess.start(tmp_path, listen=address)
        stack.push_async_callback(restored.kill)
        if meanwhile:
            async with maria.events(task) as others:
                await others.next()
                for count in range(1, meanwhile + 1):
                    await maria.send(task, "other words")
                    await until(others, "PostConversation", count)
            assert place(others) > place(before)
        async with maria.events(task, **{"last-event-id": before.last_id}) as after:
            assert (await after.next()).data == []
            await maria.send(task, "three")
            await until(after, "PostConversation")
    assert [one["message"]["content"] for one in only(after, "RequestCompleted")] == ["three"]


async def test_a_last_event_id_that_is_no_place_counts_as_none(maria: Maria) -> None:
    """Words, and more digits than a place has."""
    task = await maria.task()
    for seen in ("9" * 5000, "9" * 20, "first", "-1"):
        async with maria.events(task, **{"last-event-id": seen}) as stream:
            assert (await stream.next()).name == QUEUE
            assert place(stream) < 20


async def test_a_conversation_that_is_cleared_goes_on(maria: Maria) -> None:
    """Nothing is told of the clear; what follows is."""
    task = await maria.task()
    async with maria.events(task) as stream:
        await stream.next()
        await maria.send(task, "one")
        await until(stream, "PostConversation")
        await maria.client.sessions.ClearSession(ClearSessionRequest(session_id=session_id_of(task)))
        await maria.send(task, "two")
        await until(stream, "PostConversation", 2)
    assert [one["message"]["content"] for one in only(stream, "MessageAdded")] == ["one", "two"]
    messages = (await maria.http.get(f"/task/{task}/messages")).json()
    assert [message["content"] for message in messages] == ["two", "two"]


async def test_messages_of_every_role_are_stored(maria: Maria) -> None:
    """One is added for each message of the conversation, none for the host's; JSON of vendors is taken."""
    task = await maria.task()
    said: list[dict[str, Any]] = [
        {"role": "developer", "content": "be kind"},
        {"role": "assistant", "content": None, "annotations": [],
         "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "sky", "arguments": "{}"}}]},
        {"role": "tool", "content": [{"type": "text", "text": "sun"}], "tool_call_id": "c1"},
    ]  # fmt: skip
    async with maria.events(task) as stream:
        await stream.next()
        host = AppendMessageRequest(session_id=session_id_of(task), type=MESSAGE_TYPE_HOST, parts=[text("restarted")])
        await maria.client.messages.AppendMessage(host)
        for message in said:
            answer = await maria.http.post(f"/task/{task}/message", json={"message": message})
            assert (answer.status_code, answer.json()["queued"]) == (200, False), answer.text
        await until(stream, "MessageAdded", 3)
    added = [one["message"] for one in only(stream, "MessageAdded")]
    assert [message["role"] for message in added] == ["system", "assistant", "tool"]
    assert added[0] == {"role": "system", "content": "be kind"}
    conversation = (await maria.http.get(f"/task/{task}/messages")).json()
    assert [message["role"] for message in conversation] == ["system", "assistant", "tool"]
    assert conversation[2] == {"role": "tool", "content": "sun", "tool_call_id": "c1"}


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (None, "message"),
        ({"role": "host", "content": "a"}, "message.role"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "message.content[0].type"),
        ({"role": "tool", "content": "a"}, "message.tool_call_id"),
    ],
)
async def test_a_wrong_message_stores_nothing(maria: Maria, message: Any, place: str) -> None:
    """The error names the place."""
    task = await maria.task()
    answer = await maria.http.post(f"/task/{task}/message", json={"message": message})
    assert (answer.status_code, answer.json()["error"]["metadata"]) == (400, {"place": place})
    assert (await maria.http.get(f"/task/{task}/messages")).json() == []


async def test_strict_reading_refuses_what_it_would_leave_out(maria: Maria) -> None:
    """As an option of the request."""
    task = await maria.task()
    message = {"role": "user", "content": "a", "name": "Ann"}
    answer = await maria.http.post(f"/task/{task}/message?strict=1", json={"message": message})
    assert (answer.status_code, answer.json()["error"]["metadata"]) == (400, {"place": "message.name"})
    assert (await maria.http.post(f"/task/{task}/message", json={"message": message})).status_code == 200


async def test_a_task_is_created_with_its_first_message(maria: Maria) -> None:
    """And is there as Maria's daemon shows it; the server of one task has a base address of its own."""
    message = {"role": "user", "content": "hello"}
    given = {"name": "My task", "model": "offline/echo", "message": message, "cwd": None, "web_search": False}
    answer = await maria.http.post("/v1/task", json=given)
    assert answer.status_code == 201
    created = answer.json()
    assert created["message"]["queued"] is False
    task = created["task"]
    assert (task["name"], task["model"], task["cwd"], task["web_search"]) == ("My task", "offline/echo", None, False)
    assert str(uuid.UUID(task["id"])) == task["id"]
    assert isinstance(task["port"], int)
    async with maria.events(task["id"], **{"last-event-id": "0"}) as stream:
        await until(stream, "PostConversation")
    found = (await maria.http.get(f"/task/{task['id']}")).json()["task"]
    assert (found["status"], found["queued_messages"]) == ("idle", [])
    assert task["id"] in [one["id"] for one in (await maria.http.get("/v1/tasks")).json()["tasks"]]
    own = f"/task/{task['id']}/v1"
    assert (await maria.http.get(f"{own}/status")).json() == {"status": "idle", "web_search": False}
    assert (await maria.http.get(f"{own}/system-prompt")).json() is None
    assert (await maria.http.post(f"{own}/system-prompt", content=json.dumps("Be brief."))).status_code == 200
    assert (await maria.http.get(f"{own}/system-prompt")).json() == "Be brief."
    assert {"name": "offline/echo"} in (await maria.http.get("/models")).json()["models"]


@pytest.mark.parametrize("role", ["user", "assistant"])
async def test_a_task_whose_first_message_is_refused_is_not_created(maria: Maria, role: str) -> None:
    """The error names the place, and there is no empty task."""
    name = f"refused {uuid.uuid4()}"
    answer = await maria.http.post("/task", json={"name": name, "message": {"role": role, "content": ""}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -1), answer.text
    assert name not in [task["name"] for task in (await maria.http.get("/tasks")).json()["tasks"]]


async def test_what_is_not_there_is_404(maria: Maria) -> None:
    """With Maria's form of an error; models too."""
    nobody = uuid.uuid4()
    for path in (f"/task/{nobody}", f"/task/{nobody}/events", f"/task/{nobody}/queued_messages", "/nothing"):
        answer = await maria.http.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, -1), path
    for model in ("nobody/nothing", "offline/none", "offline"):
        answer = await maria.http.post("/task", json={"model": model, "message": {"role": "user", "content": "a"}})
        assert (answer.status_code, answer.json()["error"]["message"]) == (404, f"Model not found: {model}")
    wrong = await maria.http.post("/task", content=b"{")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, -1)


async def test_one_task_generates_in_a_folder(tmp_path: Path, start: Start) -> None:
    """Another one there is refused meanwhile, with the task that runs."""
    async with (
        server_process(tmp_path, f'[files]\nroots = ["{tmp_path}"]\n') as server,
        start(server.address, ["maria"]) as base,
        httpx2.AsyncClient(base_url=f"{base}/maria", timeout=None) as http,
    ):
        given = {"cwd": str(tmp_path), "message": {"role": "user", "content": FOREVER}}
        first = (await http.post("/task", json=given)).json()["task"]
        refused = await http.post("/task", json=given)
        assert (refused.status_code, refused.json()["task"]["id"]) == (409, first["id"])
        assert (await http.post(f"/task/{first['id']}/cancel")).status_code == 200
        while (await http.get(f"/task/{first['id']}/status")).json()["status"] != "idle":
            await asyncio.sleep(0)
        assert (await http.post("/task", json={"cwd": str(tmp_path)})).status_code == 201


async def test_the_daemon_goes_on_when_tasks_are_deleted(maria: Maria) -> None:
    """One may be gone when its change is told; the others still are."""
    async with source(maria.http, "/v1/events") as stream:
        await stream.next()
        for _ in range(20):
            gone = await maria.client.sessions.CreateSession(CreateSessionRequest())
            await maria.client.sessions.DeleteSession(DeleteSessionRequest(session_id=gone.id))
        last = await maria.task(name="last")
        while (await stream.next()).data.get("task", {}).get("id") != last:
            pass


async def test_sessions_of_single_requests_are_no_tasks(maria: Maria) -> None:
    """Neither in the list nor among the changes, and none of them is the newest task."""
    await maria.task(name="a task")
    async with source(maria.http, "/v1/events") as stream:
        await stream.next()
        settings = SessionSettings(title="one request", labels={"turnwire.door": "responses"})
        door = await maria.client.sessions.CreateSession(CreateSessionRequest(settings=settings))
        request = SendMessageRequest(session_id=door.id, parts=[text(FOREVER)])
        await maria.client.messages.SendMessage(request)
        await maria.client.messages.SendMessage(request)
        assert (await maria.http.get("/queued_messages")).json() == []
        names_of_tasks = [one["name"] for one in (await maria.http.get("/tasks")).json()["tasks"]]
        assert ("a task" in names_of_tasks, "one request" in names_of_tasks) == (True, False)
        last = await maria.task(name="last")
        while (await stream.next()).data.get("task", {}).get("id") != last:
            pass
    changed = [event.data["task"]["name"] for event in stream.events if event.name == "daemon.task.changed"]
    assert "one request" not in changed
    await maria.client.messages.AbortSession(AbortSessionRequest(session_id=door.id))


async def test_the_daemon_outlives_a_killed_server(tmp_path: Path) -> None:
    """Its stream stays open, and goes on."""
    async with (
        server_process(tmp_path) as server,
        serving(server.address, ["maria"]) as base,
        httpx2.AsyncClient(base_url=f"{base}/maria", timeout=None) as http,
        source(http, "/events") as stream,
    ):
        assert (await stream.next()).name == "daemon.tasks.synchronized"
        await server.kill()
        restarted = await ServerProcess.start(tmp_path, listen=server.address)
        try:
            task = (await http.post("/task", json={"name": "after it"})).json()["task"]["id"]
            while (await stream.next()).data.get("task", {}).get("id") != task:
                pass
        finally:
            await restarted.kill()


async def test_the_daemon_tells_of_all_tasks(maria: Maria) -> None:
    """All first, and then each that changes."""
    before = await maria.task(name="before")
    async with source(maria.http, "/v1/events") as stream:
        first = await stream.next()
        assert first.name == "daemon.tasks.synchronized"
        assert before in [task["id"] for task in first.data["tasks"]]
        after = await maria.task(name="after")
        while (await stream.next()).data.get("task", {}).get("id") != after:
            pass
    assert stream.events[-1].name == "daemon.task.changed"


async def test_a_message_joins_the_running_answer(maria: Maria) -> None:
    """As an external event: it is not queued behind it."""
    task = await maria.task()
    async with maria.events(task) as stream:
        await stream.next()
        await send_with_tools(maria.client, task, "/tool look {}\n/step\ndone", "look")
        [call] = only(await until(stream, "PreToolCall"), "PreToolCall")
        steered = await maria.http.post(f"/task/{task}/external-event/user-message", json={"message": "and this"})
        assert steered.json()["success"] is True
        await answer_call(maria.client, task, call["tool_call"], "1")
        await until(stream, "PostConversation")
    assert [one["message"]["content"] for one in only(stream, "MessageAdded") if one["message"]["role"] == "user"][
        1:
    ] == ["and this"]
    assert names(stream).count("PreConversation") == 1
