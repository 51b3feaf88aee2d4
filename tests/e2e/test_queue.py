"""Messages that come while a turn runs."""

import asyncio
from pathlib import Path

import grpc
import pytest

from opencode.event.session_event_pb2 import EVENT_KIND_SESSION_STATUS_CHANGED
from opencode.message import content_pb2, message_pb2
from opencode.message.message_pb2 import GetMessageRequest
from tests.support.clients.conversation import (
    FOREVER,
    ask,
    displayed,
    messages_of,
    new_session,
    refused,
    session_of,
    talk,
    turn_ended,
    watching,
    words_of,
)
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.running import Client, connect, running_server


async def test_queued_message_waits(client: Client) -> None:
    """It is QUEUED, counts those before it, and the session shows how many wait."""
    first = await client.messages.SendMessage(ask(FOREVER))
    answers = [await client.messages.SendMessage(ask(f"n{n}", first.session_id)) for n in range(3)]
    assert {a.disposition for a in answers} == {message_pb2.DISPOSITION_QUEUED}
    assert [a.queue_position for a in answers] == [1, 2, 3]
    session = await session_of(client, first.session_id)
    assert (session.queued_messages, session.active_turn_id) == (3, first.turn_id)


async def test_queued_messages_come_last(client: Client) -> None:
    """GetMessages shows them behind the running answer, in their order, as QUEUED."""
    first = await client.messages.SendMessage(ask("/words 3\n" + FOREVER))
    for number in range(3):
        await client.messages.SendMessage(ask(f"n{number}", first.session_id))
    async with watching(client, first.session_id, after_sequence=first.sequence) as watch:
        await watch.until_text()
    shown = await displayed(client, first.session_id)
    assert [m.text_parts[0] for m in shown[2:]] == ["n0", "n1", "n2"]
    assert [m.status for m in shown] == [
        content_pb2.MESSAGE_STATUS_COMPLETE,
        content_pb2.MESSAGE_STATUS_STREAMING,
        *[content_pb2.MESSAGE_STATUS_QUEUED] * 3,
    ]


async def test_queue_is_first_in_first_out(client: Client) -> None:
    """Waiting messages are answered in the order in which they were accepted; the fold tells the same."""
    first = await client.messages.SendMessage(ask("/rate 100\n/words 20"))
    rest = [await client.messages.SendMessage(ask(f"n{n}", first.session_id)) for n in range(5)]
    fold = SessionFold(first.session_id)
    async with watching(client, first.session_id, fold, after_sequence=0) as watch:
        await watch.until_turn_ended(rest[-1].turn_id)
        await watch.until(lambda e: e.HasField("session_status_changed") and e.session_status_changed.status == 1)
    listed = await messages_of(client, first.session_id)
    assert [m.answers_message_id for m in listed if m.answers_message_id] == [a.message_id for a in (first, *rest)]
    assert [words_of(m) for m in listed[2:]] == [word for n in range(5) for word in (f"n{n}", f"n{n}")]
    assert comparable(fold.listed()) == comparable(listed)
    assert [m.previous_message_id for m in listed] == ["", *(m.message_id for m in listed[:-1])]


async def test_waiting_message_is_behind_no_other(client: Client) -> None:
    """Until its turn starts: then the last one of the conversation is before it, in reads and in events."""
    first = await client.messages.SendMessage(ask("one\n" + FOREVER))
    waiting = await client.messages.SendMessage(ask("two", first.session_id))
    one = GetMessageRequest(session_id=first.session_id, message_id=waiting.message_id)
    assert (await client.messages.GetMessage(one)).message.previous_message_id == ""
    async with watching(client, first.session_id, after_sequence=first.sequence) as watch:
        await watch.until_text()  # from now on it is part of what a watch begins with
    async with watching(client, first.session_id) as watch:
        snapshot = (await watch.until_kind("message_snapshot")).message_snapshot.message
        assert snapshot.previous_message_id == first.message_id
        await client.messages.AbortSession(session_id=first.session_id, keep_queue=True)
        await watch.until_turn_ended(waiting.turn_id)
    question, answer, note, waited, last = await messages_of(client, first.session_id)
    assert (snapshot.message_id, answer.previous_message_id) == (answer.message_id, question.message_id)
    assert (waited.message_id, waited.previous_message_id) == (waiting.message_id, note.message_id)
    assert (await client.messages.GetMessage(one)).message == waited
    finished = [e.message_finished.message for e in watch.events if e.HasField("message_finished")]
    assert [message.previous_message_id for message in finished] == [question.message_id, waiting.message_id]
    assert last.previous_message_id == waiting.message_id


async def test_queued_message_is_not_in_the_context(client: Client, tmp_path: Path) -> None:
    """The running turn's next step does not see it: the offline model counts the words of its prompt."""
    session_id = await new_session(client)
    running = "one\n/sleep 0.2\n/finish paused\n/step\ntwo"
    alone = await talk(client, running, await new_session(client))
    first = await client.messages.SendMessage(ask(running, session_id))
    await client.messages.SendMessage(ask("many more words that wait", session_id))
    await turn_ended(client, first)
    usages = []
    for accepted in (alone, first):
        listed = await messages_of(client, accepted.session_id)
        usages.append([m.usage for m in listed if m.answers_message_id == accepted.message_id])
    assert len(usages[0]) == 2
    assert usages[0] == usages[1]


async def test_session_stays_running_between_queued_turns(client: Client) -> None:
    """One running and one idle event frame all the turns that were waiting."""
    first = await client.messages.SendMessage(ask("/sleep 0.2"))
    rest = [await client.messages.SendMessage(ask(f"n{n}", first.session_id)) for n in range(3)]
    async with watching(client, first.session_id, after_sequence=0, kinds=[EVENT_KIND_SESSION_STATUS_CHANGED]) as watch:
        await turn_ended(client, rest[-1])
        await watch.until_kind("session_status_changed", 2)
    assert [e.session_status_changed.status for e in watch.events if e.sequence] == [2, 1]


async def test_queue_is_bounded(tmp_path: Path) -> None:
    """The message over max_queued_messages is refused with RetryInfo and not stored."""
    async with (
        running_server(tmp_path, "[limits]\nmax_queued_messages = 2") as server,
        connect(server.address) as client,
    ):
        first = await client.messages.SendMessage(ask(FOREVER))
        for _ in range(2):
            await client.messages.SendMessage(ask("wait", first.session_id))
        refusal = await refused(client.messages.SendMessage(ask("no room", first.session_id)))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT")
        assert {"QuotaFailure", "RetryInfo"} <= set(refusal.details)
        assert len([m for m in await messages_of(client, first.session_id) if not m.answers_message_id]) == 3


@pytest.mark.slow
async def test_sessions_do_not_wait_for_each_other(client: Client) -> None:
    """A turn that never ends holds up its own session only."""
    await client.messages.SendMessage(ask(FOREVER))
    answered = await asyncio.gather(*(talk(client, f"n{n}") for n in range(10)))
    assert len({a.session_id for a in answered}) == 10


async def test_turns_over_the_limit_wait_for_a_slot(tmp_path: Path) -> None:
    """With max_running_turns = 1 the second session is accepted, and answered once the first turn has ended."""
    async with running_server(tmp_path, "[limits]\nmax_running_turns = 1") as server, connect(server.address) as client:
        first = await client.messages.SendMessage(ask(FOREVER))
        second = await client.messages.SendMessage(ask("wait"))
        assert second.disposition == message_pb2.DISPOSITION_STARTED
        assert len(await messages_of(client, second.session_id)) == 1
        await client.messages.AbortSession(session_id=first.session_id)
        ended = await turn_ended(client, second)
        assert ended.turn_ended.turn.finish_reason == content_pb2.FINISH_REASON_STOP
