"""Sending, reading and storing messages."""

import asyncio
from pathlib import Path

import grpc
import pytest

from opencode.message import content_pb2, message_pb2
from opencode.message.content_pb2 import MESSAGE_STATUS_COMPLETE, ToolResultContent
from opencode.message.message_pb2 import AppendMessageRequest, GetMessageRequest, MessagePart
from opencode.turn import turn_pb2
from tests.support.clients.conversation import (
    FOREVER,
    answer_to,
    ask,
    displayed,
    kinds,
    messages_of,
    model,
    new_session,
    refused,
    session_of,
    streamed,
    talk,
    text,
    turn_ended,
    watching,
    words_of,
)
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.running import Client, connect, running_server

APPENDABLE = ["USER", "SYSTEM", "HOST", "TOOL_RESULT"]


async def test_message_to_idle_session_starts(client: Client) -> None:
    """It is STARTED at queue position 0, and its turn answers it."""
    session_id = await new_session(client)
    accepted = await client.messages.SendMessage(ask("hello", session_id))
    assert (accepted.session_id, accepted.disposition, accepted.queue_position) == (
        session_id,
        message_pb2.DISPOSITION_STARTED,
        0,
    )
    await turn_ended(client, accepted)
    answer = await answer_to(client, accepted)
    assert (words_of(answer), answer.status, answer.finish_reason) == (
        "hello",
        MESSAGE_STATUS_COMPLETE,
        content_pb2.FINISH_REASON_STOP,
    )


async def test_message_without_session_creates_one(client: Client) -> None:
    """The answer names the session, whose first event is session_created."""
    accepted = await talk(client, "hello")
    assert (await session_of(client, accepted.session_id)).id == accepted.session_id
    async with watching(client, accepted.session_id, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    assert kinds(watch.events)[:2] == ["session_created", "message_added"]


async def test_sequence_of_answer_is_just_before_the_message(client: Client) -> None:
    """Watching after it begins with the message's own message_added."""
    session_id = (await talk(client, "one")).session_id
    accepted = await client.messages.SendMessage(ask("two", session_id))
    async with watching(client, session_id, after_sequence=accepted.sequence) as watch:
        first = (await watch.batch())[0]
    assert first.message_added.message.message_id == accepted.message_id


async def test_display_and_full_messages_tell_the_same(client: Client) -> None:
    """GetMessages and ListMessages have the same ids and texts in the same order."""
    session_id = (await talk(client, "one")).session_id
    await talk(client, "two", session_id, model=model("reasoning"))
    full, shown = await messages_of(client, session_id), await displayed(client, session_id)
    assert [m.message_id for m in full] == [m.message_id for m in shown]
    assert [words_of(m) for m in full] == ["".join(m.text_parts) for m in shown]
    assert shown[3].reasoning_parts
    assert [m.role for m in shown] == ["user", "assistant"] * 2


async def test_get_message_returns_one(client: Client) -> None:
    """GetMessage answers what ListMessages answers for it."""
    accepted = await talk(client, "one")
    for listed in await messages_of(client, accepted.session_id):
        request = GetMessageRequest(session_id=accepted.session_id, message_id=listed.message_id)
        assert (await client.messages.GetMessage(request)).message == listed


@pytest.mark.parametrize("newest_first", [False, True])
async def test_pages_join_to_the_whole(client: Client, newest_first: bool) -> None:
    """Pages of three give every message once, in order, and the last has no token."""
    session_id = await new_session(client)
    for number in range(10):
        await client.messages.AppendMessage(
            session_id=session_id, type=content_pb2.MESSAGE_TYPE_HOST, parts=[text(f"n{number}")]
        )
    found, token = [], ""
    while True:
        page = await client.messages.GetMessages(
            session_id=session_id, page_size=3, page_token=token, newest_first=newest_first
        )
        found += [m.text_parts[0] for m in page.messages]
        token = page.next_page_token
        if not token:
            break
    expected = [f"n{number}" for number in range(10)]
    assert found == (expected[::-1] if newest_first else expected)


@pytest.mark.slow
async def test_read_shows_all_that_a_watcher_holds(client: Client) -> None:
    """GetMessages, asked while text streams, has at least the text that was watched before."""
    accepted = await client.messages.SendMessage(ask("/rate 400\n/words 300"))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        watch.fold = SessionFold(accepted.session_id, accepted.sequence)
        for _ in range(8):
            await watch.batch()
            streaming = [m for m in watch.fold.listed() if m.answers_message_id]
            if streaming:
                held = words_of(streaming[-1])
                read = words_of((await messages_of(client, accepted.session_id))[-1])
                assert read.startswith(held)
                shown = (await displayed(client, accepted.session_id))[-1]
                assert "".join(shown.text_parts).startswith(read)


@pytest.mark.parametrize("name", APPENDABLE)
async def test_append_stores_without_a_turn(client: Client, name: str) -> None:
    """Each type is stored with its parts; no turn starts."""
    session_id = await new_session(client)
    kind = content_pb2.MessageType.Value(f"MESSAGE_TYPE_{name}")
    part = text("said")
    if name == "TOOL_RESULT":
        part = MessagePart(tool_result=ToolResultContent(call_id="unknown", output="said"))
    answer = await client.messages.AppendMessage(
        session_id=session_id, type=kind, parts=[part], sender="app", metadata_json='{"a":1}'
    )
    (stored,) = await messages_of(client, session_id)
    assert (stored.message_id, stored.type, stored.status) == (answer.message_id, kind, MESSAGE_STATUS_COMPLETE)
    assert (stored.sender, stored.metadata_json, stored.turn_id) == ("app", '{"a":1}', "")
    assert (await displayed(client, session_id))[0].role == ("user" if name == "USER" else "system")
    async with watching(client, session_id, after_sequence=answer.sequence) as watch:
        await watch.until_kind("caught_up")
    assert kinds(watch.events) == ["message_added", "session_snapshot", "caught_up"]


async def test_append_needs_an_existing_session(client: Client) -> None:
    """Unlike SendMessage it never creates one."""
    request = AppendMessageRequest(type=content_pb2.MESSAGE_TYPE_HOST, parts=[text("note")])
    assert (await refused(client.messages.AppendMessage(request))).fields == ["session_id"]
    request.session_id = "ses_none"
    assert (await refused(client.messages.AppendMessage(request))).reason == "SESSION_NOT_FOUND"


@pytest.mark.parametrize(
    ("kind", "part", "field"),
    [
        ("HOST", MessagePart(file=message_pb2.FilePart(url="data:text/plain;base64,aGk=")), "parts[0].file"),
        ("SYSTEM", MessagePart(tool_result=ToolResultContent(call_id="c")), "parts[0].tool_result"),
        ("USER", MessagePart(tool_result=ToolResultContent(call_id="c")), "parts[0].tool_result"),
        ("TOOL_RESULT", text("said"), "parts[0].text"),
        ("TOOL_RESULT", MessagePart(tool_result=ToolResultContent(output="x")), "parts[0].tool_result.call_id"),
    ],
)
async def test_append_refuses_content_of_another_type(client: Client, kind: str, part: MessagePart, field: str) -> None:
    """Each type takes its own contents only."""
    request = AppendMessageRequest(
        session_id=await new_session(client), type=content_pb2.MessageType.Value(f"MESSAGE_TYPE_{kind}"), parts=[part]
    )
    assert (await refused(client.messages.AppendMessage(request))).fields == [field]


async def test_turn_lives_on_when_the_stream_is_cancelled(client: Client) -> None:
    """Cancelling StreamMessage right after accept leaves a turn that ends by itself."""
    call = streamed(client, ask("/rate 300\n/words 60"))
    accepted = (await call.read()).accepted
    call.cancel()
    assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == content_pb2.FINISH_REASON_STOP
    assert len(words_of(await answer_to(client, accepted)).split()) == 60


@pytest.mark.slow
async def test_message_of_a_cancelled_send_is_whole_or_not_there(client: Client) -> None:
    """SendMessage cancelled at any moment leaves nothing, or a message that is answered."""
    session_id = await new_session(client)

    async def send_and_cancel(number: int) -> None:
        call = client.messages.SendMessage(ask(f"n{number}", session_id))
        for _ in range(number % 12):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    await asyncio.gather(*map(send_and_cancel, range(60)))
    await talk(client, "last", session_id)
    listed = await messages_of(client, session_id)
    asked = [m.message_id for m in listed if m.type == content_pb2.MESSAGE_TYPE_USER]
    assert [m.answers_message_id for m in listed if m.answers_message_id] == asked
    assert words_of(listed[-1]) == "last"
    fold = SessionFold(session_id)
    async with watching(client, session_id, fold, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    assert comparable(fold.listed()) == comparable(listed)
    assert len(fold.ended_turns) == len(asked)


async def test_stream_has_the_turn_and_nothing_else(client: Client) -> None:
    """StreamMessage begins with its own message_added, ends with turn_ended, and folds to the stored messages."""
    session_id = (await talk(client, "before")).session_id
    responses = [r async for r in streamed(client, ask("now", session_id, model=model("reasoning")))]
    accepted = responses[0].accepted
    assert [r.HasField("accepted") for r in responses] == [True] + [False] * (len(responses) - 1)
    events = [event for r in responses for event in r.events]
    assert events[0].message_added.message.message_id == accepted.message_id
    assert kinds(events)[-1] == "turn_ended"
    durable = [event for event in events if event.sequence]
    assert {event.turn_id for event in durable} == {accepted.turn_id}
    fold = SessionFold(session_id, accepted.sequence, filtered=True)
    for event in events:
        fold.apply(event)
    assert comparable(fold.listed()) == comparable((await messages_of(client, session_id))[2:])
    assert fold.waited == 0


async def test_stream_of_a_queued_message_has_no_foreign_event(client: Client) -> None:
    """It begins with its own message_added and waits silently for its turn."""
    first = await client.messages.SendMessage(ask("/rate 200\n/words 60"))
    call = streamed(client, ask("mine", first.session_id))
    responses = [r async for r in call]
    accepted = responses[0].accepted
    assert accepted.disposition == message_pb2.DISPOSITION_QUEUED
    events = [event for r in responses for event in r.events]
    assert events[0].message_added.message.message_id == accepted.message_id
    assert {event.turn_id for event in events if event.sequence} == {accepted.turn_id}
    deltas = "".join(event.part_delta.text for event in events if event.HasField("part_delta"))
    assert deltas in ("mine", "")


async def test_stream_refuses_as_send_does(client: Client) -> None:
    """A wrong request ends the stream with INVALID_ARGUMENT on a field inside `message`; nothing is stored."""
    refusal = await refused(streamed(client, ask(" ")).read())
    assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["message.parts[0].text.text"])


@pytest.mark.slow
async def test_thousand_messages_at_once(client: Client) -> None:
    """1,000 concurrent sends in 50 sessions: 1,000 ids, each session in the order of acceptance, all answered."""
    sessions = [await new_session(client) for _ in range(50)]
    accepted = await asyncio.gather(
        *(client.messages.SendMessage(ask(f"{number}", sessions[number % 50])) for number in range(1000))
    )
    assert len({a.message_id for a in accepted}) == len({a.turn_id for a in accepted}) == 1000
    for session_id in sessions:
        mine = sorted((a for a in accepted if a.session_id == session_id), key=lambda a: a.sequence)
        await asyncio.gather(*(turn_ended(client, a) for a in mine))
        listed = await messages_of(client, session_id)
        assert [m.message_id for m in listed if not m.answers_message_id] == [a.message_id for a in mine]
        assert [m.answers_message_id for m in listed if m.answers_message_id] == [a.message_id for a in mine]
        assert [words_of(m) for m in listed[::2]] == [words_of(m) for m in listed[1::2]]


async def test_failed_provider_is_an_event_not_an_error(tmp_path: Path) -> None:
    """SendMessage answers; message and turn say FAILED with the reason; the next message works."""
    toml = "[retries]\nfirst_delay_seconds = 0.001"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        accepted = await client.messages.SendMessage(ask("hello", model=model("error")))
        ended = (await turn_ended(client, accepted)).turn_ended.turn
        assert (ended.finish_reason, ended.failure.reason) == (content_pb2.FINISH_REASON_ERROR, "PROVIDER_UNAVAILABLE")
        answer = await answer_to(client, accepted)
        assert (answer.status, answer.failure.reason) == (content_pb2.MESSAGE_STATUS_FAILED, "PROVIDER_UNAVAILABLE")
        again = await talk(client, "again", accepted.session_id)
        assert words_of(await answer_to(client, again)) == "again"


async def test_cut_answer_keeps_its_text(client: Client) -> None:
    """A stream that is lost half way leaves INTERRUPTED with the text so far."""
    accepted = await client.messages.SendMessage(ask("one two three four", model=model("cut")))
    ended = (await turn_ended(client, accepted)).turn_ended.turn
    answer = await answer_to(client, accepted)
    assert ended.finish_reason == answer.finish_reason == content_pb2.FINISH_REASON_INTERRUPTED
    assert answer.status == content_pb2.MESSAGE_STATUS_INTERRUPTED
    assert answer.failure.reason == "PROVIDER_STREAM_CUT"
    assert "one two three four".startswith(words_of(answer).strip())
    assert words_of(answer)


async def test_text_in_other_scripts_survives(client: Client) -> None:
    """Code points are never split: what was sent comes back, in deltas and in store."""
    words = "日本語 🙂🙃 naïve e\u0301 \u0000 مرحبا 👩‍👩‍👧‍👦"
    accepted = await client.messages.SendMessage(ask(words))
    fold = SessionFold(accepted.session_id)
    async with watching(client, accepted.session_id, fold, after_sequence=0) as watch:
        await watch.until_turn_ended(accepted.turn_id)
    assert words_of(await answer_to(client, accepted)) == words
    assert fold.text((await answer_to(client, accepted)).message_id) == words


async def test_unknown_message_is_not_found(client: Client) -> None:
    """GetMessage names the message, also when another session has it."""
    accepted = await talk(client, "one")
    other = await new_session(client)
    for session_id, message_id in ((accepted.session_id, "msg_none"), (other, accepted.message_id)):
        request = GetMessageRequest(session_id=session_id, message_id=message_id)
        refusal = await refused(client.messages.GetMessage(request))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "MESSAGE_NOT_FOUND")
        assert "ResourceInfo" in refusal.details


async def test_reject_refuses_while_a_turn_runs(client: Client) -> None:
    """FAILED_PRECONDITION, and nothing is stored."""
    accepted = await client.messages.SendMessage(ask(FOREVER))
    refusal = await refused(
        client.messages.SendMessage(ask("me too", accepted.session_id, busy_policy=turn_pb2.BUSY_POLICY_REJECT))
    )
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TURN_IN_PROGRESS")
    assert refusal.metadata["subject"] == accepted.turn_id
    assert len([m for m in await messages_of(client, accepted.session_id) if not m.answers_message_id]) == 1
