"""A message that is stored already is answered later, by a named model."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from opencode.message.content_pb2 import (
    FINISH_REASON_STOP,
    MESSAGE_STATUS_COMPLETE,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_USER,
)
from opencode.message.message_pb2 import (
    DISPOSITION_DUPLICATE,
    DISPOSITION_QUEUED,
    DISPOSITION_STARTED,
    AppendMessageRequest,
)
from opencode.session.session_pb2 import RevertSessionRequest
from opencode.tool.tool_pb2 import SubmitToolResultRequest
from opencode.turn.turn_pb2 import BUSY_POLICY_REJECT, TURN_STATUS_QUEUED, TURN_STATUS_RUNNING, TurnSettings
from opencode.turn.turn_service_pb2 import StartTurnRequest
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    displayed,
    file,
    messages_of,
    model_name,
    new_session,
    refused,
    talk,
    text,
    tool,
    watching,
    words_of,
)
from tests.support.models.scripts import Call, Say, answer
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.provider import ProviderServer, ScriptedReply
from tests.support.servers.running import Client, connect, running_server


async def append(client: Client, session_id: str, words: str, kind: int = MESSAGE_TYPE_USER, *more: Any) -> str:
    """Stores a message without a turn and returns its id."""
    request = AppendMessageRequest(session_id=session_id, type=kind, parts=[text(words), *more])
    return (await client.messages.AppendMessage(request)).message_id


async def start(client: Client, session_id: str, message_id: str, **fields: Any) -> Any:
    """Answers a stored message."""
    request = StartTurnRequest(session_id=session_id, user_message_id=message_id, **fields)
    return await client.turns.StartTurn(request)


async def ended(client: Client, session_id: str, started: Any) -> Any:
    """Waits for the end of a turn, from the answer's token on."""
    async with watching(client, session_id, resume_token=started.resume_token) as watch:
        return (await watch.until_turn_ended(started.turn.turn_id)).turn_ended.turn


async def folded(client: Client, session_id: str) -> None:
    """Checks that the events from the first one on make what is listed."""
    fold = SessionFold(session_id)
    async with watching(client, session_id, fold, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    listed = await messages_of(client, session_id)
    assert comparable(fold.listed()) == comparable(listed)
    shown = [m.previous_message_id for m in listed if m.message_id not in fold.queue]
    assert shown == ["", *(m.message_id for m in listed)][: len(shown)]


async def test_an_appended_message_is_answered(client: Client) -> None:
    """By the model that is named; the message gets its turn, and keeps its parts and its place."""
    session_id = await new_session(client)
    message_id = await append(
        client, session_id, "hello", MESSAGE_TYPE_USER, file(url="data:text/plain;base64,aGVsbG8=", filename="a.txt")
    )
    [before] = await messages_of(client, session_id)
    settings = TurnSettings(model=model_name("reasoning"), system="be brief")
    started = await start(client, session_id, message_id, settings=settings)
    assert (started.disposition, started.queue_position) == (DISPOSITION_STARTED, 0)
    assert (started.turn.status, started.turn.user_message_id) == (TURN_STATUS_RUNNING, message_id)
    turn = await ended(client, session_id, started)
    assert turn.finish_reason == FINISH_REASON_STOP
    question, answer = await messages_of(client, session_id)
    assert (question.turn_id, answer.turn_id, answer.answers_message_id) == (*[turn.turn_id] * 2, message_id)
    assert answer.model_run.model_requested == "reasoning"
    assert question.parts == before.parts
    assert question.create_time == before.create_time
    assert turn.create_time.ToNanoseconds() >= before.create_time.ToNanoseconds()
    assert [m.message_id for m in await displayed(client, session_id)] == [message_id, answer.message_id]
    await folded(client, session_id)


async def test_only_a_message_without_an_answer_gets_a_turn(client: Client) -> None:
    """Answered, running and waiting ones have theirs; others are no user messages, or not there."""
    accepted = await talk(client, "hello")
    session_id = accepted.session_id
    found = await refused(start(client, session_id, accepted.message_id))
    assert (found.code, found.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TURN_EXISTS")
    note = await append(client, session_id, "note", MESSAGE_TYPE_HOST)
    assert (await refused(start(client, session_id, note))).fields == ["user_message_id"]
    assert (await refused(start(client, session_id, "msg_unknown"))).reason == "MESSAGE_NOT_FOUND"
    other = await append(client, await new_session(client), "other")
    assert (await refused(start(client, session_id, other))).reason == "MESSAGE_NOT_FOUND"
    wrong = await refused(start(client, session_id, other, settings=TurnSettings(model=model_name("", "none"))))
    assert wrong.fields == ["settings.model.model_id"]
    assert (await refused(start(client, "", ""))).fields == ["session_id", "user_message_id"]
    running = await client.messages.SendMessage(ask(FOREVER, session_id))
    waiting = await client.messages.SendMessage(ask("next", session_id))
    for message_id in (running.message_id, waiting.message_id):
        assert (await refused(start(client, session_id, message_id))).reason == "TURN_EXISTS"
    await client.messages.AbortSession(session_id=session_id)


async def test_a_reverted_answer_is_written_anew(client: Client) -> None:
    """In the session, and in a fork that ends with the question, by another model."""
    accepted = await talk(client, "hello")
    session_id = accepted.session_id
    question, answer = await messages_of(client, session_id)
    fork = await client.sessions.ForkSession(session_id=session_id, through_message_id=question.message_id)
    revert = RevertSessionRequest(session_id=session_id, before_message_id=answer.message_id)
    await client.sessions.RevertSession(revert)
    settings = TurnSettings(model=model_name("refuse"))
    for session, message_id in (
        (session_id, question.message_id),
        (fork.session.id, fork.message_ids[question.message_id]),
    ):
        started = await start(client, session, message_id, settings=settings)
        await ended(client, session, started)
        listed = await messages_of(client, session)
        assert (len(listed), listed[0].message_id) == (2, message_id)
        assert listed[1].parts[0].HasField("refusal")
    await folded(client, session_id)


async def test_a_message_in_the_middle_moves_to_the_end(client: Client) -> None:
    """Its answer follows it; the messages around it close up."""
    session_id = await new_session(client)
    first, second, third = [await append(client, session_id, words) for words in ("one", "two", "three")]
    started = await start(client, session_id, second)
    await ended(client, session_id, started)
    assert [words_of(m) for m in await messages_of(client, session_id)] == ["one", "three", "two", "two"]
    await folded(client, session_id)
    await ended(client, session_id, await start(client, session_id, first))
    await ended(client, session_id, await start(client, session_id, third))
    listed = [words_of(m) for m in await messages_of(client, session_id)]
    assert listed == ["two", "two", "one", "one", "three", "three"]
    await folded(client, session_id)


async def test_a_busy_session_lets_the_message_wait(client: Client) -> None:
    """It waits as a sent one does; dropped, it stays in the conversation and can be answered later."""
    session_id = await new_session(client)
    message_id = await append(client, session_id, "stored")
    running = await client.messages.SendMessage(ask(FOREVER, session_id))
    async with watching(client, session_id, after_sequence=running.sequence) as watch:
        await watch.until(lambda event: event.message_added.message.type == MESSAGE_TYPE_ASSISTANT)
    found = await refused(start(client, session_id, message_id, busy_policy=BUSY_POLICY_REJECT))
    assert found.reason == "TURN_IN_PROGRESS"
    queued = await start(client, session_id, message_id)
    assert (queued.disposition, queued.queue_position, queued.turn.status) == (
        DISPOSITION_QUEUED,
        1,
        TURN_STATUS_QUEUED,
    )
    assert (await messages_of(client, session_id))[-1].message_id == message_id
    await folded(client, session_id)
    aborted = await client.messages.AbortSession(session_id=session_id)
    assert (aborted.turn_id, list(aborted.dropped_message_ids)) == (running.turn_id, [message_id])
    [stored] = [m for m in await messages_of(client, session_id) if m.message_id == message_id]
    assert (words_of(stored), stored.turn_id, stored.status) == ("stored", "", MESSAGE_STATUS_COMPLETE)
    await folded(client, session_id)
    await client.messages.SendMessage(ask("/sleep 0.2\nslow", session_id))
    queued = await start(client, session_id, message_id)
    await ended(client, session_id, queued)
    assert [words_of(m) for m in await messages_of(client, session_id)][-2:] == ["stored", "stored"]
    await folded(client, session_id)


@pytest.mark.slow
async def test_a_message_before_a_streaming_answer_may_wait(tmp_path: Path) -> None:
    """The answer goes on in its place, and closes up when it is finished."""
    go_on = asyncio.Event()
    first, *rest = answer("openai_chat", Say("begun")).chunks
    async with ProviderServer(lambda _: answer("openai_chat", Say("Yes."))) as provider:
        provider.enqueue(answer("openai_chat", Call("look")))
        provider.enqueue(ScriptedReply((first, go_on, *rest)))
        toml = (
            f"[providers.mine]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n[defaults]\nmodel = 'mine/m'\n"
        )
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            session_id = await new_session(client)
            fold = SessionFold(session_id)
            running = await client.messages.SendMessage(ask("go", session_id, tools=[tool("look")]))
            async with watching(client, session_id, fold, after_sequence=0) as watch:
                due = await watch.until(lambda event: event.tool_call_updated.state.status == "pending")
                stored = [await append(client, session_id, words) for words in ("one", "two")]
                call_id = due.tool_call_updated.state.id
                result = SubmitToolResultRequest(session_id=session_id, tool_call_id=call_id, output="a cat")
                await client.tools.SubmitToolResult(result)
                await watch.until_text("begun")
                queued = [await start(client, session_id, message_id) for message_id in reversed(stored)]
                assert [one.queue_position for one in queued] == [1, 2]
                go_on.set()
                await watch.until_turn_ended(running.turn_id)
                await watch.until_turn_ended(queued[1].turn.turn_id)
            listed = await messages_of(client, session_id)
            assert [words_of(m) for m in listed] == ["go", "", "begun", "two", "Yes.", "one", "Yes."]
            assert comparable(fold.listed()) == comparable(listed)
            await folded(client, session_id)


async def test_a_named_start_is_carried_out_once(client: Client) -> None:
    """Also when two come at once; without a name, the second finds the turn of the first."""
    session_id = await new_session(client)
    message_id = await append(client, session_id, "hello")
    answers = await asyncio.gather(*(start(client, session_id, message_id, request_id="late") for _ in range(3)))
    assert {answer.turn.turn_id for answer in answers} == {answers[0].turn.turn_id}
    assert sorted(answer.disposition for answer in answers) == [
        DISPOSITION_STARTED,
        DISPOSITION_DUPLICATE,
        DISPOSITION_DUPLICATE,
    ]
    await ended(client, session_id, answers[0])
    other = await append(client, session_id, "again")
    results = await asyncio.gather(*(start(client, session_id, other) for _ in range(4)), return_exceptions=True)
    [begun] = [result for result in results if not isinstance(result, Exception)]
    await ended(client, session_id, begun)
    await folded(client, session_id)


async def test_many_appends_beside_a_start(client: Client) -> None:
    """The events make what is listed, with anything stored between reading and starting."""
    session_id = await new_session(client)
    message_id = await append(client, session_id, "hello")
    started, *_ = await asyncio.gather(
        start(client, session_id, message_id), *(append(client, session_id, str(number)) for number in range(8))
    )
    await ended(client, session_id, started)
    assert len(await messages_of(client, session_id)) == 10
    await folded(client, session_id)
