"""SubscribeGlobalEvents: the simple stream."""

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest

from opencode.event.event_pb2 import GlobalEvent, SubscribeGlobalEventsRequest
from opencode.session.session_pb2 import UpdateDirectoryRequest
from tests.support.clients.conversation import FOREVER, answer_to, ask, model, new_session, refused, tool, words_of
from tests.support.servers.running import Client, connect, running_server
from turnwire.feed import memory


class Subscription:
    """One open call with the events so far and when each came."""

    def __init__(self, call: Any) -> None:
        """Takes the running call."""
        self.call = call
        self.events: list[GlobalEvent] = []
        self.times: list[float] = []

    async def until(self, found: Callable[[GlobalEvent], bool]) -> GlobalEvent:
        """Reads until an event is the wanted one."""
        while True:
            event = await self.call.read()
            assert event is not grpc.aio.EOF
            self.events.append(event)
            self.times.append(time.monotonic())
            if found(event):
                return event

    async def until_finish(self, finish: str) -> GlobalEvent:
        """Reads until an assistant message ends so."""
        return await self.until(lambda e: e.message_updated.role == "assistant" and e.message_updated.finish == finish)


@contextlib.asynccontextmanager
async def subscribed(client: Client, *session_ids: str) -> AsyncIterator[Subscription]:
    """Opens a subscription that the server has begun to serve."""
    call = client.events.SubscribeGlobalEvents(session_ids=session_ids)
    try:
        await call.initial_metadata()
        yield Subscription(call)
    finally:
        call.cancel()


async def test_text_is_accumulated(client: Client) -> None:
    """Each update holds all of the text so far, and the last one all of it."""
    session_id = await new_session(client)
    async with subscribed(client) as stream:
        await client.messages.SendMessage(ask("ping", session_id))
        await stream.until_finish("stop")
        accepted = await client.messages.SendMessage(ask("/rate 60\n/words 60", session_id))
        await stream.until_finish("stop")
    answer = await answer_to(client, accepted)
    texts = [
        e.message_part_updated.text.text
        for e in stream.events
        if e.message_part_updated.message_id == answer.message_id
    ]
    assert len(texts) > 2
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert texts[-1] == words_of(answer)


@pytest.mark.slow
async def test_updates_of_a_part_are_few(client: Client) -> None:
    """At most 20 a second for each part, besides the last one, however fast the model is."""
    session_id = await new_session(client)
    async with subscribed(client, session_id) as stream:
        await client.messages.SendMessage(ask("/rate 1000\n/words 600", session_id))
        await stream.until_finish("stop")
    times = [t for e, t in zip(stream.events, stream.times, strict=True) if e.message_part_updated.text.text]
    span = times[-1] - times[1]
    assert span > 0.3
    assert len(times) <= span * 20 + 4


async def test_messages_are_told_when_stored_and_when_ended(client: Client) -> None:
    """user, assistant without finish, its part, assistant with finish; all with times and session."""
    session_id = await new_session(client)
    async with subscribed(client, session_id) as stream:
        accepted = await client.messages.SendMessage(ask("hello", session_id))
        await stream.until_finish("stop")
    updates = [e.message_updated for e in stream.events if e.HasField("message_updated")]
    assert [(u.role, u.finish, u.HasField("finish")) for u in updates] == [
        ("user", "", False),
        ("assistant", "", False),
        ("assistant", "stop", True),
    ]
    assert updates[0].message_id == accepted.message_id
    assert {u.session_id for u in updates} == {session_id}
    assert all(u.updated_at >= u.created_at > 0 for u in updates)
    assert updates[-1].tokens.output == 1


@pytest.mark.parametrize("model_id", ["error", "fail", "cut"])
async def test_broken_answers_finish_as_error(client: Client, model_id: str) -> None:
    """Failed, cut: "error"."""
    async with subscribed(client) as stream:
        await client.messages.SendMessage(ask("one two three", model=model(model_id)))
        await stream.until_finish("error")


async def test_aborted_answer_finishes_as_error(client: Client) -> None:
    """As the contract says of an aborted answer."""
    async with subscribed(client) as stream:
        accepted = await client.messages.SendMessage(ask("one\n" + FOREVER))
        await stream.until(
            lambda e: "one" in e.message_part_updated.text.text and e.message_part_updated.part_index == 0
        )
        await stream.until(lambda e: e.message_updated.role == "assistant" or e.HasField("message_part_updated"))
        await client.messages.AbortSession(session_id=accepted.session_id)
        await stream.until_finish("error")


@pytest.mark.own_server
async def test_directory_of_the_session_stands_beside(client: Client, tmp_path: Path) -> None:
    """It follows a change of the directory."""
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    session_id = await new_session(client, directory=one)
    async with subscribed(client) as stream:
        await client.messages.SendMessage(ask("hello", session_id))
        await stream.until_finish("stop")
        assert {e.directory for e in stream.events} == {one}
        await client.sessions.UpdateSessionDirectory(UpdateDirectoryRequest(session_id=session_id, directory=two))
        await client.messages.SendMessage(ask("hello", session_id))
        assert (await stream.until_finish("stop")).directory == two


@pytest.mark.slow
async def test_filter_by_session(client: Client) -> None:
    """Only events of the sessions that were named."""
    one, other, third = [await new_session(client) for _ in range(3)]
    async with subscribed(client, one, third, "ses_none") as stream:
        for session_id in (other, one, third):
            await client.messages.SendMessage(ask("hello", session_id))
        await stream.until_finish("stop")
        await stream.until_finish("stop")
    told = {e.message_updated.session_id or e.message_part_updated.session_id for e in stream.events}
    assert told == {one, third}


async def test_too_many_sessions_are_refused(client: Client) -> None:
    """INVALID_ARGUMENT on session_ids."""
    request = SubscribeGlobalEventsRequest(session_ids=["s"] * 1001)
    assert (await refused(client.events.SubscribeGlobalEvents(request).read())).fields == ["session_ids"]


async def test_tool_calls_are_told_with_their_result(client: Client) -> None:
    """The same part goes from pending to success."""
    async with subscribed(client) as stream:
        accepted = await client.messages.SendMessage(ask('/tool look {"a":1}', tools=[tool("look")]))
        pending = await stream.until(
            lambda e: (
                e.message_part_updated.tool.state.status == "pending" and e.message_part_updated.tool.state.started_at
            )
        )
        state = pending.message_part_updated.tool.state
        assert (state.name, state.input_json) == ("look", '{"a":1}')
        await client.tools.SubmitToolResult(session_id=accepted.session_id, tool_call_id=state.id, output="a cat")
        settled = await stream.until(lambda e: e.message_part_updated.tool.state.status == "success")
        assert settled.message_part_updated.tool.state.output == "a cat"
        await stream.until_finish("stop")


async def test_reasoning_is_told_apart(client: Client) -> None:
    """Reasoning has its own kind of part."""
    async with subscribed(client) as stream:
        await client.messages.SendMessage(ask("/reason let me think\nhello"))
        await stream.until_finish("stop")
    kinds = [e.message_part_updated.WhichOneof("part") for e in stream.events if e.HasField("message_part_updated")]
    assert "reasoning" in kinds
    assert kinds[-1] == "text"


async def test_subscription_starts_with_what_streams(client: Client) -> None:
    """The growing part comes at once, as far as it is."""
    accepted = await client.messages.SendMessage(ask("already here\n/rate 0.1\n/words 2"))
    async with subscribed(client) as stream:
        await stream.until(lambda e: "already here" in e.message_part_updated.text.text)
    await client.messages.AbortSession(session_id=accepted.session_id)


@pytest.mark.slow
async def test_subscription_behind_the_ring_ends_with_the_whole_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that is too slow for the feed gets fewer updates, and every end."""
    monkeypatch.setattr(memory, "TENANT_RING_BYTES", 400)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client)
        async with subscribed(client) as stream:
            for _ in range(3):
                accepted = await client.messages.SendMessage(ask("/words 3000\n/sleep 0.06\n/words 300", session_id))
                await stream.until_finish("stop")
                answer = await answer_to(client, accepted)
                last = {
                    e.message_part_updated.part_index: e.message_part_updated.text.text
                    for e in stream.events
                    if e.message_part_updated.message_id == answer.message_id
                }
                assert "".join(last.values()) == words_of(answer)


@pytest.mark.slow
async def test_subscription_far_behind_is_told_every_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight models at full speed overrun the ring again and again, also while the log is read; no end is missed."""
    monkeypatch.setattr(memory, "TENANT_RING_BYTES", 400)
    async with running_server(tmp_path) as server, connect(server.address) as client, subscribed(client) as stream:
        accepted = [await client.messages.SendMessage(ask("/words 4000\n/sleep 0.01\n/words 10")) for _ in range(8)]
        left = {a.session_id for a in accepted}
        while left:
            left.discard((await stream.until_finish("stop")).message_updated.session_id)
