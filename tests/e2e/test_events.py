"""WatchEvents: whoever watches, however often the connection breaks, ends with what is stored."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import pytest

from opencode.event.event_pb2 import DELTA_MODE_NONE, WatchEventsRequest
from opencode.event.session_event_pb2 import (
    EVENT_KIND_MESSAGE_ADDED,
    EVENT_KIND_TURN_ENDED,
    RESYNC_REASON_PRUNED,
    EventKind,
    SessionEvent,
)
from opencode.message.content_pb2 import MESSAGE_STATUS_INTERRUPTED, MESSAGE_TYPE_HOST
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.session.session_pb2 import SESSION_STATUS_IDLE, SessionSettings
from tests.support.clients.conversation import (
    FOREVER,
    answer_to,
    ask,
    kinds,
    messages_of,
    model,
    new_session,
    refused,
    session_of,
    streamed,
    talk,
    text,
    tool,
    turn_ended,
    watching,
    words_of,
)
from tests.support.oracles.fold import Fold, SessionFold, comparable
from tests.support.servers.running import Client, connect, running_server
from turnwire.feed import memory

SCRIPTS = (
    "/rate 1500\n/words 500",
    "/reason thinking it over\n/rate 900\n/words 200\nand my own words",
    "/words 3000\n/sleep 0.1\n/words 500",
    '/rate 600\n/words 40\n/tool nowhere {"a": [1, 2]}\n/words 40\n/step\n/rate 800\n/words 200',
    "/rate 800\n/words 300\n/error failed",
    "/rate 800\n/words 300\n/cut 40",
)


async def test_every_position_can_be_resumed(client: Client) -> None:
    """After each sequence of an ended session come exactly the events behind it."""
    session_id = (await talk(client, "one", model=model("reasoning"))).session_id
    await talk(client, "/tool none {}\ntwo", session_id)
    async with watching(client, session_id, SessionFold(session_id), after_sequence=0) as watch:
        await watch.until_kind("caught_up")
    durable = [event for event in watch.events if event.sequence]
    for after in range(len(durable) + 1):
        async with watching(client, session_id, after_sequence=after) as watch:
            await watch.until_kind("caught_up")
        assert [event for event in watch.events if event.sequence] == durable[after:]


async def test_live_events_equal_stored_ones(client: Client) -> None:
    """Durable events read live and read again later are the same, byte for byte."""
    session_id = await new_session(client)
    async with watching(client, session_id, SessionFold(session_id), after_sequence=0) as live:
        await live.until_kind("caught_up")
        accepted = await client.messages.SendMessage(ask(SCRIPTS[3], session_id))
        await live.until_turn_ended(accepted.turn_id)
        await live.until_kind("session_status_changed", 2)
    async with watching(client, session_id, SessionFold(session_id), after_sequence=0) as later:
        await later.until_kind("caught_up")
    assert [e for e in live.events if e.sequence] == [e for e in later.events if e.sequence]


async def test_text_of_deltas_is_the_stored_text(client: Client) -> None:
    """A live watcher that only appends deltas holds the answer before part_finished."""
    session_id = await new_session(client)
    fold = SessionFold(session_id)
    async with watching(client, session_id, fold, after_sequence=0) as watch:
        await watch.until_kind("caught_up")
        accepted = await client.messages.SendMessage(ask("/rate 2000\n/words 200", session_id))
        finished = await watch.until_kind("part_finished")
    deltas = "".join(e.part_delta.text for e in watch.events if e.HasField("part_delta"))
    assert deltas == finished.part_finished.part.text.text
    assert fold.waited == 0
    assert fold.deltas > 10
    assert words_of(await answer_to(client, accepted)) == deltas


async def test_watch_without_position_begins_now(client: Client) -> None:
    """It brings the session and what streams, then live events; nothing of the past."""
    session_id = (await talk(client, "past")).session_id
    accepted = await client.messages.SendMessage(ask("/rate 200\n/words 100", session_id))
    async with watching(client, session_id, after_sequence=accepted.sequence) as watch:
        await watch.until_text()
    fold = SessionFold(session_id, None)
    async with watching(client, session_id, fold) as watch:
        await watch.until_turn_ended(accepted.turn_id)
    assert kinds(watch.events)[:3] == ["session_snapshot", "message_snapshot", "caught_up"]
    answer = await answer_to(client, accepted)
    assert fold.text(answer.message_id) == words_of(answer)
    assert comparable(fold.listed()) == comparable([answer])


async def test_watch_without_deltas_has_whole_parts(client: Client) -> None:
    """No part_started and no part_delta; the fold equals the store all the same."""
    session_id = await new_session(client)
    fold = SessionFold(session_id)
    async with watching(client, session_id, fold, after_sequence=0, delta_mode=DELTA_MODE_NONE) as watch:
        await watch.until_kind("caught_up")
        accepted = await client.messages.SendMessage(ask(SCRIPTS[1], session_id))
        await watch.until_turn_ended(accepted.turn_id)
    assert not {"part_delta", "part_started"} & set(kinds(watch.events))
    assert comparable(fold.listed()) == comparable(await messages_of(client, session_id))


@pytest.mark.parametrize("live", [True, False])
async def test_kinds_filter_durable_events(client: Client, live: bool) -> None:
    """Only those kinds come, live and replayed alike."""
    wanted = [EVENT_KIND_TURN_ENDED, EVENT_KIND_MESSAGE_ADDED]
    session_id = await new_session(client)
    if not live:
        await talk(client, "one", session_id)
    fold = SessionFold(session_id, filtered=True)
    async with watching(client, session_id, fold, after_sequence=0, delta_mode=DELTA_MODE_NONE, kinds=wanted) as watch:
        await watch.until_kind("caught_up")
        if live:
            await talk(client, "one", session_id)
        await watch.until_kind("turn_ended")
    assert kinds([e for e in watch.events if e.sequence]) == ["message_added", "message_added", "turn_ended"]


async def test_sequence_after_the_newest_is_out_of_range(client: Client) -> None:
    """SEQUENCE_IN_FUTURE with earliest and latest."""
    session_id = await new_session(client)
    request = WatchEventsRequest(session_id=session_id, after_sequence=2)
    refusal = await refused(client.events.WatchEvents(request).read())
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.OUT_OF_RANGE, "SEQUENCE_IN_FUTURE")
    assert {"earliestSequence", "latestSequence"} <= set(refusal.metadata)


async def test_every_answer_about_a_session_can_be_watched_from(client: Client) -> None:
    """Its token leads to where its sequence leads."""
    sent = await client.messages.SendMessage(ask("/tool look {}", request_id="one", tools=[tool("look")]))
    session_id = sent.session_id
    async with watching(client, session_id, after_sequence=sent.sequence) as watch:
        call = (await watch.until(lambda e: e.tool_call_updated.state.status == "pending")).tool_call_updated.state
    again = await client.messages.SendMessage(ask("/tool look {}", request_id="one", tools=[tool("look")]))
    submitted = await client.tools.SubmitToolResult(session_id=session_id, tool_call_id=call.id, output="rain")
    await turn_ended(client, sent)
    note = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=[text("note")])
    appended = await client.messages.AppendMessage(note)
    listed = await client.messages.ListMessages(session_id=session_id)
    got = await client.sessions.GetSession(session_id=session_id)
    streamed_ = [r async for r in streamed(client, ask("one more", session_id))]
    answers = (sent, again, submitted, appended, listed, streamed_[0].accepted)
    places = [*((a.sequence, a.resume_token) for a in answers), (got.session.head_sequence, got.resume_token)]
    for sequence, token in places:
        found = []
        for start in ({"after_sequence": sequence}, {"resume_token": token}):
            async with watching(client, session_id, **start) as watch:
                await watch.until_kind("caught_up")
            found.append([event for event in watch.events if event.sequence])
        assert found[0] == found[1]
        assert found[0][0].sequence == sequence + 1
    async with watching(client, session_id, resume_token=streamed_[-1].resume_token) as watch:
        await watch.until_kind("caught_up")
    assert not [event for event in watch.events if event.turn_id == streamed_[0].accepted.turn_id]


async def test_tokens_of_elsewhere_are_refused(client: Client) -> None:
    """A token of another session, of all sessions where one is watched or the reverse, or no token at all is."""
    one, two = [(await talk(client, "hi")).session_id for _ in range(2)]
    tokens = {}
    for session_id in (one, two, ""):
        async with watching(client, session_id) as watch:
            await watch.until_kind("caught_up")
        tokens[session_id] = watch.token
    wrong = [(one, tokens[two]), (one, tokens[""]), ("", tokens[one])]
    wrong += [(one, f"x{tokens[one][1:]}"), (one, tokens[one][:-1]), (one, "nonsense"), (one, "ä"), (one, "")]
    for session_id, token in wrong:
        request = WatchEventsRequest(session_id=session_id, resume_token=token)
        refusal = await refused(client.events.WatchEvents(request).read())
        assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["resume_token"])


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"after_sequence": 1}, "after_sequence"),
        ({"from_beginning": False}, "from_beginning"),
        ({"kinds": [EVENT_KIND_TURN_ENDED, SessionEvent.PART_DELTA_FIELD_NUMBER]}, "kinds[1]"),
        ({"kinds": [EventKind.EVENT_KIND_UNSPECIFIED]}, "kinds[0]"),
    ],
)
async def test_wrong_watches_are_refused(client: Client, fields: dict[str, object], field: str) -> None:
    """INVALID_ARGUMENT on the field."""
    refusal = await refused(client.events.WatchEvents(**fields).read())
    assert (refusal.code, refusal.fields) == (grpc.StatusCode.INVALID_ARGUMENT, [field])


async def test_unknown_session_is_not_found(client: Client) -> None:
    """NOT_FOUND, SESSION_NOT_FOUND."""
    refusal = await refused(client.events.WatchEvents(session_id="ses_none").read())
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")


async def test_caught_up_names_the_head(client: Client) -> None:
    """It is the session's newest sequence, and comes once."""
    session_id = (await talk(client, "one")).session_id
    async with watching(client, session_id, SessionFold(session_id), after_sequence=0) as watch:
        caught_up = await watch.until_kind("caught_up")
    assert caught_up.caught_up.head_sequence == (await session_of(client, session_id)).head_sequence
    assert kinds(watch.events)[-1] == "caught_up"


async def test_heartbeat_after_silence(tmp_path: Path) -> None:
    """A silent watch gets heartbeats with the head, of one session and of all."""
    async with (
        running_server(tmp_path, "[server]\nheartbeat_seconds = 0.05") as server,
        connect(server.address) as client,
    ):
        session_id = (await talk(client, "one")).session_id
        fold = SessionFold(session_id)
        async with watching(client, session_id, fold, after_sequence=0) as watch, watching(client) as of_all:
            await watch.until_kind("heartbeat", 3)
            beat = await of_all.until_kind("heartbeat")
        assert fold.heartbeats[-1] == (await session_of(client, session_id)).head_sequence
        assert (beat.session_id, beat.heartbeat.HasField("head_sequence")) == ("", False)


async def test_deletion_ends_the_watch_of_the_session(client: Client) -> None:
    """session_deleted is the last event, then the stream ends in order."""
    session_id = (await talk(client, "one")).session_id
    async with watching(client, session_id, SessionFold(session_id), after_sequence=0) as watch:
        await watch.until_kind("caught_up")
        await client.sessions.DeleteSession(session_id=session_id)
        while await watch.batch():
            pass
        assert await watch.call.code() == grpc.StatusCode.OK
    assert kinds(watch.events)[-1] == "session_deleted"


async def test_deletion_shows_in_the_watch_of_all(client: Client) -> None:
    """Live and replayed: the last event of a deleted session stays in the log."""
    session_id = (await talk(client, "one")).session_id
    async with watching(client) as live:
        await live.until_kind("caught_up")
        await client.sessions.DeleteSession(session_id=session_id)
        deleted = await live.until_kind("session_deleted")
    async with watching(client, from_beginning=True) as later:
        await later.until_kind("caught_up")
    assert [e for e in later.events if e.session_id == session_id] == [deleted]


async def test_too_many_watchers_are_refused(tmp_path: Path) -> None:
    """RESOURCE_EXHAUSTED with RetryInfo; a place is free again as soon as a watcher has left."""
    async with running_server(tmp_path, "[limits]\nmax_watchers = 2") as server, connect(server.address) as client:
        async with watching(client) as one, watching(client) as two:
            await asyncio.gather(one.until_kind("caught_up"), two.until_kind("caught_up"))
            refusal = await refused(client.events.WatchEvents().read())
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "CONCURRENCY_LIMIT")
            assert {"QuotaFailure", "RetryInfo"} <= set(refusal.details)
        while True:
            async with watching(client) as three:
                try:
                    await three.until_kind("caught_up")
                    break
                except grpc.aio.AioRpcError as error:  # the server has not heard yet that the others left
                    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.slow
@pytest.mark.parametrize("of_all", [False, True])
async def test_watcher_behind_the_ring_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_all: bool
) -> None:
    """With a tiny ring every watcher falls behind; each still folds to the stored messages."""
    monkeypatch.setattr(memory, "SESSION_RING_BYTES", 300)
    monkeypatch.setattr(memory, "TENANT_RING_BYTES", 300)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client)
        all_fold = Fold()
        fold = all_fold.sessions[session_id] = SessionFold(session_id, 1)
        async with watching(client, "" if of_all else session_id) as watch:
            await watch.until_kind("caught_up")
            accepted = [await client.messages.SendMessage(ask(script, session_id)) for script in SCRIPTS[1:4]]
            while accepted[-1].turn_id not in fold.ended_turns:
                for event in await watch.batch():
                    all_fold.apply(event)
        assert comparable(fold.listed()) == comparable(await messages_of(client, session_id))
        assert fold.waited == 0


@pytest.mark.slow
@pytest.mark.parametrize("ring_bytes", [8192, memory.SESSION_RING_BYTES])
async def test_slow_watcher_gets_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ring_bytes: int) -> None:
    """A watcher that reads one batch and then sleeps through megabytes slows nobody and misses no event."""
    monkeypatch.setattr(memory, "SESSION_RING_BYTES", ring_bytes)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        session_id = await new_session(client)
        fold = SessionFold(session_id)
        async with connect(server.address) as slow, watching(slow, session_id, fold, after_sequence=0) as watch:
            await watch.until_kind("caught_up")
            accepted = await client.messages.SendMessage(ask("/words 30000", session_id))
            await watch.batch()
            await turn_ended(client, accepted)
            await watch.until_turn_ended(accepted.turn_id)
        assert comparable(fold.listed()) == comparable(await messages_of(client, session_id))


async def append(client: Client, session_id: str, count: int) -> None:
    """Stores host messages: one event each."""
    request = AppendMessageRequest(session_id=session_id, type=MESSAGE_TYPE_HOST, parts=[text("note")])
    await asyncio.gather(*(client.messages.AppendMessage(request) for _ in range(count)))


@pytest.mark.slow
async def test_dropped_position_resets(tmp_path: Path) -> None:
    """A position that is no longer kept brings resync with the oldest one, a snapshot, then live events."""
    toml = "[storage]\nretained_events_per_session = 10"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        session_id = await new_session(client)
        await append(client, session_id, 300)
        head = (await session_of(client, session_id)).head_sequence
        fold = SessionFold(session_id, 5)
        async with watching(client, session_id, fold, after_sequence=5) as watch:
            await watch.until_kind("caught_up")
            await append(client, session_id, 1)
            await watch.until_kind("message_added")
        assert kinds(watch.events) == ["resync", "session_snapshot", "caught_up", "message_added"]
        assert fold.resyncs == [RESYNC_REASON_PRUNED]
        assert fold.caught_up == [head]
        earliest = 5
        while fold.resyncs:  # until pruning, which goes on beside the calls, has ended
            assert earliest < fold.earliest <= head + 1 - 10
            earliest = fold.earliest
            fold = SessionFold(session_id, earliest)
            async with watching(client, session_id, fold, after_sequence=earliest) as watch:
                await watch.until_kind("caught_up")
        assert watch.events[0].sequence == earliest + 1


@pytest.mark.slow
async def test_a_pruned_session_is_the_only_one_to_be_read_anew(tmp_path: Path) -> None:
    """A watcher of all sessions gets resync of that session, and every event of the others."""
    toml = "[storage]\nretained_events_per_session = 10"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        quiet, busy = await new_session(client), await new_session(client)
        fold = Fold()
        async with watching(client, from_beginning=True) as watch:
            await watch.until_kind("caught_up")
        for event in watch.events:
            fold.apply(event)
        await append(client, busy, 300)
        await append(client, quiet, 3)
        async with watching(client, resume_token=watch.token) as later:
            await later.until_kind("caught_up")
        resync = later.events[0]
        assert (resync.session_id, resync.resync.reason) == (busy, RESYNC_REASON_PRUNED)
        assert resync.resync.earliest_sequence > 5
        for event in later.events:
            fold.apply(event)
        assert kinds(later.events).count("resync") == 1
        assert comparable(fold.sessions[quiet].listed()) == comparable(await messages_of(client, quiet))
        assert (fold.resyncs, fold.sessions[busy].resyncs) == ([], [RESYNC_REASON_PRUNED])
        for start in ({"resume_token": watch.token}, {"from_beginning": True}):
            request = WatchEventsRequest(fail_if_compacted=True, **start)
            refusal = await refused(client.events.WatchEvents(request).read())
            assert (refusal.reason, refusal.metadata) == ("EVENTS_COMPACTED", {"resyncReason": "PRUNED"})


@pytest.mark.slow
async def test_dropped_position_fails_when_asked_to(tmp_path: Path) -> None:
    """fail_if_compacted answers OUT_OF_RANGE with the oldest and the newest."""
    toml = "[storage]\nretained_events_per_session = 10"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        session_id = await new_session(client)
        await append(client, session_id, 300)
        request = WatchEventsRequest(session_id=session_id, after_sequence=5, fail_if_compacted=True)
        refusal = await refused(client.events.WatchEvents(request).read())
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.OUT_OF_RANGE, "EVENTS_COMPACTED")
        assert int(refusal.metadata["earliestSequence"]) > 5


@pytest.mark.slow
async def test_stream_of_a_compacted_turn_is_refused(tmp_path: Path) -> None:
    """StreamMessage, repeated when its events are no longer kept, answers accepted, then EVENTS_COMPACTED."""
    toml = "[storage]\nretained_events_per_session = 10"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        request = ask("one", request_id="r1")
        first = [r async for r in streamed(client, request)]
        await append(client, first[0].accepted.session_id, 300)
        call = streamed(client, request)
        assert (await call.read()).accepted.message_id == first[0].accepted.message_id
        refusal = await refused(call.read())
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.OUT_OF_RANGE, "EVENTS_COMPACTED")


@pytest.mark.slow
async def test_watch_that_joins_at_the_end_of_a_turn_shows_it_ended(client: Client) -> None:
    """However close to the end it joins, the last that it tells is an idle session and an ended message."""

    async def one() -> tuple[int, set[int]]:
        accepted = await client.messages.SendMessage(ask("/rate 400\n/words 60000"))
        async with watching(client, accepted.session_id, after_sequence=0) as watch:
            await watch.until_text()
        aborting = asyncio.ensure_future(client.messages.AbortSession(session_id=accepted.session_id))
        worst = SESSION_STATUS_IDLE, {MESSAGE_STATUS_INTERRUPTED}
        while not aborting.done():
            fold = SessionFold(accepted.session_id)
            async with watching(client, accepted.session_id, fold, after_sequence=0) as watch:
                await watch.until_kind("caught_up")
                if accepted.turn_id in fold.ended_turns:
                    seen = fold.status, {m.status for m in fold.listed() if m.answers_message_id}
                    worst = seen if seen != (SESSION_STATUS_IDLE, {MESSAGE_STATUS_INTERRUPTED}) else worst
        return worst

    seen = await asyncio.gather(*(one() for _ in range(40)))
    assert seen == [(SESSION_STATUS_IDLE, {MESSAGE_STATUS_INTERRUPTED})] * 40


async def test_stream_repeated_brings_the_turn_again(client: Client) -> None:
    """StreamMessage with a known request_id says DUPLICATE and replays the same durable events."""
    request = ask("one two", request_id="r1")
    first = [r async for r in streamed(client, request)]
    again = [r async for r in streamed(client, request)]
    durable = [[e for r in stream for e in r.events if e.sequence] for stream in (first, again)]
    assert durable[0] == durable[1]


@contextlib.asynccontextmanager
async def connect_running(folder: Path) -> AsyncIterator[tuple[Client, Callable[[], Awaitable[None]]]]:
    """Gives a client of a server of its own, and the way to stop that server."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_server(folder, "[server]\nshutdown_grace_seconds = 3600\n"))
        stopping = stack.pop_all()
        async with connect(server.address) as client:
            try:
                yield client, stopping.aclose
            finally:
                await stopping.aclose()


async def test_stop_ends_watches_with_unavailable(tmp_path: Path) -> None:
    """Open watches, subscriptions and a running turn do not hold the stop, however long calls may go on."""
    async with connect_running(tmp_path) as (client, stop):
        accepted = await client.messages.SendMessage(ask("/rate 100\n/words 10000"))
        session_id = accepted.session_id
        async with watching(client, session_id, after_sequence=0) as one, watching(client) as of_all:
            stream = streamed(client, ask("wait", session_id))
            await asyncio.gather(one.until_text(), of_all.until_kind("caught_up"), stream.read())
            await stop()
            for call in (one.call, of_all.call, stream):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    while await call.read() is not grpc.aio.EOF:
                        pass
                assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_watch_survives_tools_and_settings(client: Client, tmp_path: Path) -> None:
    """Client tools, changed settings, aborts, appended messages: one fold over all equals the store."""
    session_id = await new_session(client)
    fold = SessionFold(session_id)
    async with watching(client, session_id, fold, after_sequence=0) as watch:
        accepted = await client.messages.SendMessage(
            ask('/tool look {"a": 1}\n/tool look {"a": 2}\n/tool none {}', session_id, tools=[tool("look")])
        )
        await watch.until_kind("tool_call_updated", 2)
        refused = [e.part_finished.part.tool_use for e in watch.events if e.part_finished.part.tool_use.error]
        assert [(call.name, call.status) for call in refused] == [("none", "error")]
        await client.sessions.UpdateSession(session_id=session_id, settings=SessionSettings(title="t"))
        await append(client, session_id, 2)
        answer = next(m for m in fold.listed() if m.answers_message_id)
        for part in answer.parts:
            if part.tool_use.status == "pending":
                await client.tools.SubmitToolResult(session_id=session_id, tool_call_id=part.part_id, output="seen")
        await watch.until_turn_ended(accepted.turn_id)
        running = await client.messages.SendMessage(ask(FOREVER, session_id))
        await client.messages.SendMessage(ask("dropped", session_id))
        await client.messages.AbortSession(session_id=session_id)
        await watch.until_turn_ended(running.turn_id)
        while fold.head != (await session_of(client, session_id)).head_sequence:
            await watch.batch()
    assert comparable(fold.listed()) == comparable(await messages_of(client, session_id))
