"""AbortSession."""

import asyncio
from pathlib import Path

import pytest

from opencode.message.content_pb2 import (
    FINISH_REASON_ABORTED,
    FINISH_REASON_STOP,
    MESSAGE_STATUS_INTERRUPTED,
    MESSAGE_TYPE_HOST,
    MESSAGE_TYPE_USER,
    PART_STATUS_INTERRUPTED,
)
from opencode.message.message_pb2 import AbortSessionResponse
from opencode.session.session_pb2 import SESSION_STATUS_IDLE
from tests.support.clients.conversation import (
    FOREVER,
    answer_to,
    ask,
    displayed,
    kinds,
    messages_of,
    new_session,
    session_of,
    talk,
    tool,
    turn_ended,
    watching,
    words_of,
)
from tests.support.oracles.fold import SessionFold, comparable
from tests.support.servers.running import Client, connect, running_server

PARTIAL = "/rate 100\n/words 60000"


async def abort(client: Client, session_id: str, **fields: object) -> AbortSessionResponse:
    """Aborts what runs in a session."""
    return await client.messages.AbortSession(session_id=session_id, **fields)


async def test_abort_keeps_the_text_so_far(client: Client) -> None:
    """The message reads INTERRUPTED and ABORTED with what a watcher had seen."""
    accepted = await client.messages.SendMessage(ask(PARTIAL))
    fold = SessionFold(accepted.session_id)
    async with watching(client, accepted.session_id, fold, after_sequence=0) as watch:
        await watch.until_text(" ")
    assert await abort(client, accepted.session_id) == AbortSessionResponse(turn_id=accepted.turn_id)
    answer = await answer_to(client, accepted)
    assert (answer.status, answer.finish_reason) == (MESSAGE_STATUS_INTERRUPTED, FINISH_REASON_ABORTED)
    assert words_of(answer).startswith(fold.text(answer.message_id))
    assert answer.parts[0].status == PART_STATUS_INTERRUPTED
    assert (await session_of(client, accepted.session_id)).status == SESSION_STATUS_IDLE


async def test_abort_ends_the_turn_once(client: Client) -> None:
    """Exactly one turn_ended, the last event of the turn; the fold equals the store."""
    accepted = await client.messages.SendMessage(ask(PARTIAL))
    fold = SessionFold(accepted.session_id)
    async with watching(client, accepted.session_id, fold, after_sequence=0) as watch:
        await watch.until_text()
        await abort(client, accepted.session_id)
        await talk(client, "next", accepted.session_id)
        await watch.until(lambda e: e.HasField("turn_ended") and e.turn_id != accepted.turn_id)
    of_turn = [e for e in watch.events if e.turn_id == accepted.turn_id]
    assert kinds(of_turn).count("turn_ended") == 1
    assert kinds(of_turn)[-1] == "turn_ended"
    assert of_turn[-1].turn_ended.turn.finish_reason == FINISH_REASON_ABORTED
    assert comparable(fold.listed()) == comparable(await messages_of(client, accepted.session_id))


async def test_second_abort_does_nothing(client: Client) -> None:
    """Twice in a row answers the turn and then nothing, without an event."""
    accepted = await client.messages.SendMessage(ask(PARTIAL))
    assert (await abort(client, accepted.session_id)).turn_id == accepted.turn_id
    head = (await session_of(client, accepted.session_id)).head_sequence
    assert await abort(client, accepted.session_id) == AbortSessionResponse()
    assert (await session_of(client, accepted.session_id)).head_sequence == head


async def test_concurrent_aborts_agree(client: Client) -> None:
    """Ten at once all answer, and there is one turn_ended."""
    accepted = await client.messages.SendMessage(ask(PARTIAL))
    answers = await asyncio.gather(*(abort(client, accepted.session_id) for _ in range(10)))
    assert {a.turn_id for a in answers} <= {accepted.turn_id, ""}
    async with watching(client, accepted.session_id, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    assert kinds(watch.events).count("turn_ended") == 1


async def test_abort_of_an_idle_session_does_nothing(client: Client) -> None:
    """The answer is empty."""
    assert await abort(client, await new_session(client)) == AbortSessionResponse()


async def test_expected_turn_guards_the_next_one(client: Client) -> None:
    """Another running turn than the expected one is left alone, with its queue."""
    old = await talk(client, "old")
    running = await client.messages.SendMessage(ask(FOREVER, old.session_id))
    await client.messages.SendMessage(ask("waits", old.session_id))
    assert await abort(client, old.session_id, expected_turn_id=old.turn_id) == AbortSessionResponse()
    session = await session_of(client, old.session_id)
    assert (session.active_turn_id, session.queued_messages) == (running.turn_id, 1)
    assert (await abort(client, old.session_id, expected_turn_id=running.turn_id)).turn_id == running.turn_id


async def test_abort_drops_the_queue(client: Client) -> None:
    """Dropped ids come in queue order; each has message_removed and one turn_ended ABORTED."""
    first = await client.messages.SendMessage(ask(FOREVER))
    waiting = [await client.messages.SendMessage(ask(f"n{n}", first.session_id)) for n in range(3)]
    answer = await abort(client, first.session_id)
    assert list(answer.dropped_message_ids) == [a.message_id for a in waiting]
    fold = SessionFold(first.session_id)
    async with watching(client, first.session_id, fold, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    removed = [e.message_removed.message_id for e in watch.events if e.HasField("message_removed")]
    assert removed == list(answer.dropped_message_ids)
    assert fold.ended_turns == {a.turn_id: FINISH_REASON_ABORTED for a in (first, *waiting)}
    assert comparable(fold.listed()) == comparable(await messages_of(client, first.session_id))
    assert not set(removed) & {m.message_id for m in await displayed(client, first.session_id)}
    assert (await session_of(client, first.session_id)).status == SESSION_STATUS_IDLE


async def test_keep_queue_starts_the_next(client: Client) -> None:
    """Waiting messages stay and are answered."""
    first = await client.messages.SendMessage(ask(FOREVER))
    waiting = [await client.messages.SendMessage(ask(f"n{n}", first.session_id)) for n in range(2)]
    answer = await abort(client, first.session_id, keep_queue=True)
    assert answer == AbortSessionResponse(turn_id=first.turn_id)
    for accepted in waiting:
        assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_STOP


async def test_message_after_abort_is_answered(client: Client) -> None:
    """A session is usable at once."""
    first = await client.messages.SendMessage(ask(PARTIAL))
    await abort(client, first.session_id)
    again = await talk(client, "again", first.session_id)
    assert words_of(await answer_to(client, again)) == "again"


async def test_abort_while_a_client_tool_is_awaited(client: Client) -> None:
    """The call is settled with an error, the turn reads ABORTED, the next message works."""
    accepted = await client.messages.SendMessage(ask('/tool look {"a":1}', tools=[tool("look")]))
    async with watching(client, accepted.session_id, after_sequence=0) as watch:
        await watch.until_kind("tool_call_updated")
    await abort(client, accepted.session_id)
    assert (await turn_ended(client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_ABORTED
    (call,) = (await displayed(client, accepted.session_id))[1].tool_calls
    assert call.status in ("error", "cancelled")
    assert call.error
    again = await talk(client, "again", accepted.session_id)
    assert words_of(await answer_to(client, again)) == "again"


async def test_abort_while_waiting_for_a_slot(tmp_path: Path) -> None:
    """A turn that has not got its slot ends ABORTED without an answer and does not take the slot later."""
    async with running_server(tmp_path, "[limits]\nmax_running_turns = 1") as server, connect(server.address) as client:
        first = await client.messages.SendMessage(ask(FOREVER))
        second = await client.messages.SendMessage(ask("wait"))
        assert (await abort(client, second.session_id)).turn_id == second.turn_id
        types = [message.type for message in await messages_of(client, second.session_id)]
        assert types == [MESSAGE_TYPE_USER, MESSAGE_TYPE_HOST]
        await abort(client, first.session_id)
        third = await talk(client, "free again", second.session_id)
        assert words_of(await answer_to(client, third)) == "free again"


@pytest.mark.matrix
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 30])
async def test_abort_at_any_moment_leaves_one_end(client: Client, turns: int) -> None:
    """However early an abort comes, the turn has one end and the fold equals the store."""
    accepted = await client.messages.SendMessage(ask("/words 400\n/sleep 0.01\n/words 400"))
    for _ in range(turns):
        await asyncio.sleep(0)
    await abort(client, accepted.session_id)
    again = await talk(client, "again", accepted.session_id)
    fold = SessionFold(accepted.session_id)
    async with watching(client, accepted.session_id, fold, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    assert comparable(fold.listed()) == comparable(await messages_of(client, accepted.session_id))
    assert len(fold.ended_turns) == 2
    assert words_of(await answer_to(client, again)) == "again"


@pytest.mark.slow
async def test_reading_while_an_abort_is_written_changes_nothing(client: Client) -> None:
    """However many reads fall into the commit that ends the turn, the answer stays INTERRUPTED."""

    async def one(number: int) -> int:
        accepted = await client.messages.SendMessage(ask("/rate 3000\n/words 60000"))
        async with watching(client, accepted.session_id, after_sequence=0) as watch:
            await watch.until_text()
        aborting = asyncio.ensure_future(abort(client, accepted.session_id))
        await asyncio.sleep(number * 0.0002)  # varies the moment of the first read; nothing is waited for
        while not aborting.done():
            await client.messages.GetMessages(session_id=accepted.session_id)
        await talk(client, "again", accepted.session_id)
        return (await displayed(client, accepted.session_id))[1].status

    statuses = await asyncio.gather(*map(one, range(20)))
    assert statuses == [MESSAGE_STATUS_INTERRUPTED] * 20


@pytest.mark.slow
async def test_reading_during_an_abort_has_all_that_was_watched(client: Client) -> None:
    """A read that falls into the end of a turn still has the text that a watcher held before."""

    async def one(number: int) -> list[int]:
        accepted = await client.messages.SendMessage(ask("/rate 3000\n/words 60000"))
        fold = SessionFold(accepted.session_id)
        missing = []
        async with watching(client, accepted.session_id, fold, after_sequence=0) as watch:
            await watch.until_text()
            aborting = asyncio.ensure_future(abort(client, accepted.session_id))
            await asyncio.sleep(number * 0.0002)  # varies the moment of the first read; nothing is waited for
            while not aborting.done():
                await watch.batch()
                held = words_of(fold.listed()[1])
                read = words_of((await messages_of(client, accepted.session_id))[1])
                if not read.startswith(held):
                    missing.append(len(held) - len(read))
        return missing

    assert [gap for gaps in await asyncio.gather(*map(one, range(20))) for gap in gaps] == []
