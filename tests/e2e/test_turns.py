"""Turns can be looked at while they run and after they have ended."""

import asyncio
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import FINISH_REASON_ABORTED, FINISH_REASON_STOP, MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import AppendMessageRequest, SendMessageResponse
from opencode.tool.tool_pb2 import SubmitToolResultRequest, ToolCallState
from opencode.turn.turn_pb2 import (
    BUSY_POLICY_QUEUE,
    TURN_STATUS_ENDED,
    TURN_STATUS_QUEUED,
    TURN_STATUS_RUNNING,
    TURN_STATUS_WAITING,
    GenerationOptions,
    Turn,
)
from opencode.turn.turn_service_pb2 import GetTurnRequest, ListTurnsRequest
from tests.support.clients.conversation import FOREVER, ask, model, refused, talk, text, tool, turn_ended, watching
from tests.support.servers.running import Client, connect, running_server
from turnwire.core.turns import session as session_turns


async def turn_of(client: Client, accepted: SendMessageResponse) -> Turn:
    """Returns the turn of a message."""
    request = GetTurnRequest(session_id=accepted.session_id, turn_id=accepted.turn_id)
    return (await client.turns.GetTurn(request)).turn


async def ids(client: Client, session_id: str, **fields: object) -> list[str]:
    """Returns the ids of a page of turns."""
    answer = await client.turns.ListTurns(session_id=session_id, **fields)
    return [turn.turn_id for turn in answer.turns]


async def waiting_call(client: Client, accepted: SendMessageResponse) -> ToolCallState:
    """Returns the call of a client's tool that a turn waits for."""
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        updated = await watch.until(lambda event: event.tool_call_updated.state.status == "pending")
    return updated.tool_call_updated.state


async def test_an_ended_turn_tells_what_its_last_event_told(client: Client) -> None:
    """Status, outcome, times and sequences; how it was answered only in GetTurn."""
    options = GenerationOptions(temperature=0.5, max_steps=3)
    accepted = await client.messages.SendMessage(
        ask("hello", system="", options=options, tools=[tool("look")], model=model("echo"))
    )
    ended = await turn_ended(client, accepted)
    turn = await turn_of(client, accepted)
    assert (turn.status, turn.finish_reason, turn.steps) == (TURN_STATUS_ENDED, FINISH_REASON_STOP, 1)
    assert (turn.user_message_id, turn.end_sequence) == (accepted.message_id, ended.sequence)
    assert accepted.sequence < turn.start_sequence < turn.end_sequence
    created, started, over = (time.ToNanoseconds() for time in (turn.create_time, turn.start_time, turn.end_time))
    assert created <= started <= over
    assert (turn.settings.model.model_id, turn.settings.agent) == ("echo", "default")
    assert (turn.settings.HasField("system"), turn.settings.system) == (True, "")
    assert [declared.name for declared in turn.settings.tools] == ["look"]
    assert turn.settings.options == options
    turn.ClearField("settings")
    assert ended.turn_ended.turn == turn
    (listed,) = (await client.turns.ListTurns(session_id=accepted.session_id)).turns
    assert listed == turn


async def test_a_turn_that_waits_for_a_client_says_so(client: Client) -> None:
    """The session counts what waits; turns behind it are queued, with their place told by the snapshot."""
    accepted = await client.messages.SendMessage(ask("/tool look {}", tools=[tool("look")]))
    session_id = accepted.session_id
    call = await waiting_call(client, accepted)
    queued = await client.messages.SendMessage(ask("next", session_id))
    turn = await turn_of(client, accepted)
    assert (turn.status, turn.steps, turn.HasField("end_time")) == (TURN_STATUS_WAITING, 0, False)
    behind = await turn_of(client, queued)
    assert (behind.status, behind.start_sequence, behind.HasField("start_time")) == (TURN_STATUS_QUEUED, 0, False)
    session = (await client.sessions.GetSession(session_id=session_id)).session
    assert (session.open_requests, session.queued_messages) == (1, 1)
    async with watching(client, session_id) as watch:
        snapshot = (await watch.until_kind("session_snapshot")).session_snapshot
    (entry,) = snapshot.queue
    assert (entry.message_id, entry.turn_id, entry.busy_policy) == (
        queued.message_id,
        queued.turn_id,
        BUSY_POLICY_QUEUE,
    )
    assert (snapshot.queue_revision, snapshot.session.open_requests) == (1, 1)
    assert await ids(client, session_id, statuses=[TURN_STATUS_WAITING]) == [accepted.turn_id]
    assert await ids(client, session_id, statuses=[TURN_STATUS_RUNNING]) == []
    assert await ids(client, session_id, statuses=[TURN_STATUS_QUEUED, TURN_STATUS_WAITING]) == [
        accepted.turn_id,
        queued.turn_id,
    ]
    result = SubmitToolResultRequest(session_id=session_id, tool_call_id=call.id, output="seen")
    await client.tools.SubmitToolResult(result)
    await turn_ended(client, queued)
    assert await ids(client, session_id, statuses=[TURN_STATUS_ENDED]) == [accepted.turn_id, queued.turn_id]
    after = await turn_of(client, queued)
    assert after.start_sequence > (await turn_of(client, accepted)).end_sequence
    assert after.start_time.ToNanoseconds() >= after.create_time.ToNanoseconds()


async def test_a_dropped_turn_never_started(client: Client) -> None:
    """It has an end and no start."""
    accepted = await client.messages.SendMessage(ask("/sleep 3600"))
    dropped = await client.messages.SendMessage(ask("never", accepted.session_id))
    await client.messages.AbortSession(session_id=accepted.session_id)
    turn = await turn_of(client, dropped)
    assert (turn.status, turn.finish_reason, turn.start_sequence) == (TURN_STATUS_ENDED, FINISH_REASON_ABORTED, 0)
    assert turn.end_sequence > 0


async def test_turns_come_in_pages_in_both_orders(client: Client) -> None:
    """The order is that of acceptance; each turn comes once."""
    session_id, told = "", list[str]()
    for number in range(5):
        accepted = await talk(client, str(number), session_id)
        session_id = accepted.session_id
        told.append(accepted.turn_id)
    for newest_first in (False, True):
        found, token = list[str](), ""
        for _ in range(3):
            request = ListTurnsRequest(session_id=session_id, page_size=2, page_token=token, newest_first=newest_first)
            page = await client.turns.ListTurns(request)
            found += [turn.turn_id for turn in page.turns]
            token = page.next_page_token
        assert (found, token) == (told[::-1] if newest_first else told, "")


async def test_what_is_not_there_is_refused(client: Client) -> None:
    """Sessions, turns, pages and statuses."""
    session_id = (await talk(client, "hi")).session_id
    other = await talk(client, "hi")
    for request, reason in (
        (GetTurnRequest(session_id="ses_none", turn_id="t"), "SESSION_NOT_FOUND"),
        (GetTurnRequest(session_id=session_id, turn_id="trn_none"), "TURN_NOT_FOUND"),
        (GetTurnRequest(session_id=session_id, turn_id=other.turn_id), "TURN_NOT_FOUND"),
    ):
        refusal = await refused(client.turns.GetTurn(request))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, reason)
    assert (await refused(client.turns.GetTurn())).fields == ["session_id", "turn_id"]
    assert (await refused(client.turns.ListTurns(session_id="ses_none"))).reason == ("SESSION_NOT_FOUND")
    for fields, field in (
        ({"page_token": "x"}, "page_token"),
        ({"page_size": 1001}, "page_size"),
        ({"statuses": [0]}, "statuses[0]"),
    ):
        wrong = ListTurnsRequest(session_id=session_id, **fields)
        assert (await refused(client.turns.ListTurns(wrong))).fields == [field]


@pytest.mark.slow
async def test_turns_outlive_their_events_and_the_server(tmp_path: Path) -> None:
    """The log forgets, the turn does not; the queue's revision goes on growing."""
    toml = "[storage]\nretained_events_per_session = 1\n"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        accepted = await client.messages.SendMessage(ask(FOREVER))
        await client.messages.SendMessage(ask("dropped", accepted.session_id))
        await client.messages.AbortSession(session_id=accepted.session_id)
        before = await turn_of(client, accepted)
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        note = AppendMessageRequest(session_id=accepted.session_id, type=MESSAGE_TYPE_HOST, parts=[text("noted")])
        await asyncio.gather(*(client.messages.AppendMessage(note) for _ in range(300)))
        async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
            await watch.until_kind("resync")
        assert await turn_of(client, accepted) == before
        async with watching(client, accepted.session_id) as watch:
            snapshot = (await watch.until_kind("session_snapshot")).session_snapshot
        assert snapshot.queue_revision == 2


@pytest.mark.slow
async def test_a_fault_behind_the_stored_end_of_a_turn_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session goes on, and can be deleted."""

    def fails(*_: object) -> None:
        raise RuntimeError("a bug")

    async with running_server(tmp_path) as server, connect(server.address) as client:
        monkeypatch.setattr(session_turns, "note_turn_end", fails)
        first = await client.messages.SendMessage(ask("one"))
        async with watching(client, first.session_id, after_sequence=first.sequence) as watch:
            await watch.until_turn_ended(first.turn_id)
        monkeypatch.undo()
        second = await client.messages.SendMessage(ask("two", first.session_id))
        async with watching(client, first.session_id, after_sequence=second.sequence) as watch:
            await watch.until_turn_ended(second.turn_id)
        await client.sessions.DeleteSession(session_id=first.session_id)
