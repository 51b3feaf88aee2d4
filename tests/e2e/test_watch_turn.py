"""The events of one turn, from its beginning or from a place, to its end."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import FINISH_REASON_ABORTED
from opencode.message.message_pb2 import SendMessageResponse
from opencode.tool.tool_pb2 import SubmitToolResultRequest
from opencode.turn.turn_pb2 import BUSY_POLICY_STEER
from opencode.turn.turn_service_pb2 import RemoveQueuedMessageRequest, WatchTurnRequest
from tests.support.clients.conversation import (
    FOREVER,
    answer_to,
    ask,
    kinds,
    refused,
    talk,
    tool,
    turn_ended,
    watching,
    words_of,
)
from tests.support.servers.running import Client, connect, running_server


class Stream:
    """One open WatchTurn call."""

    def __init__(self, client: Client, accepted: SendMessageResponse, **start: Any) -> None:
        """Calls."""
        request = WatchTurnRequest(session_id=accepted.session_id, turn_id=accepted.turn_id, **start)
        self.call = client.turns.WatchTurn(request)
        self.events: list[SessionEvent] = []
        self.token = ""

    async def batch(self) -> bool:
        """Reads one batch. Returns False at the end."""
        answer = await self.call.read()
        if answer is grpc.aio.EOF:
            return False
        assert answer.events
        self.events += answer.events
        self.token = answer.resume_token or self.token
        return True

    async def until_text(self) -> None:
        """Reads until the model has written something."""
        while not any(event.HasField("part_delta") for event in self.events):
            assert await self.batch()

    async def all(self) -> list[SessionEvent]:
        """Reads to the end."""
        while await self.batch():
            pass
        return self.events


def said(events: list[SessionEvent]) -> str:
    """Returns the text of all parts that were finished."""
    return "".join(event.part_finished.part.text.text for event in events)


async def test_a_turn_is_watched_to_its_end(client: Client) -> None:
    """From its turn_started on, whatever happens elsewhere in the session; its own events alone."""
    running = await client.messages.SendMessage(ask("/rate 50\n/words 10"))
    stream = Stream(client, running)
    await stream.batch()
    await client.messages.SendMessage(ask("later", running.session_id))
    events = await stream.all()
    assert (kinds(events)[0], kinds(events)[-1]) == ("turn_started", "turn_ended")
    assert {event.turn_id for event in events if event.sequence} == {running.turn_id}
    assert said(events) == words_of(await answer_to(client, running))


async def test_a_turn_that_has_ended_is_told_again(client: Client) -> None:
    """All of it; nothing when the caller has all of it."""
    done = await talk(client, "hello")
    stream = Stream(client, done)
    events = await stream.all()
    assert (kinds(events)[0], said(events), kinds(events)[-1]) == ("turn_started", "hello", "turn_ended")
    again = await Stream(client, done, after_sequence=events[0].sequence).all()
    assert [e.sequence for e in again if e.sequence] == [e.sequence for e in events[1:] if e.sequence]
    assert await Stream(client, done, after_sequence=events[-1].sequence).all() == []
    assert await Stream(client, done, resume_token=stream.token).all() == []


async def test_a_broken_stream_goes_on(client: Client) -> None:
    """Streaming text comes as a snapshot, and later text as deltas."""
    running = await client.messages.SendMessage(ask("/rate 50\n/words 40"))
    first = Stream(client, running)
    await first.until_text()
    first.call.cancel()
    second = Stream(client, running, resume_token=first.token)
    await second.until_text()
    assert kinds(second.events).index("message_snapshot") < kinds(second.events).index("part_delta")
    events = await second.all()
    assert said(events) == words_of(await answer_to(client, running))
    sequences = [event.sequence for event in (*first.events, *events) if event.sequence]
    assert sequences == sorted(set(sequences))


async def test_a_turn_that_waits(client: Client) -> None:
    """Its stream begins with what happens next: the turn, or its end when the message is taken back."""
    running = await client.messages.SendMessage(ask(FOREVER))
    one, two = [await client.messages.SendMessage(ask(words, running.session_id)) for words in ("one", "two")]
    streams = [Stream(client, accepted) for accepted in (one, two)]
    reading = [asyncio.create_task(stream.all()) for stream in streams]
    for stream in streams:
        await stream.call.initial_metadata()
    removal = RemoveQueuedMessageRequest(session_id=two.session_id, message_id=two.message_id)
    await client.turns.RemoveQueuedMessage(removal)
    await client.messages.AbortSession(session_id=running.session_id, keep_queue=True)
    heard = await asyncio.gather(*reading)
    assert "heartbeat" not in [*kinds(heard[0]), *kinds(heard[1])], "they opened when there was nothing to say yet"
    first, second = [[e for e in events if e.sequence] for events in heard]
    assert (kinds(first)[0], said(first), kinds(first)[-1]) == ("turn_started", "one", "turn_ended")
    assert kinds(second) == ["message_removed", "turn_ended"]
    assert second[-1].turn_ended.turn.finish_reason == FINISH_REASON_ABORTED
    assert kinds(await Stream(client, two).all()) == ["turn_ended"]


async def test_a_message_that_joined_another_turn(client: Client) -> None:
    """The stream of its turn is that of the turn that it joined, from then on; also when that was long ago."""
    running = await client.messages.SendMessage(ask("/tool look {}\n/step\nSeen.", tools=[tool("look")]))
    async with watching(client, running.session_id, after_sequence=running.sequence) as watch:
        called = await watch.until(lambda e: e.tool_call_updated.state.HasField("started_at"))
    sent = await client.messages.SendMessage(ask("Heard.", running.session_id, busy_policy=BUSY_POLICY_STEER))
    live = asyncio.create_task(Stream(client, sent, after_sequence=sent.sequence).all())
    result = SubmitToolResultRequest(session_id=sent.session_id, output="a cat")
    result.tool_call_id = called.tool_call_updated.state.id
    await client.tools.SubmitToolResult(result)
    await turn_ended(client, running)
    events = await live
    assert [e.turn_id for e in events if e.HasField("turn_ended")] == [sent.turn_id, running.turn_id]
    merged = next(e for e in events if e.HasField("turn_ended"))
    answered = said(events)
    assert answered
    assert said(await Stream(client, sent).all()) == answered
    rest = await Stream(client, sent, after_sequence=merged.sequence).all()
    assert (said(rest), {e.turn_id for e in rest if e.sequence}) == (answered, {running.turn_id})
    assert await Stream(client, sent, after_sequence=rest[-1].sequence).all() == []


@pytest.mark.slow
async def test_events_that_are_gone(tmp_path: Path) -> None:
    """The caller is told; from a later place the rest is there."""
    settings = "[storage]\nretained_events_per_session = 20\n"
    async with running_server(tmp_path, settings) as server, connect(server.address) as client:
        done = await talk(client, "hello")
        for _ in range(40):
            last = await talk(client, "more", done.session_id)
        assert (await refused(Stream(client, done).all())).reason == "EVENTS_COMPACTED"
        assert kinds(await Stream(client, last).all())[-1] == "turn_ended"


async def test_what_cannot_be_watched(client: Client) -> None:
    """Each refusal says what is wrong."""
    done = await talk(client, "hello")
    other = await talk(client, "hello")
    unknown = SendMessageResponse(session_id=done.session_id, turn_id=other.turn_id)
    assert (await refused(Stream(client, unknown).all())).reason == "TURN_NOT_FOUND"
    assert (await refused(Stream(client, SendMessageResponse()).all())).fields == ["session_id", "turn_id"]
    listed = await client.messages.ListMessages(session_id=other.session_id)
    for token in ("x", listed.resume_token):
        assert (await refused(Stream(client, done, resume_token=token).all())).reason == "INVALID_REQUEST"
    running = await client.messages.SendMessage(ask(FOREVER))
    assert (await refused(Stream(client, running, after_sequence=9999).all())).reason == "SEQUENCE_IN_FUTURE"
    await client.messages.AbortSession(session_id=running.session_id)
