"""Messages that end the running turn and are answered next."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from opencode.message.content_pb2 import (
    FINISH_REASON_ABORTED,
    FINISH_REASON_STOP,
    MESSAGE_STATUS_INTERRUPTED,
    MESSAGE_TYPE_USER,
)
from opencode.message.message_pb2 import (
    DISPOSITION_DUPLICATE,
    DISPOSITION_QUEUED,
    DISPOSITION_STARTED,
    AppendMessageRequest,
    SendMessageResponse,
)
from opencode.tool.tool_pb2 import PERMISSION_REPLY_CANCELLED
from opencode.turn.turn_pb2 import BUSY_POLICY_INTERRUPT, BUSY_POLICY_QUEUE, TurnSettings
from opencode.turn.turn_service_pb2 import EditQueuedMessageRequest, StartTurnRequest
from tests.support.clients.conversation import (
    FOREVER,
    answer_to,
    ask,
    kinds,
    messages_of,
    model_name,
    new_session,
    refused,
    session_of,
    streamed,
    text,
    tool,
    turn_ended,
    until_at_rest,
    watching,
    words_of,
)
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.mcp import mcp_client, stdio
from tests.support.servers.running import Client, connect, running_server

PARTIAL = "/rate 100\n/words 60000"


def interrupt(client: Client, words: str, session_id: str, **fields: Any) -> Any:
    """Sends a message that ends the running turn."""
    return client.messages.SendMessage(ask(words, session_id, busy_policy=BUSY_POLICY_INTERRUPT, **fields))


async def check_interrupted(client: Client, ended: SendMessageResponse, by: SendMessageResponse) -> None:
    """Checks how a turn ended, that the message was answered, and that the events tell what is stored."""
    turn = (await turn_ended(client, ended)).turn_ended.turn
    assert (turn.finish_reason, turn.ended_by_message_id) == (FINISH_REASON_ABORTED, by.message_id)
    assert (await turn_ended(client, by)).turn_ended.turn.finish_reason == FINISH_REASON_STOP
    await check_fold(client, ended.session_id)


async def check_fold(client: Client, session_id: str) -> None:
    """Checks that the events tell what is stored, once the session is idle."""
    fold = SessionFold(session_id)
    async with watching(client, session_id, fold, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
        await until_at_rest(client, watch)
        assert comparable(fold.listed()) == comparable(await messages_of(client, session_id))


async def test_the_running_turn_ends_and_the_message_is_next(client: Client) -> None:
    """Its text stays, waiting messages stay behind; the session does not become idle between the turns."""
    running = await client.messages.SendMessage(ask(PARTIAL))
    fold = SessionFold(running.session_id)
    waiting = await client.messages.SendMessage(ask("later", running.session_id))
    async with watching(client, running.session_id, fold, after_sequence=0) as watch:
        await watch.until_text(" ")
        now = await interrupt(client, "now", running.session_id)
        assert (now.disposition, now.queue_position) == (DISPOSITION_QUEUED, 1)
        await watch.until_turn_ended(waiting.turn_id)
        queues = [[one.message_id for one in e.queue_changed.entries] for e in watch.events if e.sequence]
        assert [now.message_id, waiting.message_id] in queues
        statuses = [e.session_status_changed.status for e in watch.events if e.HasField("session_status_changed")]
    assert statuses[0] == 2 and 1 not in statuses[:-1]
    partial, first, second = [m for m in await messages_of(client, running.session_id) if m.answers_message_id]
    assert (partial.status, partial.finish_reason) == (MESSAGE_STATUS_INTERRUPTED, FINISH_REASON_ABORTED)
    assert words_of(partial) and [words_of(first), words_of(second)] == ["now", "later"]
    await check_interrupted(client, running, now)


async def test_an_idle_session_answers_at_once(client: Client) -> None:
    """There is nothing to end."""
    session_id = await new_session(client)
    accepted = await interrupt(client, "hello", session_id)
    assert accepted.disposition == DISPOSITION_STARTED
    await turn_ended(client, accepted)
    assert words_of(await answer_to(client, accepted)) == "hello"


async def test_the_newest_of_several_comes_first(client: Client) -> None:
    """Each message is answered, whatever had begun when the next one came."""
    running = await client.messages.SendMessage(ask(FOREVER))
    sent = await asyncio.gather(*(interrupt(client, f"n{n}", running.session_id) for n in range(5)))
    for accepted in sent:
        ended = (await turn_ended(client, accepted)).turn_ended.turn
        assert ended.finish_reason in (FINISH_REASON_STOP, FINISH_REASON_ABORTED)
    turn = (await turn_ended(client, running)).turn_ended.turn
    assert turn.ended_by_message_id in {accepted.message_id for accepted in sent}
    await check_fold(client, running.session_id)


async def test_a_repeated_request_interrupts_once(client: Client) -> None:
    """The retry gets the first answer, and ends nothing."""
    running = await client.messages.SendMessage(ask(FOREVER))
    first = await interrupt(client, FOREVER, running.session_id, request_id=f"{running.turn_id}")
    await turn_ended(client, running)
    again = await interrupt(client, FOREVER, running.session_id, request_id=f"{running.turn_id}")
    assert (again.disposition, again.turn_id) == (DISPOSITION_DUPLICATE, first.turn_id)
    assert (await session_of(client, running.session_id)).active_turn_id == first.turn_id
    await client.messages.AbortSession(session_id=running.session_id)


async def test_a_stream_shows_the_turn_of_its_message(client: Client) -> None:
    """From the message to the end of its answer."""
    running = await client.messages.SendMessage(ask(PARTIAL))
    request = ask("now", running.session_id, busy_policy=BUSY_POLICY_INTERRUPT)
    events = [event async for answer in streamed(client, request) for event in answer.events]
    assert {e.turn_id for e in events if e.sequence} == {events[-1].turn_id}
    assert kinds(events)[-1] == "turn_ended"


async def test_a_turn_that_waits_for_a_client_tool_ends(client: Client) -> None:
    """The call has no result: it reads so."""
    running = await client.messages.SendMessage(ask("/tool look {}\n/step\nSeen.", tools=[tool("look")]))
    async with watching(client, running.session_id, after_sequence=running.sequence) as watch:
        await watch.until(lambda e: e.tool_call_updated.state.HasField("started_at"))
    await check_interrupted(client, running, await interrupt(client, "now", running.session_id))
    [call, _] = [m for m in await messages_of(client, running.session_id) if m.answers_message_id]
    assert [part.tool_use.status for part in call.parts if part.HasField("tool_use")] == ["error"]


@pytest.mark.slow
async def test_an_open_permission_request_is_closed(tmp_path: Path) -> None:
    """As cancelled; nobody can answer it any more."""
    async with mcp_client(tmp_path, stdio(tmp_path) + '[permissions]\n"test.*" = "ask"') as client:
        running = await client.messages.SendMessage(ask('/tool test.add {"a": 2, "b": 3}\n/step\nDone.'))
        async with watching(client, running.session_id, after_sequence=running.sequence) as watch:
            await watch.until_kind("permission_asked")
            now = await interrupt(client, "now", running.session_id)
            replied = await watch.until_kind("permission_replied")
            assert replied.permission_replied.response == PERMISSION_REPLY_CANCELLED
        await check_interrupted(client, running, now)
        listed = await client.permissions.ListPermissions(session_id=running.session_id)
        assert not listed.permissions


async def test_a_stored_message_interrupts(client: Client) -> None:
    """StartTurn has the same policies."""
    running = await client.messages.SendMessage(ask("words\n" + FOREVER))
    async with watching(client, running.session_id, after_sequence=running.sequence) as watch:
        await watch.until_text()
    appended = AppendMessageRequest(session_id=running.session_id, type=MESSAGE_TYPE_USER, parts=[text("late")])
    message_id = (await client.messages.AppendMessage(appended)).message_id
    start = StartTurnRequest(
        session_id=running.session_id,
        user_message_id=message_id,
        settings=TurnSettings(model=model_name("echo")),
        busy_policy=BUSY_POLICY_INTERRUPT,
    )
    started = await client.turns.StartTurn(start)
    by = SendMessageResponse(
        session_id=running.session_id, message_id=message_id, turn_id=started.turn.turn_id, sequence=started.sequence
    )
    await check_interrupted(client, running, by)


async def test_a_waiting_message_can_interrupt_later(client: Client) -> None:
    """An edit of its policy is as if it were sent again; back to QUEUE it only waits."""
    running = await client.messages.SendMessage(ask(FOREVER))
    first, second = [await client.messages.SendMessage(ask(n, running.session_id)) for n in ("one", "two")]

    def edit(accepted: SendMessageResponse, policy: int, **fields: Any) -> Any:
        request = EditQueuedMessageRequest(session_id=running.session_id, message_id=accepted.message_id, **fields)
        request.busy_policy = policy
        return client.turns.EditQueuedMessage(request)

    await edit(second, BUSY_POLICY_QUEUE, parts=[text("zwei")])
    queue = await client.turns.ListQueue(session_id=running.session_id)
    assert [one.message_id for one in queue.entries] == [first.message_id, second.message_id]
    edited = await edit(second, BUSY_POLICY_INTERRUPT)
    assert words_of(edited.message) == "zwei"
    await check_interrupted(client, running, second)
    await turn_ended(client, first)
    answered = [m for m in await messages_of(client, running.session_id) if m.answers_message_id]
    assert [words_of(m) for m in answered[-2:]] == ["zwei", "one"]


async def test_limits_count_what_interrupts(tmp_path: Path) -> None:
    """It waits until the turn before it has ended: a full queue refuses it, and nothing is ended."""
    limits = "[limits]\nmax_queued_messages = 1\n"
    for name in ("limits", "quotas"):
        (tmp_path / name).mkdir()
    async with running_server(tmp_path / "limits", limits) as server, connect(server.address) as client:
        running = await client.messages.SendMessage(ask(FOREVER))
        await client.messages.SendMessage(ask("waits", running.session_id))
        assert (await refused(interrupt(client, "now", running.session_id))).reason == "CONCURRENCY_LIMIT"
        assert (await session_of(client, running.session_id)).active_turn_id == running.turn_id
    async with (
        running_server(tmp_path / "quotas", "[quotas]\nmax_waiting_messages = 1\n") as server,
        connect(server.address) as client,
    ):
        running = await client.messages.SendMessage(ask(FOREVER))
        await client.messages.SendMessage(ask("waits", running.session_id))
        assert (await refused(interrupt(client, "now", running.session_id))).reason == "QUOTA_EXCEEDED"
        assert (await session_of(client, running.session_id)).active_turn_id == running.turn_id
