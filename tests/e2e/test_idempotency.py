"""Requests with a name."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from opencode.message.content_pb2 import MESSAGE_TYPE_HOST, MESSAGE_TYPE_USER
from opencode.message.message_pb2 import DISPOSITION_DUPLICATE, DISPOSITION_STARTED, AppendMessageRequest
from opencode.turn.turn_service_pb2 import StartTurnRequest
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    file,
    messages_of,
    new_session,
    refused,
    talk,
    text,
    turn_ended,
    watching,
)
from tests.support.servers.running import Client, connect, running_server

pytestmark = pytest.mark.own_server


async def test_repeated_request_gets_the_first_answer(client: Client) -> None:
    """All fields but the disposition and the form of the token are the same; there is one message."""
    request = ask("hello", await new_session(client), request_id="r1")
    first = await client.messages.SendMessage(request)
    await turn_ended(client, first)
    again = await client.messages.SendMessage(request)
    assert (first.disposition, again.disposition) == (DISPOSITION_STARTED, DISPOSITION_DUPLICATE)
    assert again.resume_token
    again.disposition, again.resume_token = first.disposition, first.resume_token
    assert again == first
    assert len(await messages_of(client, first.session_id)) == 2


async def test_messages_have_the_names_of_their_requests(client: Client) -> None:
    """In reads and in events, sent or appended; "" for answers and for requests without a name."""
    sent = await talk(client, "hello", request_id="r1")
    note = AppendMessageRequest(session_id=sent.session_id, type=MESSAGE_TYPE_HOST, parts=[text("n")], request_id="r2")
    await client.messages.AppendMessage(note)
    await turn_ended(client, await talk(client, "without", sent.session_id))
    listed = await messages_of(client, sent.session_id)
    assert [m.request_id for m in listed] == ["r1", "", "r2", "", ""]
    async with watching(client, sent.session_id, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    added = [event.message_added.message for event in watch.events if event.HasField("message_added")]
    assert [m.request_id for m in added] == ["r1", "", "r2", "", ""]


async def test_a_message_is_found_by_the_name_of_its_request(client: Client) -> None:
    """Sent or appended; not in another session, and not by the name of a request that stored none."""
    sent = await talk(client, "hello", request_id="r1")
    session_id = sent.session_id
    note = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=[text("n")], request_id="r2")
    noted = await client.messages.AppendMessage(note)
    question = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_USER, parts=[text("and?")])
    asked = await client.messages.AppendMessage(question)
    start = StartTurnRequest(session_id=session_id, user_message_id=asked.message_id, request_id="r3")
    await client.turns.StartTurn(start)

    async def find(name: str, **fields: str) -> Any:
        return await client.messages.GetMessage(**{"session_id": session_id, "message_request_id": name, **fields})

    for name, message_id in (("r1", sent.message_id), ("r2", noted.message_id)):
        assert (await find(name)).message.message_id == message_id
    other = await new_session(client)
    for call in (find("r3"), find("r4"), find("r1", session_id=other)):
        assert (await refused(call)).reason == "MESSAGE_NOT_FOUND"
    refusal = await refused(find("r1", message_id=sent.message_id))
    assert (refusal.reason, refusal.fields) == ("INVALID_REQUEST", ["message_id"])


async def test_concurrent_retries_agree(client: Client) -> None:
    """Twenty at once, without a session: one session, one message, one turn."""
    answers = await asyncio.gather(*(client.messages.SendMessage(ask("hello", request_id="r1")) for _ in range(20)))
    assert len({(a.session_id, a.message_id, a.turn_id, a.sequence) for a in answers}) == 1
    assert [a.disposition for a in answers].count(DISPOSITION_STARTED) == 1
    assert len((await client.sessions.ListSessions()).sessions) == 1


async def test_answer_is_remembered_across_restarts(tmp_path: Path) -> None:
    """The same name after a restart gets the first answer, and another content is refused."""
    async with running_server(tmp_path) as server, connect(server.address) as client:
        first = await client.messages.SendMessage(ask("hello", request_id="r1"))
        await turn_ended(client, first)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        again = await client.messages.SendMessage(ask("hello", request_id="r1"))
        assert (again.message_id, again.disposition) == (first.message_id, DISPOSITION_DUPLICATE)
        assert (await refused(client.messages.SendMessage(ask("bye", request_id="r1")))).reason == "REQUEST_ID_REUSED"


async def test_other_content_under_the_same_name_is_refused(client: Client) -> None:
    """REQUEST_ID_REUSED on request_id; nothing is stored."""
    first = await talk(client, "hello", request_id="r1")
    for request in (
        ask("bye", request_id="r1"),
        ask("hello", first.session_id, request_id="r1"),
        ask("hello", request_id="r1", system="other"),
    ):
        refusal = await refused(client.messages.SendMessage(request))
        assert (refusal.code, refusal.reason, refusal.fields) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "REQUEST_ID_REUSED",
            ["request_id"],
        )
    append = AppendMessageRequest(
        session_id=first.session_id, type=MESSAGE_TYPE_USER, parts=[text("hello")], request_id="r1"
    )
    assert (await refused(client.messages.AppendMessage(append))).reason == "REQUEST_ID_REUSED"
    assert len(await messages_of(client, first.session_id)) == 2


async def test_failed_request_leaves_its_name_free(client: Client) -> None:
    """After an error the same name may be used for a corrected request."""
    bad = ask("hello", request_id="r1")
    bad.parts.append(file(url="data:text/plain;base64,???"))
    await refused(client.messages.SendMessage(bad))
    assert (await talk(client, "hello", request_id="r1")).disposition == DISPOSITION_STARTED


async def test_append_is_idempotent_too(client: Client) -> None:
    """The same message id and sequence; one message."""
    session_id = await new_session(client)
    request = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=[text("n")], request_id="r1")
    answers = await asyncio.gather(*(client.messages.AppendMessage(request) for _ in range(5)))
    assert answers == [answers[0]] * 5
    assert len(await messages_of(client, session_id)) == 1


@pytest.mark.slow
async def test_retry_right_after_a_lost_call(client: Client) -> None:
    """A call that is cancelled at any moment and repeated at once is carried out exactly once."""

    async def one(number: int) -> None:
        session_id = await new_session(client)
        request = ask("hello", session_id, request_id=f"r{number}")
        call = client.messages.SendMessage(request)
        for _ in range(number % 20):
            await asyncio.sleep(0.0002)  # varies the moment of the cancellation; nothing is waited for
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await turn_ended(client, await client.messages.SendMessage(request))
        assert len(await messages_of(client, session_id)) == 2

    outcomes = await asyncio.gather(*(one(number) for number in range(100)), return_exceptions=True)
    assert outcomes == [None] * 100


async def test_retry_of_a_dropped_message_says_so(client: Client) -> None:
    """A message that waited and was dropped is not sent again by its retry."""
    first = await client.messages.SendMessage(ask(FOREVER))
    queued = await client.messages.SendMessage(ask("waits", first.session_id, request_id="r1"))
    async with watching(client, first.session_id, after_sequence=0) as watch:
        await watch.until_kind("message_added", 2)
    again = await client.messages.SendMessage(ask("waits", first.session_id, request_id="r1"))
    assert (again.message_id, again.queue_position) == (queued.message_id, 1)
