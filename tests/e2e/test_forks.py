"""Forks and clones: copies of sessions that are equal to their originals and independent of them."""

import asyncio
import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from opencode.event.session_event_pb2 import CONVERSATION_CHANGE_FORKED
from opencode.file.file_pb2 import DownloadFileRequest
from opencode.message.content_pb2 import (
    FINISH_REASON_INTERRUPTED,
    FINISH_REASON_STOP,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_SYSTEM,
    MESSAGE_TYPE_USER,
    SessionMessage,
)
from opencode.message.message_pb2 import ExplainContextRequest, SendMessageRequest
from opencode.session.session_pb2 import ForkSessionRequest, ForkSessionResponse, SessionSettings
from opencode.turn.turn_pb2 import TURN_STATUS_ENDED, TurnSettings
from tests.support.clients.archives import long_session
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    displayed,
    file,
    messages_of,
    model,
    model_name,
    new_session,
    refused,
    session_of,
    talk,
    text,
    tool,
    turn_ended,
    watching,
    words_of,
)
from tests.support.models.scripts import APIS, Call, Say, Think, answer
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.provider import ProviderServer
from tests.support.servers.running import Client, connect, running_server
from tests.support.servers.tenants import connect_as, server_of_tenants

MODEL = model("m", "mine")


async def fork(client: Client, session_id: str, through: str = "", **fields: Any) -> ForkSessionResponse:
    """Copies a session."""
    request = ForkSessionRequest(session_id=session_id, through_message_id=through, **fields)
    return await client.sessions.ForkSession(request)


def content(messages: Iterable[SessionMessage]) -> list[SessionMessage]:
    """Returns the messages without what names them, or others."""
    bare = []
    for message in messages:
        bare.append(SessionMessage())
        bare[-1].CopyFrom(message)
        for name in ("message_id", "session_id", "turn_id", "answers_message_id", "previous_message_id", "origin"):
            bare[-1].ClearField(name)
        bare[-1].ClearField("request_id")
        for part in bare[-1].parts:
            part.ClearField("part_id")
            if part.HasField("tool_use"):
                part.tool_use.ClearField("id")
            elif part.HasField("tool_result"):
                part.tool_result.ClearField("tool_call_id")
    return bare


def ids_of(messages: Iterable[SessionMessage]) -> set[str]:
    """Returns every id in messages."""
    return {
        name
        for message in messages
        for name in (message.message_id, message.turn_id, *(part.part_id for part in message.parts))
        if name
    }


async def explained(client: Client, session_id: str) -> str:
    """Returns what the model would be sent if it were asked once more."""
    settings = TurnSettings(model=model_name("m", "mine"), tools=[tool("look")])
    request = ExplainContextRequest(session_id=session_id, settings=settings, parts=[text("and now?")])
    return (await client.messages.ExplainContext(request)).request_json


@pytest.mark.matrix
@pytest.mark.parametrize("api", APIS)
async def test_a_model_reads_a_copy_as_it_reads_the_original(api: str, tmp_path: Path) -> None:
    """Word by word, also in a copy of a copy: signatures, calls with odd ids, files. Only ids of the server differ."""
    sealed = base64.b64encode(b"sealed").decode()
    async with ProviderServer() as provider:
        for call_id in ("call_1", "an odd id"):
            provider.enqueue(answer(api, Think("hm", sealed), Call("look", '{"n": 1.0}', call_id)))
            provider.enqueue(answer(api, Think("so", sealed), Say("I see.")))
        toml = f"[providers.mine]\nkind = '{api}'\nbase_url = '{provider.base_url}'\n"
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            session_id = await new_session(client, title="Plans")
            for words in ("go", "again"):
                parts = [text(words), file(url="data:text/plain;base64,aGVsbG8=", filename="a.txt")]
                accepted = await client.messages.SendMessage(
                    session_id=session_id, parts=parts, model=MODEL, tools=[tool("look")], metadata_json='{"a":1}'
                )
                async with watching(client, session_id, after_sequence=accepted.sequence) as watch:
                    updated = await watch.until(lambda event: event.tool_call_updated.state.status == "pending")
                    await client.tools.SubmitToolResult(
                        session_id=session_id, tool_call_id=updated.tool_call_updated.state.id, output="a cat"
                    )
                    await watch.until_turn_ended(accepted.turn_id)
            copy = (await fork(client, session_id)).session.id
            again = (await fork(client, copy)).session.id
            original, copied = await messages_of(client, session_id), await messages_of(client, copy)
            assert content(copied) == content(original)
            assert len(ids_of(copied)) == len(ids_of(original))
            assert not ids_of(copied) & ids_of(original)
            sent = await explained(client, session_id)
            assert (sealed in sent) == (api != "openai_chat")  # which seals nothing
            assert [await explained(client, one) for one in (copy, again)] == [sent, sent]
            turns = (await client.turns.ListTurns(session_id=copy)).turns
    assert [turn.turn_id for turn in turns] == [copied[0].turn_id, copied[3].turn_id]
    assert [(turn.status, turn.finish_reason, turn.steps) for turn in turns] == [
        (TURN_STATUS_ENDED, FINISH_REASON_STOP, 2)
    ] * 2
    assert not any(turn.HasField("usage") for turn in turns)


async def test_a_copy_names_its_original(client: Client) -> None:
    """The session and each message; references between messages lead to copies; the answer maps the ids."""
    session_id = await new_session(client, title="Plans", labels={"a": "b"}, system="be brief")
    accepted = await talk(client, '/tool look {"n": 1}', session_id, request_id="forks-origin")
    original = await messages_of(client, session_id)
    made = await fork(client, session_id)
    copied = await messages_of(client, made.session.id)
    assert dict(made.message_ids) == {a.message_id: b.message_id for a, b in zip(original, copied, strict=True)}
    assert [(m.origin.system, m.origin.session_id, m.origin.message_id) for m in copied] == [
        ("", session_id, message.message_id) for message in original
    ]
    assert [m.answers_message_id for m in copied[1:]] == [copied[0].message_id] * (len(copied) - 1)
    assert [m.previous_message_id for m in copied] == ["", *(m.message_id for m in copied[:-1])]
    assert [m.request_id for m in copied] == [""] * len(copied)
    assert original[0].request_id == "forks-origin"
    source = await session_of(client, session_id)
    assert (made.session.origin.session_id, made.session.origin.message_id) == (session_id, original[-1].message_id)
    assert made.session.settings == source.settings
    assert made.session.revision == 1
    assert not source.HasField("origin")
    assert accepted.turn_id not in {message.turn_id for message in copied}


async def test_a_copy_and_its_original_live_apart(client: Client) -> None:
    """Changes of one do not reach the other; a file is there as long as one of them has it."""
    session_id = await new_session(client, title="Plans")
    request = SendMessageRequest(
        session_id=session_id, parts=[text("look"), file(url="data:text/plain;base64,aGVsbG8=", filename="a.txt")]
    )
    await turn_ended(client, await client.messages.SendMessage(request))
    copy = (await fork(client, session_id)).session.id
    before = await messages_of(client, session_id)
    shown = await displayed(client, copy)
    await talk(client, "only here", copy)
    assert await messages_of(client, session_id) == before
    await client.sessions.DeleteSession(session_id=session_id)
    copied = await messages_of(client, copy)
    assert [words_of(m) for m in copied[-2:]] == ["only here", "only here"]
    assert (await displayed(client, copy))[: len(shown)] == shown
    sha256 = copied[0].parts[1].file.sha256
    pieces = client.files.DownloadFile(session_id=copy, sha256=sha256)
    assert b"".join([piece.data async for piece in pieces]) == b"hello"


async def test_a_fork_ends_with_its_message(client: Client) -> None:
    """Later messages are not in it; a message that the session does not have is refused."""
    session_id = (await talk(client, "one")).session_id
    await talk(client, "two", session_id)
    messages = await messages_of(client, session_id)
    made = await fork(client, session_id, messages[2].message_id)
    copied = await messages_of(client, made.session.id)
    assert [words_of(m) for m in copied] == ["one", "one", "two"]
    assert list(made.message_ids) and set(made.message_ids) == {m.message_id for m in messages[:3]}
    assert made.session.origin.message_id == messages[2].message_id
    other = (await talk(client, "other")).message_id
    for unknown in (other, "msg_unknown"):
        found = await refused(fork(client, session_id, unknown))
        assert (found.code, found.reason) == (grpc.StatusCode.NOT_FOUND, "MESSAGE_NOT_FOUND")


async def test_a_watcher_of_a_copy_reads_the_list(client: Client) -> None:
    """The first two events say so; from then on the watch is as any other."""
    session_id = (await talk(client, "hello")).session_id
    made = await fork(client, session_id)
    copy = made.session.id
    fold = SessionFold(copy)
    async with watching(client, copy, fold, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
        created, changed = watch.events[0], watch.events[1]
        assert created.session_created.session.origin.session_id == session_id
        assert changed.conversation_changed.change == CONVERSATION_CHANGE_FORKED
        assert not changed.conversation_changed.HasField("kept_through_message_id")
        assert (changed.conversation_changed.reread, fold.rereads, fold.head) == (True, 1, 2)
    assert made.session.head_sequence == 2
    listed = SessionFold(copy, 2, await messages_of(client, copy))
    async with watching(client, copy, listed, resume_token=made.resume_token) as watch:
        accepted = await client.messages.SendMessage(ask("more", copy))
        await watch.until_turn_ended(accepted.turn_id)
    assert comparable(listed.listed()) == comparable(await messages_of(client, copy))


async def test_settings_of_a_copy_may_differ(client: Client) -> None:
    """Those that the mask names; a wrong one names its field, and nothing is made."""
    session_id = await new_session(client, title="Plans", system="be brief", labels={"a": "b"})
    settings = SessionSettings(title="Other plans")
    made = await fork(client, session_id, settings=settings, settings_mask=FieldMask(paths=["title", "system"]))
    assert made.session.title == "Other plans"
    assert not made.session.settings.HasField("system")
    assert made.session.settings.labels == {"a": "b"}
    wrong = [
        (await refused(fork(client, session_id, settings_mask=FieldMask(paths=["nothing"])))).fields,
        (await refused(fork(client, session_id, settings=SessionSettings(agent="nobody")))).fields,
        (await refused(fork(client, session_id, settings=SessionSettings(directory="here")))).fields,
        (await refused(fork(client, ""))).fields,
    ]
    assert wrong == [["settings_mask"], ["settings.agent"], ["settings.directory"], ["session_id"]]


async def test_a_named_fork_is_made_once(client: Client) -> None:
    """A retry gets the same copy as it is then, also when the original is gone or messages of the copy are hidden;
    another content is refused.
    """
    session_id = (await talk(client, "hello")).session_id
    first, second = await asyncio.gather(*(fork(client, session_id, request_id="forks-once") for _ in range(2)))
    assert first == second
    await client.sessions.DeleteSession(session_id=session_id)
    await talk(client, "more", first.session.id)
    retried = await fork(client, session_id, request_id="forks-once")
    assert (retried.session.id, retried.message_ids) == (first.session.id, first.message_ids)
    assert retried.session.head_sequence > 2
    await client.sessions.ClearSession(session_id=first.session.id)
    assert (await fork(client, session_id, request_id="forks-once")).message_ids == first.message_ids
    found = await refused(fork(client, session_id, "msg_other", request_id="forks-once"))
    assert found.reason == "REQUEST_ID_REUSED"
    assert (await refused(fork(client, session_id))).reason == "SESSION_NOT_FOUND"


async def test_a_copy_of_a_running_session_has_what_is_complete(client: Client) -> None:
    """It ends before the answer that streams, without the messages that wait; nothing in it runs."""
    session_id = (await talk(client, "hello")).session_id
    running = await client.messages.SendMessage(ask(f"begin\n{FOREVER}", session_id))
    waiting = await client.messages.SendMessage(ask("next", session_id))
    async with watching(client, session_id, after_sequence=running.sequence) as watch:
        await watch.until(lambda event: event.message_added.message.type == MESSAGE_TYPE_ASSISTANT)
        made = await fork(client, session_id)
        streaming = (await messages_of(client, session_id))[3].message_id
        refusals = [await refused(fork(client, session_id, one)) for one in (streaming, waiting.message_id)]
    copied = await messages_of(client, made.session.id)
    assert [words_of(m).partition("\n")[0] for m in copied] == ["hello", "hello", "begin"]
    assert (made.session.active_turn_id, made.session.queued_messages) == ("", 0)
    assert [(one.code, one.reason) for one in refusals] == [
        (grpc.StatusCode.FAILED_PRECONDITION, "TURN_IN_PROGRESS")
    ] * 2
    turns = (await client.turns.ListTurns(session_id=made.session.id)).turns
    assert [turn.finish_reason for turn in turns] == [FINISH_REASON_STOP, FINISH_REASON_INTERRUPTED]
    await client.messages.AbortSession(session_id=session_id, expected_turn_id=running.turn_id)
    await talk(client, "on we go", made.session.id)


async def test_an_open_call_is_not_copied(client: Client) -> None:
    """A call that waits for its result would wait for ever in a copy."""
    accepted = await client.messages.SendMessage(ask("/tool look {}", tools=[tool("look")]))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        await watch.until(lambda event: event.tool_call_updated.state.status == "pending")
    made = await fork(client, accepted.session_id)
    assert [m.type for m in await messages_of(client, made.session.id)] == [MESSAGE_TYPE_USER]
    await client.messages.AbortSession(session_id=accepted.session_id)


async def test_an_empty_session_can_be_copied(client: Client) -> None:
    """The copy is empty too."""
    made = await fork(client, await new_session(client, title="Empty"))
    assert await messages_of(client, made.session.id) == []
    assert (made.session.title, made.session.origin.message_id) == ("Empty", "")


async def test_copies_count_for_quotas(tmp_path: Path) -> None:
    """Sessions and bytes: a copy that does not fit is refused, and nothing of it is stored."""
    toml = "[tenants.acme.quotas]\nmax_sessions = 3\nmax_stored_bytes = 9000\n"
    async with server_of_tenants(tmp_path, toml) as server, connect_as(server.address, "acme", "ann") as acme:
        session_id = await new_session(acme, title="Plans")
        words = "x" * 3000
        await acme.messages.AppendMessage(session_id=session_id, type=MESSAGE_TYPE_SYSTEM, parts=[text(words)])
        copy = (await fork(acme, session_id)).session.id
        found = await refused(fork(acme, session_id))
        assert (found.reason, found.metadata["quota"]) == ("QUOTA_EXCEEDED", "stored_bytes")
        await acme.sessions.DeleteSession(session_id=copy)
        await fork(acme, session_id)
        await new_session(acme)
        assert (await refused(fork(acme, session_id))).metadata["quota"] == "sessions"


@pytest.mark.slow
async def test_a_long_copy_is_stored_in_parts(client: Client) -> None:
    """It is there at once, as a whole and in order, with its files; the original may go then."""
    session_id = await long_session(client, 450)
    async with watching(client) as watch:
        await watch.until_kind("caught_up")
        made = await fork(client, session_id)
        assert len(await messages_of(client, made.session.id)) == 450
        await watch.until_kind("conversation_changed")
        of_copy = [event for event in watch.events if event.session_id == made.session.id]
        assert [event.WhichOneof("kind") for event in of_copy] == ["session_created", "conversation_changed"]
        assert {event.session_id for event in watch.events} <= {made.session.id, ""}
    originals = await messages_of(client, session_id)
    copies = await messages_of(client, made.session.id)
    assert [words_of(message) for message in copies] == [str(number) for number in range(450)]
    assert content(copies) != [] and len(content(originals)) == 450
    assert made.message_ids[originals[449].message_id] == copies[449].message_id
    found = await client.search.SearchMessages(query="449", session_ids=[made.session.id])
    assert [hit.message_id for hit in found.hits] == [copies[449].message_id]
    await client.sessions.DeleteSession(session_id=session_id)
    sha256 = next(part.file.sha256 for part in copies[100].parts if part.HasField("file"))
    request = DownloadFileRequest(session_id=made.session.id, sha256=sha256)
    assert b"".join([answer.data async for answer in client.files.DownloadFile(request)]) == b"abc"
