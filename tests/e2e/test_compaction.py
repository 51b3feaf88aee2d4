"""Conversations that grow beyond their model's context window."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opencode.message.content_pb2 import (
    CONTEXT_BREAK_CONTEXT_COMPACTED,
    CONTEXT_BREAK_UNSPECIFIED,
    FINISH_REASON_ABORTED,
    FINISH_REASON_CONTEXT_FULL,
    FINISH_REASON_STOP,
    MESSAGE_TYPE_ASSISTANT,
    MESSAGE_TYPE_SYSTEM,
    MESSAGE_TYPE_USER,
    SessionMessage,
)
from opencode.message.message_pb2 import AppendMessageRequest
from opencode.session.session_pb2 import COMPACTION_MODE_OFF, SessionSettings
from opencode.tool.tool_pb2 import SubmitToolResultRequest
from opencode.turn.turn_pb2 import BUSY_POLICY_STEER, TurnSettings
from opencode.turn.turn_service_pb2 import RegenerateMessageRequest, SelectAlternativeRequest, StartTurnRequest
from tests.support.clients.conversation import (
    ask,
    displayed,
    kinds,
    messages_of,
    model,
    model_name,
    new_session,
    talk,
    text,
    tool,
    turn_ended,
    watching,
    words_of,
)
from tests.support.models.scripts import API_OF_PATH, APIS, CHECKS, Call, Say, Tokens, answer, error
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import Client, connect, running_server
from turnwire.core.context.summaries import INSTRUCTION

LONG = "word " * 400
"""About 500 tokens."""

SUMMARY = "They spoke of cats."

MODEL = model("m", "mine")


def asks_for_a_summary(request: RecordedRequest) -> bool:
    """Tells whether the model is asked to summarise."""
    return json.dumps(INSTRUCTION)[1:80] in json.dumps(request.body)


def tokens_of(request: RecordedRequest) -> Tokens:
    """Returns what the model counts: an estimate is corrected by it."""
    return Tokens(len(json.dumps(request.body)) // 4, 5)


def reply(request: RecordedRequest) -> ScriptedReply:
    """Summarises, or answers."""
    words = SUMMARY if asks_for_a_summary(request) else "Yes."
    return answer(API_OF_PATH[request.path], Say(words), tokens=tokens_of(request))


@dataclass
class World:
    """A server whose model has a window of 5,000 tokens, and that model."""

    client: Client
    provider: ProviderServer

    def answered(self) -> list[str]:
        """Returns the requests that were no summaries, as text."""
        return [json.dumps(request.body) for request in self.provider.requests if not asks_for_a_summary(request)]

    def summarised(self) -> list[str]:
        """Returns the requests for summaries, as text."""
        return [json.dumps(request.body) for request in self.provider.requests if asks_for_a_summary(request)]

    async def fill(self, session_id: str = "", turns: int = 3) -> str:
        """Talks as much as just fits and returns the session's id."""
        for number in range(turns):
            session_id = (await talk(self.client, f"long-{number} {LONG}", session_id, model=MODEL)).session_id
        assert self.summarised() == []
        return session_id


@contextlib.asynccontextmanager
async def world(
    folder: Path, api: str = "openai_chat", reply_to: Callable[[RecordedRequest], ScriptedReply] = reply, more: str = ""
) -> AsyncIterator[World]:
    """Runs server and model."""
    async with ProviderServer(reply_to) as provider:
        toml = f"""
[providers.mine]
kind = '{api}'
base_url = '{provider.base_url}'
[models."mine/m"]
context_window_tokens = 5000
[compaction]
threshold = 0.5
keep = 0.2
{more}
"""
        async with running_server(folder, toml) as server, connect(server.address) as client:
            yield World(client, provider)
            assert [CHECKS[API_OF_PATH[r.path]](r.body) for r in provider.requests] == [[]] * len(provider.requests)


def summaries(messages: list[SessionMessage]) -> list[SessionMessage]:
    """Returns the summaries among messages."""
    return [message for message in messages if message.HasField("compaction")]


@pytest.mark.matrix
@pytest.mark.parametrize("api", APIS)
async def test_older_messages_are_summarised(api: str, tmp_path: Path) -> None:
    """The model gets the summary in their place; people see both, and are told in order."""
    async with world(tmp_path, api) as w:
        session_id = await w.fill()
        accepted = await w.client.messages.SendMessage(ask(f"long-3 {LONG}", session_id, model=MODEL))
        async with watching(w.client, session_id, after_sequence=accepted.sequence) as watch:
            ended = (await watch.until_turn_ended(accepted.turn_id)).turn_ended.turn
        assert ended.finish_reason == FINISH_REASON_STOP
        counted = sum(tokens_of(request).prompt for request in w.provider.requests[-2:])
        assert (ended.steps, ended.usage.input_tokens) == (1, counted)
        [asked] = w.summarised()
        assert all(f"long-{number} " in asked for number in range(3))
        assert "long-3 " not in asked
        sent = w.answered()[-1]
        assert SUMMARY in sent
        assert [f"long-{number} " in sent for number in range(4)] == [False, False, False, True]
        messages = await messages_of(w.client, session_id)
        [summary] = summaries(messages)
        assert (summary.type, words_of(summary), summary.turn_id) == (MESSAGE_TYPE_SYSTEM, SUMMARY, accepted.turn_id)
        assert summary.compaction.message_count == 6
        assert summary.compaction.tokens_before > 2000 > summary.compaction.tokens_after
        assert [words_of(m)[:6] for m in messages if m.type != MESSAGE_TYPE_ASSISTANT and m.turn_id][:3] == [
            "long-0", "long-1", "long-2",
        ]  # fmt: skip
        shown = {message.message_id: message for message in await displayed(w.client, session_id)}
        assert shown[summary.message_id].compaction == summary.compaction
        told = [
            event
            for event in watch.events
            if event.HasField("context_compacted") or event.message_added.message.message_id == summary.message_id
        ]
        assert kinds(told) == ["message_added", "context_compacted"]
        assert told[1].context_compacted.compaction == summary.compaction
        assert messages[-1].sent_context.break_reason == CONTEXT_BREAK_CONTEXT_COMPACTED
        await talk(w.client, "short", session_id, model=MODEL)
        assert (await messages_of(w.client, session_id))[-1].sent_context.break_reason == CONTEXT_BREAK_UNSPECIFIED
        assert len(w.summarised()) == 1
        assert SUMMARY in w.answered()[-1]


@pytest.mark.slow
async def test_a_summarised_message_that_is_answered_late_is_sent(tmp_path: Path) -> None:
    """Also the last one that the summary covers, whose old place is gone: a new summary covers the others."""
    async with world(tmp_path) as w:
        session_id = await new_session(w.client)
        for number in range(4):
            note = AppendMessageRequest(
                session_id=session_id, type=MESSAGE_TYPE_USER, parts=[text(f"long-{number} {LONG}")]
            )
            await w.client.messages.AppendMessage(note)
        await talk(w.client, "short", session_id, model=MODEL)
        [summary] = summaries(await messages_of(w.client, session_id))
        late = summary.compaction.through_message_id
        [words] = [words_of(m) for m in await messages_of(w.client, session_id) if m.message_id == late]
        settings = TurnSettings(model=model_name("m", "mine"))
        start = StartTurnRequest(session_id=session_id, user_message_id=late, settings=settings)
        started = await w.client.turns.StartTurn(start)
        async with watching(w.client, session_id, resume_token=started.resume_token) as watch:
            await watch.until_turn_ended(started.turn.turn_id)
        sent = w.answered()[-1]
        assert words in sent
        assert SUMMARY in sent
        assert len(w.summarised()) == 2
        assert all(f"long-{number} " in w.summarised()[1] for number in range(4) if f"long-{number} " not in words)


@pytest.mark.slow
async def test_a_summary_counts_on_its_path(tmp_path: Path) -> None:
    """An earlier question that is answered again is sent in its own words; chosen again, the summary counts again."""
    async with world(tmp_path) as w:
        session_id = await w.fill()
        await talk(w.client, f"long-3 {LONG}", session_id, model=MODEL)
        before = await messages_of(w.client, session_id)
        [question] = [message for message in before if words_of(message).startswith("long-1 ")]
        settings = TurnSettings(model=model_name("m", "mine"))
        again = RegenerateMessageRequest(session_id=session_id, message_id=question.message_id, settings=settings)
        made = await w.client.turns.RegenerateMessage(again)
        async with watching(w.client, session_id, resume_token=made.resume_token) as watch:
            await watch.until_turn_ended(made.turn.turn_id)
        sent = w.answered()[-1]
        assert SUMMARY not in sent
        assert [f"long-{number} " in sent for number in range(4)] == [True, True, False, False]
        select = SelectAlternativeRequest(session_id=session_id, message_id=before[-1].message_id)
        await w.client.turns.SelectAlternative(select)
        await talk(w.client, "short", session_id, model=MODEL)
        assert SUMMARY in w.answered()[-1]
        assert len(w.summarised()) == 1
        latest = (await messages_of(w.client, session_id))[-1]
        assert latest.sent_context.break_reason == CONTEXT_BREAK_UNSPECIFIED


@pytest.mark.slow
async def test_the_start_is_told_while_the_summary_is_written(tmp_path: Path) -> None:
    """A user interface can say what takes so long."""
    go_on = asyncio.Event()

    def slow(request: RecordedRequest) -> ScriptedReply:
        made = reply(request)
        return ScriptedReply((go_on, *made.chunks)) if asks_for_a_summary(request) else made

    async with world(tmp_path, reply_to=slow) as w:
        session_id = await w.fill()
        async with watching(w.client, session_id) as watch:
            await watch.until_kind("caught_up")
            accepted = await w.client.messages.SendMessage(ask(LONG, session_id, model=MODEL))
            started = (await watch.until_kind("compaction_started")).compaction_started
            assert (started.message_count, started.context_window_tokens) == (6, 5000)
            assert started.estimated_tokens > 2000
            assert "context_compacted" not in kinds(watch.events)
            async with watching(w.client, session_id) as late:
                await late.until_kind("caught_up")
                assert [e.compaction_started for e in late.events if e.HasField("compaction_started")] == [started]
            go_on.set()
            await watch.until_turn_ended(accepted.turn_id)


@pytest.mark.slow
async def test_a_session_can_do_without(tmp_path: Path) -> None:
    """Then the model gets all there is, and the provider says when that is too much."""
    async with world(tmp_path) as w:
        session_id = await new_session(w.client)
        await w.client.sessions.UpdateSession(
            session_id=session_id, settings=SessionSettings(compaction=COMPACTION_MODE_OFF)
        )
        for _ in range(6):
            await talk(w.client, LONG, session_id, model=MODEL)
        assert w.summarised() == []
        w.provider.enqueue(error(400, "context_length_exceeded"))
        accepted = await talk(w.client, LONG, session_id, model=MODEL)
        assert (await turn_ended(w.client, accepted)).turn_ended.turn.finish_reason == FINISH_REASON_CONTEXT_FULL
        assert summaries(await messages_of(w.client, session_id)) == []


@pytest.mark.slow
async def test_a_provider_that_finds_it_too_long_gets_less(tmp_path: Path) -> None:
    """Before any content the step is made once more, shorter; the turn ends in order."""
    async with world(tmp_path) as w:
        session_id = await w.fill(turns=2)
        w.provider.enqueue(error(400, "context_length_exceeded"))
        accepted = await talk(w.client, "short", session_id, model=MODEL)
        ended = (await turn_ended(w.client, accepted)).turn_ended.turn
        assert (ended.finish_reason, ended.steps) == (FINISH_REASON_STOP, 1)
        assert len(summaries(await messages_of(w.client, session_id))) == 1
        assert ["long-0 " in sent for sent in w.answered()[-2:]] == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
async def test_a_turn_that_calls_tools_is_compacted_between_its_steps(api: str, tmp_path: Path) -> None:
    """Its question stays word by word; every request is one that the API takes, and the turn comes to its end."""

    def calls(request: RecordedRequest) -> ScriptedReply:
        if asks_for_a_summary(request):
            return reply(request)
        done = sum(not asks_for_a_summary(earlier) for earlier in provider[0].requests)
        pieces = (Say("Done."),) if done > 8 else (Call("look", json.dumps({"n": done}), f"call_{done}"),)
        return answer(API_OF_PATH[request.path], *pieces, tokens=tokens_of(request))

    provider: list[ProviderServer] = []
    async with world(tmp_path, api, calls) as w:
        provider.append(w.provider)
        accepted = await w.client.messages.SendMessage(ask("find the cat", tools=[tool("look")], model=MODEL))
        async with watching(w.client, accepted.session_id, after_sequence=accepted.sequence) as watch:
            for count in range(1, 9):
                state = await pending(watch, count)
                await w.client.tools.SubmitToolResult(
                    session_id=accepted.session_id, tool_call_id=state.id, output=LONG
                )
            ended = (await watch.until_turn_ended(accepted.turn_id)).turn_ended.turn
        assert (ended.finish_reason, ended.steps) == (FINISH_REASON_STOP, 9)
        messages = await messages_of(w.client, accepted.session_id)
        assert summaries(messages)
        sent = w.answered()
        assert all("find the cat" in request for request in sent)
        assert max(map(len, sent)) < 5000 * 5
        assert SUMMARY in sent[-1]
        calls_stored = [part for message in messages for part in message.parts if part.HasField("tool_use")]
        assert [part.tool_use.output for part in calls_stored] == [LONG] * 8


async def pending(watch: Any, count: int) -> Any:
    """Returns the count-th call that waits."""
    seen = set[str]()

    def is_it(event: Any) -> bool:
        if event.tool_call_updated.state.status == "pending":
            seen.add(event.tool_call_updated.state.id)
        return len(seen) == count

    return (await watch.until(is_it)).tool_call_updated.state


@pytest.mark.slow
async def test_an_abort_while_the_summary_is_written_stores_nothing_of_it(tmp_path: Path) -> None:
    """The provider sees the connection go; the conversation is as before and goes on."""
    never = asyncio.Event()
    hanging = [True]

    def hang(request: RecordedRequest) -> ScriptedReply:
        if asks_for_a_summary(request) and hanging[0]:
            return ScriptedReply((answer("openai_chat", Say("half")).chunks[0], never))
        return reply(request)

    async with world(tmp_path, reply_to=hang) as w:
        session_id = await w.fill()
        async with watching(w.client, session_id) as watch:
            await watch.until_kind("caught_up")  # what is not durable is told to those who watch already
            accepted = await w.client.messages.SendMessage(ask(LONG, session_id, model=MODEL))
            await watch.until_kind("compaction_started")
            while not w.summarised():
                await asyncio.sleep(0.001)
            await w.client.messages.AbortSession(session_id=session_id)
            ended = (await watch.until_turn_ended(accepted.turn_id)).turn_ended.turn
            [request] = [request for request in w.provider.requests if asks_for_a_summary(request)]
            await request.disconnected.wait()
        assert (ended.finish_reason, ended.steps) == (FINISH_REASON_ABORTED, 0)
        assert summaries(await messages_of(w.client, session_id)) == []
        hanging.clear()
        hanging.append(False)
        await talk(w.client, "and now?", session_id, model=MODEL)
        assert len(summaries(await messages_of(w.client, session_id))) == 1
        assert SUMMARY in w.answered()[-1]


@pytest.mark.slow
async def test_the_summary_counts_after_a_restart(tmp_path: Path) -> None:
    """It is decided by what is stored alone."""
    async with world(tmp_path) as w:
        session_id = await w.fill()
        await talk(w.client, LONG, session_id, model=MODEL)
        before = w.answered()[-1]
    async with world(tmp_path) as w:
        await talk(w.client, "short", session_id, model=MODEL)
        [after] = w.answered()
        assert SUMMARY in before
        assert SUMMARY in after
        assert "long-0 " not in after


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
async def test_a_turn_that_messages_have_joined(tmp_path: Path, api: str) -> None:
    """It is cut between its steps as any other; what its users said stays word for word behind the summary."""

    def calling(request: RecordedRequest) -> ScriptedReply:
        if asks_for_a_summary(request) or not request.body.get("tools"):
            return reply(request)
        number = next(numbers)
        pieces = (Say("Done."),) if number > 8 else (Say(f"Step {number}."), Call("look", "{}", f"call_{number}"))
        return answer(api, *pieces, tokens=tokens_of(request))

    numbers = iter(range(1, 100))
    async with world(tmp_path, api, calling) as one:
        running = await one.client.messages.SendMessage(ask("look around", model=MODEL, tools=[tool("look")]))
        async with watching(one.client, running.session_id, after_sequence=running.sequence) as watch:
            for number in range(1, 9):
                call = await watch.until(
                    lambda e, n=number: (
                        (e.tool_call_updated.state.call_id, e.tool_call_updated.state.status)
                        == (f"call_{n}", "pending")
                    )
                )
                if number in (1, 4):
                    hint = ask(f"hint {number}", running.session_id, busy_policy=BUSY_POLICY_STEER)
                    await one.client.messages.SendMessage(hint)
                result = SubmitToolResultRequest(session_id=running.session_id, output=f"seen {number} {LONG}")
                result.tool_call_id = call.tool_call_updated.state.id
                await one.client.tools.SubmitToolResult(result)
            ended = (await watch.until_turn_ended(running.turn_id)).turn_ended.turn
        assert ended.finish_reason == FINISH_REASON_STOP
        assert one.summarised()
        last = one.answered()[-1]
        assert "seen 1" not in last and "the messages that follow" in last
        assert [last.count(words) for words in ("look around", "hint 1", "hint 4")] == [1, 1, 1]
        places = [last.index(words) for words in (SUMMARY, "look around", "hint 1", "hint 4")]
        assert places == sorted(places)
        bodies = [request.body for request in one.provider.requests]
        assert [violation for body in bodies for violation in CHECKS[api](body)] == []
