"""The `opencode` adapter over HTTP, against a real Turnwire server with the offline model."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from uuid_utils import uuid7

from adapters.tests.conftest import serving
from adapters.tests.opencode_support import Json, OpenCode, text_of, texts
from opencode.message.message_pb2 import MessagePart, SendMessageRequest, TextPart
from opencode.question.question_pb2 import Question, SchemaForm
from opencode.session.session_pb2 import ClearSessionRequest, CreateSessionRequest, SessionSettings
from tests.support.clients.conversation import FOREVER
from tests.support.servers.mcp import asker, ready, stdio
from tests.support.servers.process import ServerProcess
from tests.support.servers.running import Client, connect, running_server
from tests.support.servers.tenants import PROVIDER, server_of_tenants
from turnwire_adapters.opencode.ids import is_chosen, shown, stored
from turnwire_adapters.opencode.questions import AnswerError, values_of

RULES = """
[permissions]
"test.add" = "ask"
"""
ADD = '/tool test.add {"a": 2, "b": 3}'


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a server with tools: some ask for permission, some ask a person."""
    folder = tmp_path_factory.mktemp("opencode")
    async with running_server(folder, stdio(folder) + asker() + RULES) as started, connect(started.address) as client:
        await ready(client)
        yield started.address


@pytest.fixture(scope="module")
async def opencode(server: str) -> AsyncIterator[OpenCode]:
    """A client of the adapter before that server."""
    async with serving(server, ["opencode"]) as base, httpx2.AsyncClient() as client:
        yield OpenCode(f"{base}/opencode", client)


@pytest.fixture(scope="module")
async def turnwire(server: str) -> AsyncIterator[Client]:
    """A client of the server itself."""
    async with connect(server) as client:
        yield client


def test_ids_ascend_as_turnwire_made_them_and_lead_back() -> None:
    """Each id is of OpenCode's form, sorts as the one that it was made of, and gives that one back."""
    made = [f"{prefix}_{uuid7().hex}" for prefix in ("msg", "prt") for _ in range(3_000)]
    ids = [shown(one) for one in made]
    assert ids == sorted(ids)
    assert [stored(one) for one in ids] == made
    assert all(is_chosen(one) for one in ids[:3_000])
    assert len({len(one) for one in ids}) == 1


@pytest.mark.parametrize(
    "message_id", ["msg_2234cc954602JqtwvbbXRmlabc", "msg_ffffffffffffzzzzzzzzzzzzz0", "msg_1", "x", ""]
)
def test_an_id_that_a_client_chose_is_none_of_turnwire(message_id: str) -> None:
    """Nothing is read out of an id that was not made here."""
    assert stored(message_id) == ""


async def test_a_session_is_created_read_changed_listed_and_deleted(opencode: OpenCode) -> None:
    """All that a client says of a session is there when it is read."""
    model = {"providerID": "offline", "id": "echo"}
    session = await opencode.session(title="First", model=model, metadata={"mine": 1})
    child = await opencode.session(title="Child", parentID=session)
    read = await opencode.call("GET", f"/session/{session}")
    assert (read["title"], read["model"], read["metadata"], read["cost"]) == ("First", model, {"mine": 1}, 0)
    assert read["tokens"] == {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    changed = await opencode.call("PATCH", f"/session/{session}", {"title": "Second", "time": {"archived": 1}})
    assert changed["title"] == "Second"
    assert changed["time"]["archived"] > changed["time"]["created"]
    assert [one["id"] for one in await opencode.call("GET", f"/session/{session}/children")] == [child]
    assert [one["id"] for one in await opencode.call("GET", "/session?search=second")] == [session]
    found = await opencode.call("GET", "/session?roots=true")
    assert session in [one["id"] for one in found]
    assert child not in [one["id"] for one in found]
    assert await opencode.call("DELETE", f"/session/{session}") is True
    error = await opencode.call("GET", f"/session/{session}", status=404)
    assert error["name"] == "NotFoundError"
    assert session in error["data"]["message"]


async def test_a_session_belongs_to_the_directory_of_its_client(opencode: OpenCode) -> None:
    """A list of a directory has its sessions and those of no directory, and none of another one."""
    header = {"x-opencode-directory": "%2Fwork%2Fone"}
    here = (await opencode.call("POST", "/session", {}, headers=header))["id"]
    elsewhere = (await opencode.call("POST", "/session?directory=/work/two", {}))["id"]
    nowhere = await opencode.session()
    listed = {one["id"]: one["directory"] for one in await opencode.call("GET", "/session?directory=/work/one")}
    assert listed[here] == listed[nowhere] == "/work/one"
    assert elsewhere not in listed


async def test_a_prompt_is_answered_after_its_events(opencode: OpenCode) -> None:
    """When the answer comes, every stream has told the turn up to session.idle, in OpenCode's order."""
    session, message = await opencode.session(), chosen()
    async with opencode.listening() as one, opencode.listening("/global/event") as other:
        answer = await opencode.prompt(session, "/reason Hm.\nHello", messageID=message)
        for listener in (one, other):
            assert listener.events[-1]["type"] == "session.idle"
            assert listener.shown(session) == [("user", "/reason Hm.\nHello"), ("assistant", "Hello")]
        assert {event["directory"] for event in other.events if event["type"] == "message.updated"} == {"/"}
    assert text_of(answer) == "Hello"
    info = answer["info"]
    assert (info["role"], info["parentID"], info["finish"], info["modelID"]) == ("assistant", message, "stop", "echo")
    assert [part["type"] for part in answer["parts"]] == ["reasoning", "text"]
    listed = await opencode.messages(session)
    assert [one["info"]["id"] for one in listed] == sorted(one["info"]["id"] for one in listed)
    assert listed[1] == answer
    assert await opencode.call("GET", f"/session/{session}/message/{message}") == listed[0]


async def test_a_stream_that_opens_with_the_prompt_is_told_all_of_it_once(opencode: OpenCode) -> None:
    """`opencode run --attach` opens its stream and sends its prompt at the same time."""
    session = await opencode.session()
    for words in ("One.", "Two.", "Three.", "Four.", "Five.", "Six."):
        prompt = asyncio.create_task(opencode.prompt(session, words))
        async with opencode.listening() as listener:
            await prompt
            await listener.idle(session)
            ended = [
                event["properties"]["part"]["text"]
                for event in listener.events
                if event["type"] == "message.part.updated" and "end" in event["properties"]["part"].get("time", {})
            ]
        assert ended == [words]
        assert [event["type"] for event in listener.events].count("session.idle") == 1
        assert listener.events[-1]["type"] == "session.idle"


async def test_an_answer_to_opencodes_program_waits_for_the_stream_of_it(opencode: OpenCode) -> None:
    """It opens its stream with the prompt, which may be over by then; another client's stream is not the one."""
    program = {"user-agent": "opencode/1.18.33"}
    session = await opencode.session()
    body = {"parts": [{"type": "text", "text": "Hello"}]}
    async with opencode.listening() as another:
        path = f"/session/{session}/message"
        answering = asyncio.create_task(opencode.call("POST", path, body, headers=program))
        await another.idle(session)
        assert not answering.done()
        async with opencode.listening(**program) as listener:
            await answering
            assert listener.shown(session) == [("user", "Hello"), ("assistant", "Hello")]
            assert "session.idle" in listener.kinds(session)


async def test_the_same_message_id_sends_a_prompt_once(opencode: OpenCode) -> None:
    """A client that lost the answer asks again and gets it; another text under that id is refused."""
    session, message = await opencode.session(), chosen()
    first = await opencode.prompt(session, "Once", messageID=message)
    assert await opencode.prompt(session, "Once", messageID=message) == first
    assert len(await opencode.messages(session)) == 2
    other = {"messageID": message, "parts": [{"type": "text", "text": "Twice"}]}
    error = await opencode.call("POST", f"/session/{session}/message", other, status=400)
    assert error["name"] == "BadRequest"
    assert len(await opencode.messages(session)) == 2


async def test_ids_and_marks_of_parts_are_those_of_the_client(opencode: OpenCode) -> None:
    """The web page shows its own parts before the server does, and finds them again."""
    session = await opencode.session()
    parts = [
        {"type": "text", "text": "Look", "id": "prt_2234cc954602JqtwvbbXRmlabc"},
        {"type": "text", "text": "at this", "id": "prt_2234cc954603JqtwvbbXRmlabc", "synthetic": True},
        {"type": "file", "mime": "text/plain", "filename": "a.txt", "url": f"data:text/plain;base64,{encoded('hi')}"},
    ]
    await opencode.prompt(session, "", parts=parts, model={"providerID": "offline", "modelID": "echo"})
    question, _ = await opencode.messages(session)
    assert [part["id"] for part in question["parts"][:2]] == [part["id"] for part in parts[:2]]
    assert question["parts"][1]["synthetic"] is True
    assert question["parts"][2]["url"] == parts[2]["url"]
    assert question["info"]["model"] == {"providerID": "offline", "modelID": "echo"}


async def test_a_prompt_without_reply_is_stored_and_not_answered(opencode: OpenCode) -> None:
    """With noReply a prompt adds a message of the user; the model reads it with the next one."""
    session, message = await opencode.session(), chosen()
    kept = await opencode.prompt(session, "A fact.", noReply=True, messageID=message)
    assert kept["info"]["id"] == message
    assert texts(await opencode.messages(session)) == [("user", "A fact.")]


async def test_an_abort_ends_the_answer_and_keeps_what_was_written(opencode: OpenCode) -> None:
    """Both the prompt and the streams get an aborted message; aborting again changes nothing."""
    session = await opencode.session()
    async with opencode.listening() as listener:
        prompt = asyncio.create_task(opencode.prompt(session, "/rate 50\nsome words\n/sleep 600"))
        await listener.until(lambda event: event["type"] == "message.part.delta")
        assert (await opencode.call("GET", "/session/status"))[session] == {"type": "busy"}
        assert await opencode.call("POST", f"/session/{session}/abort") is True
        answer = await prompt
        assert await opencode.call("POST", f"/session/{session}/abort") is True
        error = await listener.until(lambda event: event["type"] == "session.error")
    assert answer["info"]["error"]["name"] == error["properties"]["error"]["name"] == "MessageAbortedError"
    assert text_of(answer).startswith("some")
    assert session not in await opencode.call("GET", "/session/status")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/error credentials", "ProviderAuthError"),
        ("/error context_full", "ContextOverflowError"),
        ("/error refused", "APIError"),
        ("/finish length\nHalf", "MessageOutputLengthError"),
    ],
)
async def test_a_failed_answer_has_the_error_of_opencode(opencode: OpenCode, text: str, name: str) -> None:
    """Why it failed is in the message, under OpenCode's name for it."""
    answer = await opencode.prompt(await opencode.session(), text)
    assert answer["info"]["error"]["name"] == name


async def test_a_retry_is_told_as_a_status(opencode: OpenCode) -> None:
    """While the model's API is asked again, the session says when."""
    session = await opencode.session()
    async with opencode.listening() as listener:
        assert text_of(await opencode.prompt(session, "/flaky unavailable 1\nHere")) == "Here"
        told = await listener.until(lambda e: e["properties"].get("status", {}).get("type") == "retry")
    assert told["properties"]["status"]["attempt"] == 1


@pytest.mark.parametrize("reply", ["once", "always", "reject"])
async def test_a_tool_asks_for_permission(opencode: OpenCode, reply: str) -> None:
    """The request is told and listed until it is answered; the call then runs or does not."""
    session = await opencode.session()
    async with opencode.listening() as listener:
        prompt = asyncio.create_task(opencode.prompt(session, f"{ADD}\n/step\nDone"))
        asked = await listener.asked("permission", session)
        assert asked in await opencode.call("GET", "/permission")
        assert (asked["permission"], asked["always"]) == ("test.add", ["test.add"])
        assert await opencode.call("POST", f"/permission/{asked['id']}/reply", {"reply": reply}) is True
        assert text_of(await prompt) == "Done"
        told = await listener.until(lambda event: event["type"] == "permission.replied")
    assert told["properties"] == {"sessionID": session, "requestID": asked["id"], "reply": reply}
    _, called, answer = await opencode.messages(session)
    assert called["info"]["finish"] == "tool-calls"
    assert called["info"]["parentID"] == answer["info"]["parentID"]
    state = called["parts"][0]["state"]
    assert (state["status"], state["input"]) == ("error" if reply == "reject" else "completed", {"a": 2, "b": 3})
    assert called["parts"][0]["callID"] == asked["tool"]["callID"]
    assert called["info"]["id"] == asked["tool"]["messageID"]
    if reply != "reject":
        assert "5" in state["output"]


async def test_the_first_version_of_a_reply_to_a_permission_works(opencode: OpenCode) -> None:
    """The SDK of version 1 names the session in the path; a request that is answered is none any more."""
    session = await opencode.session()
    await opencode.send(session, ADD)
    async with opencode.listening() as listener:
        asked = await listener.asked("permission", session)
        path = f"/session/{session}/permissions/{asked['id']}"
        assert (await opencode.call("POST", path, {"response": "perhaps"}, status=400))["name"] == "BadRequest"
        assert await opencode.call("POST", path, {"response": "once"}) is True
        await listener.idle(session)
    error = await opencode.call("POST", f"/permission/{asked['id']}/reply", {"reply": "once"}, status=404)
    assert error["name"] == "NotFoundError"


@pytest.mark.parametrize("own", [5, {"model": "x"}, {"model": {"a": 1}}, {"parts": [5]}, {"agent": {}}])
async def test_what_another_client_keeps_under_the_same_key_breaks_nothing(
    opencode: OpenCode, turnwire: Client, own: Any
) -> None:
    """Neither a list of messages nor a stream that has them: it counts as none."""
    metadata_json = json.dumps({"opencode": own})
    async with opencode.listening() as listener:
        parts = [MessagePart(text=TextPart(text="Hello"))]
        sent = await turnwire.messages.SendMessage(SendMessageRequest(parts=parts, metadata_json=metadata_json))
        await listener.idle(sent.session_id)
    question, _ = await opencode.messages(sent.session_id)
    assert question["info"]["model"] == {"providerID": "offline", "modelID": "echo"}


async def test_a_tool_asks_a_person(opencode: OpenCode) -> None:
    """A form is asked as questions with labels; what is chosen reaches the tool."""
    session = await opencode.session()
    await opencode.send(session, '/tool ask.paint {"what": "door"}')
    async with opencode.listening() as listener:
        asked = await listener.asked("question", session)
        assert asked in await opencode.call("GET", "/question")
        assert [question["header"] for question in asked["questions"]] == ["Colour", "Coats"]
        path = f"/question/{asked['id']}/reply"
        for wrong in ([], [["green"]], [["green"], ["many"]], "green"):
            assert (await opencode.call("POST", path, {"answers": wrong}, status=400))["name"] == "BadRequest"
        assert await opencode.call("POST", path, {"answers": [["green"], ["2"]]}) is True
        await listener.idle(session)
        await listener.until(lambda event: event["type"] == "question.replied")
    called = (await opencode.messages(session))[1]
    assert "door is green, 2 times" in called["parts"][0]["state"]["output"]


@pytest.mark.parametrize("label", ["nan", "-inf", "1e999", "much"])
def test_an_answer_that_is_no_number_is_refused(label: str) -> None:
    """JSON has no word for some that Python reads as numbers."""
    asked = Question(schema=SchemaForm(schema_json='{"properties": {"price": {"type": "number"}}}'))
    assert values_of(asked, [["1.5"]]) == {"price": 1.5}
    with pytest.raises(AnswerError, match="'price' is no number"):
        values_of(asked, [[label]])


async def test_a_question_can_be_declined(opencode: OpenCode) -> None:
    """The tool learns that the person said no."""
    session = await opencode.session()
    await opencode.send(session, '/tool ask.paint {"what": "door"}')
    async with opencode.listening() as listener:
        asked = await listener.asked("question", session)
        assert await opencode.call("POST", f"/question/{asked['id']}/reject") is True
        await listener.until(lambda event: event["type"] == "question.rejected")
        await listener.idle(session)


async def test_a_fork_has_what_was_before_the_message(opencode: OpenCode) -> None:
    """The copy ends before the message that is named; without one it has all; its title counts."""
    session = await opencode.session(title="Talk")
    for words in ("One", "Two"):
        await opencode.prompt(session, words)
    ids = [message["info"]["id"] for message in await opencode.messages(session)]
    whole = await opencode.call("POST", f"/session/{session}/fork", {})
    part = await opencode.call("POST", f"/session/{whole['id']}/fork", {})
    first = await opencode.call("POST", f"/session/{session}/fork", {"messageID": ids[2]})
    none = await opencode.call("POST", f"/session/{session}/fork", {"messageID": ids[0]})
    assert (whole["title"], part["title"]) == ("Talk (fork #1)", "Talk (fork #2)")
    assert texts(await opencode.messages(whole["id"])) == texts(await opencode.messages(session))
    assert texts(await opencode.messages(first["id"])) == [("user", "One"), ("assistant", "One")]
    assert await opencode.messages(none["id"]) == []


async def test_a_revert_is_shown_moved_undone_and_final_with_the_next_turn(opencode: OpenCode) -> None:
    """The session names the first message that is taken back, until it comes back or a turn begins."""
    session = await opencode.session()
    for words in ("One", "Two", "Three"):
        await opencode.prompt(session, words)
    ids = [message["info"]["id"] for message in await opencode.messages(session)]
    path = f"/session/{session}"
    async with opencode.listening("/global/event") as listener:
        assert (await opencode.call("POST", f"{path}/revert", {"messageID": ids[2]}))["revert"] == {"messageID": ids[2]}
        assert (await opencode.call("POST", f"{path}/revert", {"messageID": ids[4]}))["revert"] == {"messageID": ids[4]}
        assert len(await opencode.messages(session)) == 4
        assert "revert" not in await opencode.call("POST", f"{path}/unrevert")
        assert len(await opencode.messages(session)) == 6
        await opencode.call("POST", f"{path}/revert", {"messageID": ids[2]})
        await opencode.prompt(session, "Four")
        assert "revert" not in await opencode.call("GET", path)
        assert "revert" not in await opencode.call("POST", f"{path}/unrevert")
        now = texts(await opencode.messages(session))
        assert now == [("user", "One"), ("assistant", "One"), ("user", "Four"), ("assistant", "Four")]
        assert listener.shown(session) == now


async def test_what_another_frontend_takes_back_is_shown_as_a_revert(opencode: OpenCode, turnwire: Client) -> None:
    """It can be undone, and goes from the screen with the next turn."""
    session = await opencode.session()
    for words in ("One", "Two"):
        await opencode.prompt(session, words)
    first = (await opencode.messages(session))[0]["info"]["id"]

    def shows(revert: Json | None) -> Callable[[Json], bool]:
        return lambda one: one["type"] == "session.updated" and one["properties"]["info"].get("revert") == revert

    path = f"/session/{session}"
    async with opencode.listening("/global/event") as listener:
        await turnwire.sessions.ClearSession(ClearSessionRequest(session_id=session))
        await listener.until(shows({"messageID": first}))
        assert (await opencode.call("GET", path))["revert"] == {"messageID": first}
        assert "revert" not in await opencode.call("POST", f"{path}/unrevert")
        assert len(await opencode.messages(session)) == 4
        is_revert = shows({"messageID": first})
        told = sum(map(is_revert, listener.events))
        await turnwire.sessions.ClearSession(ClearSessionRequest(session_id=session))
        await listener.until(lambda _: sum(map(is_revert, listener.events)) > told)
        await opencode.prompt(session, "Three")
        assert listener.shown(session) == [("user", "Three"), ("assistant", "Three")]


async def test_what_another_frontend_does_is_told(opencode: OpenCode, turnwire: Client) -> None:
    """A message that comes over gRPC is shown as one of OpenCode's."""
    session = await opencode.session(title="Both")
    async with opencode.listening() as listener:
        parts = [MessagePart(text=TextPart(text="From elsewhere"))]
        await turnwire.messages.SendMessage(SendMessageRequest(session_id=session, parts=parts))
        await listener.idle(session)
        assert listener.shown(session) == [("user", "From elsewhere"), ("assistant", "From elsewhere")]
    question, _ = await opencode.messages(session)
    assert question["info"]["model"] == {"providerID": "offline", "modelID": "echo"}


async def test_a_long_conversation_is_read_in_pages(opencode: OpenCode) -> None:
    """A limit answers the newest messages, and the header where older ones go on."""
    session = await opencode.session()
    for words in ("One", "Two"):
        await opencode.prompt(session, words)
    answer = await opencode.http.get(f"{opencode.base}/session/{session}/message?limit=3")
    cursor = answer.headers["x-next-cursor"]
    older = await opencode.http.get(f"{opencode.base}/session/{session}/message?limit=3&before={cursor}")
    assert "x-next-cursor" not in older.headers
    assert texts(older.json() + answer.json()) == [(role, w) for w in ("One", "Two") for role in ("user", "assistant")]


async def test_a_stream_goes_on_at_the_last_event_id(opencode: OpenCode) -> None:
    """All that happened while the connection was broken is told, once, and what streams as far as it has come."""
    session = await opencode.session()
    async with opencode.listening() as first:
        await opencode.send(session, "/rate 20\n/words 30")
        await first.until(lambda event: event["type"] == "message.part.delta")
    await opencode.send(session, "Next")
    async with opencode.listening(**{"last-event-id": first.last_id}) as second:
        await second.until(lambda e: e["type"] == "session.idle")
        first.events += second.events
    assert first.shown(session) == texts(await opencode.messages(session))


@pytest.mark.parametrize("path", ["/event", "/global/event"])
async def test_a_stream_that_opens_in_the_middle_has_the_text_so_far(opencode: OpenCode, path: str) -> None:
    """A client that connects again without an id sees the whole answer, where OpenCode would show its end alone."""
    session = await opencode.session()
    async with opencode.listening() as first:
        await opencode.send(session, "/rate 40\n/words 30")
        await first.until(lambda event: event["type"] == "message.part.delta")
        async with opencode.listening(path) as second:
            listed = await opencode.messages(session)
            assert text_of(listed[1])
            await second.idle(session)
    assert second.shown(session)[-1] == texts(await opencode.messages(session))[-1]


async def test_a_global_stream_has_an_answer_that_ended_while_it_was_away(opencode: OpenCode) -> None:
    """The terminal and the web page read nothing again when they connect again: the stream tells the newest turn."""
    session = await opencode.session()
    await opencode.prompt(session, "Before")
    await opencode.prompt(session, "While away")
    async with opencode.listening("/global/event") as listener:
        await listener.idle(session)
    assert listener.shown(session) == [("user", "While away"), ("assistant", "While away")]


async def test_the_token_goes_to_the_server_as_bearer_or_as_password(tmp_path: Path) -> None:
    """Each caller has its own sessions and streams; what is no token, or not taken, is 401 in OpenCode's form."""
    async with server_of_tenants(tmp_path) as server, serving(server.address, ["opencode"]) as base:
        token = PROVIDER.token(sub="ada", tenant="one", role="writer")
        basic, bearer = f"Basic {encoded(f'opencode:{token}')}", f"Bearer {token}"
        other = f"Bearer {PROVIDER.token(sub='bob', tenant='two', role='writer')}"
        async with httpx2.AsyncClient() as http:
            opencode = OpenCode(f"{base}/opencode", http)
            created = await opencode.call("POST", "/session", {}, headers={"authorization": basic})
            for header, ids in ((basic, [created["id"]]), (bearer, [created["id"]]), (other, [])):
                listed = await opencode.call("GET", "/session", headers={"authorization": header})
                assert [one["id"] for one in listed] == ids
            async with opencode.listening("/global/event", authorization=other) as elsewhere:
                prompt = {"parts": [{"type": "text", "text": "Mine"}]}
                path = f"/session/{created['id']}/message"
                assert text_of(await opencode.call("POST", path, prompt, headers={"authorization": basic})) == "Mine"
                await opencode.call("GET", path, status=404, headers={"authorization": other})
            assert [event["type"] for event in elsewhere.events] == ["server.connected"]
            for wrong in ("", "Bearer wrong", "Basic %", "Digest a", f"Basic {encoded('a:wrong')}"):
                for asked in ("/session", "/event"):
                    headers = {"authorization": wrong} if wrong else {}
                    error = await opencode.call("GET", asked, status=401, headers=headers)
                    assert set(error) == {"name", "data"}


async def test_streams_and_prompts_outlive_a_server_that_is_killed(tmp_path: Path) -> None:
    """Both go on with the server that starts again; nothing is told twice and the prompt is answered."""
    first = await ServerProcess.start(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(first.kill)
        base = await stack.enter_async_context(serving(first.address, ["opencode"]))
        opencode = OpenCode(f"{base}/opencode", await stack.enter_async_context(httpx2.AsyncClient()))
        session = await opencode.session()
        listener = await stack.enter_async_context(opencode.listening())
        prompt = asyncio.create_task(opencode.prompt(session, "/rate 40\n/words 40"))
        await listener.until(lambda event: event["type"] == "message.part.delta")
        await first.kill()
        again = await ServerProcess.start(tmp_path, listen=first.address)
        stack.push_async_callback(again.kill)
        answer = await prompt  # whole, or what was stored of it
        assert answer in await opencode.messages(session)
        assert text_of(await opencode.prompt(session, "Still there?")) == "Still there?"
        assert listener.shown(session) == texts(await opencode.messages(session))


@pytest.mark.parametrize(
    ("method", "path", "body", "word"),
    [
        ("POST", "/session", {"title": 7}, "title"),
        ("POST", "/session", {"permission": [{"permission": "*", "pattern": "*", "action": "deny"}]}, "permission"),
        ("POST", "/session", {"permission": [{"permission": "edit", "action": "allow"}]}, "permission"),
        ("POST", "/session", {"model": {"providerID": "none", "id": "none"}}, "model"),
        ("POST", "/session/{}/message", {"parts": "text"}, "parts"),
        ("POST", "/session/{}/message", {"parts": []}, "parts"),
        ("POST", "/session/{}/message", {"parts": [{"type": "agent", "name": "a"}]}, "agent"),
        ("POST", "/session/{}/message", {"parts": [{"type": "file", "url": "file:///etc/passwd"}]}, "parts[0].url"),
        ("POST", "/session/{}/message", {"parts": [], "format": {"type": "json_schema"}}, "format"),
        ("POST", "/session/{}/message", {"parts": [], "tools": {"test.add": False}}, "tools"),
        ("POST", "/session/{}/message", {"parts": [], "messageID": "mine"}, "messageID"),
        ("POST", "/session/{}/message", {"parts": [{"type": "text", "text": "a"}], "agent": "none"}, "agent"),
        ("GET", "/session?limit=many", None, "limit"),
        ("GET", "/session?start=now", None, "start"),
    ],
)
async def test_what_is_wrong_is_refused_by_name(
    opencode: OpenCode, method: str, path: str, body: Json | None, word: str
) -> None:
    """The error has OpenCode's form and names the field, and nothing is stored."""
    session = await opencode.session()
    error = await opencode.call(method, path.format(session), body, status=400)
    assert error["name"] == "BadRequest"
    assert word in error["data"]["message"]
    assert await opencode.messages(session) == []


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/session/{}/share"), ("GET", "/file"), ("GET", "/pty"), ("PUT", "/session/{}"), ("GET", "/nothing")],
)
async def test_what_turnwire_has_not_is_said(opencode: OpenCode, method: str, path: str) -> None:
    """A path that has no counterpart is not found, in OpenCode's form."""
    session = await opencode.session()
    error = await opencode.call(method, path.format(session), status=404)
    assert error == {
        "name": "NotFoundError",
        "data": {"message": f"Turnwire has no {method} /opencode{path.format(session)}"},
    }


async def test_unknown_messages_are_not_found(opencode: OpenCode) -> None:
    """Neither an id of Turnwire's form nor one that a client could have chosen."""
    session = await opencode.session()
    for message in (shown(f"msg_{uuid7().hex}"), chosen(), "nothing"):
        await opencode.call("GET", f"/session/{session}/message/{message}", status=404)
        await opencode.call("POST", f"/session/{session}/revert", {"messageID": message}, status=404)
        await opencode.call("POST", f"/session/{session}/fork", {"messageID": message}, status=404)


@pytest.mark.parametrize(
    ("path", "kind"), [("/path", dict), ("/config", dict), ("/project", list), ("/lsp", list), ("/mcp", dict)]
)
async def test_what_clients_ask_in_vain_is_empty(opencode: OpenCode, path: str, kind: type) -> None:
    """Clients that ask for what Turnwire has nothing of get nothing, and go on."""
    assert isinstance(await opencode.call("GET", path), kind)


async def test_providers_and_agents_are_those_of_the_server(opencode: OpenCode) -> None:
    """Both lists of providers say the same, and the agent is the default one."""
    listed, configured = await opencode.call("GET", "/provider"), await opencode.call("GET", "/config/providers")
    assert listed["all"] == configured["providers"]
    assert listed["connected"] == ["offline"]
    assert listed["all"][0]["models"]["echo"]["limit"]["context"] == 128_000
    assert [agent["name"] for agent in await opencode.call("GET", "/agent")] == ["default"]


def chosen() -> str:
    """Returns an id of a message as a client of OpenCode makes it now."""
    return f"{shown(f'msg_{uuid7().hex}')[:-1]}z"


def encoded(text: str) -> str:
    """Returns base64 of a text."""
    return base64.b64encode(text.encode()).decode()


async def test_sessions_of_single_requests_are_not_listed(opencode: OpenCode, turnwire: Client) -> None:
    """Nor told of, nor among those that are busy; by its id one can be read."""
    settings = SessionSettings(title="one request", labels={"turnwire.door": "responses"})
    async with opencode.listening() as listener:
        door = (await turnwire.sessions.CreateSession(CreateSessionRequest(settings=settings))).id
        words = [MessagePart(text=TextPart(text=FOREVER))]
        await turnwire.messages.SendMessage(SendMessageRequest(session_id=door, parts=words))
        assert door not in [one["id"] for one in await opencode.call("GET", "/session")]
        assert door not in await opencode.call("GET", "/session/status")
        assert (await opencode.call("GET", f"/session/{door}"))["title"] == "one request"
        await opencode.call("POST", f"/session/{door}/abort")
        last = await opencode.session(title="last")
        await listener.until(
            lambda event: event["type"] == "session.created" and event["properties"]["info"]["id"] == last
        )
    assert door not in json.dumps(listener.events)


async def test_a_wrong_change_changes_nothing(opencode: OpenCode) -> None:
    """Also of the fields that are right."""
    session = await opencode.session(title="before")
    for wrong in ({"metadata": 5}, {"time": 5}):
        await opencode.call("PATCH", f"/session/{session}", {"title": "after", **wrong}, status=400)
        assert (await opencode.call("GET", f"/session/{session}"))["title"] == "before"


HALF = "half \ud800"


@pytest.mark.parametrize(
    ("method", "path", "body", "place"),
    [
        ("POST", "/session", {"title": HALF}, "title"),
        ("PATCH", "/session/{}", {"title": HALF}, "title"),
        ("POST", "/session", {"metadata": {"a": [1, {"b": HALF}]}}, "metadata.a[1].b"),
        ("PATCH", "/session/{}", {"metadata": {HALF: 1}}, "metadata"),
        ("POST", "/session/{}/message", {"parts": [{"type": "text", "text": HALF}]}, "parts[0].text"),
        ("POST", "/session/{}/prompt_async", {"parts": [{"type": "text", "text": "a", "id": HALF}]}, "parts[0].id"),
        (
            "POST",
            "/session/{}/message",
            {"parts": [{"type": "file", "mime": HALF, "url": "data:text/plain,a"}]},
            "parts[0].mime",
        ),
    ],
)
async def test_half_a_surrogate_pair_is_refused_by_name(
    opencode: OpenCode, method: str, path: str, body: Json, place: str
) -> None:
    """It is no text that could be stored; nothing is."""
    session = await opencode.session(title="Before")
    answer = await opencode.http.request(
        method, opencode.base + path.format(session), content=json.dumps(body), timeout=30
    )
    assert answer.status_code == 400, answer.text
    assert answer.json() == {"name": "BadRequest", "data": {"message": f"{place}: has half of a surrogate pair"}}
    assert (await opencode.call("GET", f"/session/{session}"))["title"] == "Before"
    assert await opencode.messages(session) == []


async def test_a_directory_that_is_too_long_is_refused_by_name(opencode: OpenCode) -> None:
    """Up to 256 characters are kept, a longer one makes no session."""
    for length, status in ((256, 200), (257, 400)):
        directory = "/" + "d" * (length - 1)
        shown = await opencode.call("POST", f"/session?directory={directory}", {}, status=status)
        if status == 200:
            assert shown["directory"] == directory
        else:
            assert shown["name"] == "BadRequest"
            assert shown["data"]["message"] == "directory: at most 256 characters"
            assert directory not in [one["directory"] for one in await opencode.call("GET", "/session")]
