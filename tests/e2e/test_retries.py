"""Model calls that fail before their first content are tried again, with the same model and then with others."""

import contextlib
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path

import pytest

from opencode.event.session_event_pb2 import SessionEvent
from opencode.message.content_pb2 import (
    FINISH_REASON_ABORTED,
    FINISH_REASON_ERROR,
    FINISH_REASON_INTERRUPTED,
    FINISH_REASON_STOP,
)
from opencode.message.message_pb2 import StreamMessageResponse
from tests.support.clients.conversation import answer_to, ask, model, streamed, turn_ended, watching, words_of
from tests.support.servers.provider import ProviderServer, ScriptedReply
from tests.support.servers.running import Client, connect, running_server

QUICK = "[retries]\nfirst_delay_seconds = 0.001\nmax_retries = 2\n"
JSON = {"content-type": "application/json"}
HELLO = (
    b'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server that retries quickly."""
    async with running_server(tmp_path, QUICK) as server, connect(server.address) as connected:
        yield connected


async def test_busy_provider_is_asked_again(client: Client) -> None:
    """Watchers are told each time; the answer comes as if nothing had happened, with one assistant message."""
    accepted = await client.messages.SendMessage(ask("/flaky unavailable 2\nHere I am.", request_id="r"))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        await watch.until_turn_ended(accepted.turn_id)
    told = [event.retry_scheduled for event in watch.events if event.HasField("retry_scheduled")]
    assert [(notice.attempt, notice.failure.reason) for notice in told[-1:]] in ([], [(2, "PROVIDER_UNAVAILABLE")])
    answer = await answer_to(client, accepted)
    assert (words_of(answer), answer.finish_reason) == ("Here I am.", FINISH_REASON_STOP)


async def test_retry_is_told_while_the_provider_rests(client: Client) -> None:
    """Attempt, reason, wait and model, before the next attempt; an abort ends the wait at once."""
    accepted = await client.messages.SendMessage(ask("/sleep 0.05\n/error rate_limited"))
    async with watching(client, accepted.session_id, after_sequence=accepted.sequence) as watch:
        notice = (await watch.until_kind("retry_scheduled")).retry_scheduled
        assert (notice.attempt, notice.failure.reason, notice.delay.ToMilliseconds(), notice.model_run.provider_id) == (
            *(1, "PROVIDER_RATE_LIMITED", 100),
            "offline",
        )
        assert dict(notice.failure.metadata) == {"code": "rate_limited"}
        assert notice.failure.retry_after.ToMilliseconds() == 100
        await client.messages.AbortSession(session_id=accepted.session_id)
        ended = await watch.until_turn_ended(accepted.turn_id)
    assert ended.turn_ended.turn.finish_reason == FINISH_REASON_ABORTED


async def test_a_wait_is_told_to_the_stream_and_to_who_joins_during_it(tmp_path: Path) -> None:
    """Each as soon as it watches, after the message that waits: the first wait of a turn begins with the turn."""
    async with (
        running_server(tmp_path, "[retries]\nfirst_delay_seconds = 600.0\n") as server,
        contextlib.AsyncExitStack() as stack,
    ):
        client = await stack.enter_async_context(connect(server.address))
        stream = streamed(client, ask("/flaky unavailable 1"))
        told = [event async for event in _until_retry(stream)]
        [answer] = [
            event.message_added.message for event in told[:-1] if event.message_added.message.answers_message_id
        ]
        notice = told[-1].retry_scheduled
        assert (notice.attempt, notice.message_id) == (1, answer.message_id)
        assert notice.delay.ToMilliseconds() > 10_000
        for session_id in (answer.session_id, ""):
            watch = await stack.enter_async_context(watching(client, session_id))
            await watch.until_kind("caught_up")
            [seen] = [event.retry_scheduled for event in watch.events if event.HasField("retry_scheduled")]
            assert seen == notice
        await client.messages.AbortSession(session_id=answer.session_id)


async def _until_retry(stream: AsyncIterable[StreamMessageResponse]) -> AsyncIterator[SessionEvent]:
    async for answer in stream:
        for event in answer.events:
            yield event
            if event.HasField("retry_scheduled"):
                return


async def test_retries_end(client: Client) -> None:
    """After the last one the turn fails with the provider's reason."""
    accepted = await client.messages.SendMessage(ask("/flaky unavailable 9\nNever."))
    ended = (await turn_ended(client, accepted)).turn_ended.turn
    assert (ended.finish_reason, ended.failure.reason) == (FINISH_REASON_ERROR, "PROVIDER_UNAVAILABLE")
    assert dict(ended.failure.metadata) == {"code": "unavailable"}
    assert (await answer_to(client, accepted)).failure == ended.failure


async def test_nothing_is_tried_again_after_content(client: Client) -> None:
    """The text so far is kept and marked interrupted; a second answer is never joined to it."""
    accepted = await client.messages.SendMessage(ask("/words 5\n/cut"))
    ended = (await turn_ended(client, accepted)).turn_ended.turn
    assert (ended.finish_reason, ended.steps) == (FINISH_REASON_INTERRUPTED, 1)
    assert words_of(await answer_to(client, accepted)).startswith("lorem")


async def test_fallback_model_answers(tmp_path: Path) -> None:
    """When the chosen model's provider stays busy, the next one is asked; the message says who answered."""
    async with ProviderServer() as provider:
        toml = (
            f"{QUICK}[defaults]\nfallback_models = ['second/m']\n"
            f"[providers.second]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n"
        )
        provider.enqueue(ScriptedReply(HELLO))
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            accepted = await client.messages.SendMessage(ask("/error unavailable", model=model("echo")))
            await turn_ended(client, accepted)
            answer = await answer_to(client, accepted)
    assert (words_of(answer), answer.model_run.provider_id, answer.model_run.model_served) == ("Hello", "second", "m")


async def test_refused_request_goes_to_nobody_else(tmp_path: Path) -> None:
    """400 is never tried again, by no model."""
    async with ProviderServer() as provider:
        toml = (
            f"{QUICK}[defaults]\nmodel = 'first/m'\nfallback_models = ['offline/echo']\n"
            f"[providers.first]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n"
        )
        provider.enqueue(ScriptedReply((b'{"error":{"message":"bad"}}',), 400, JSON))
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            ended = (await turn_ended(client, await client.messages.SendMessage(ask("hello")))).turn_ended.turn
        assert (ended.failure.reason, len(provider.requests)) == ("PROVIDER_REQUEST_REFUSED", 1)


async def test_waiting_for_a_retry_leaves_room_for_other_turns(tmp_path: Path) -> None:
    """A provider that rests does not hold the place of one that is well."""
    toml = "[limits]\nmax_running_turns = 1\n[retries]\nfirst_delay_seconds = 600\nlongest_delay_seconds = 600\n"
    async with running_server(tmp_path, toml) as server, connect(server.address) as client:
        waiting = await client.messages.SendMessage(ask("/sleep 0.05\n/error unavailable"))
        async with watching(client, waiting.session_id, after_sequence=waiting.sequence) as watch:
            await watch.until_kind("retry_scheduled")
        ended = (await turn_ended(client, await client.messages.SendMessage(ask("someone else")))).turn_ended.turn
    assert ended.finish_reason == FINISH_REASON_STOP


async def test_fallback_that_is_not_configured_is_passed_over(tmp_path: Path) -> None:
    """The one behind it is asked; without one the real reason is told."""
    async with ProviderServer() as provider:
        toml = (
            f"{QUICK}[defaults]\nfallback_models = ['keyless/m', 'second/m']\n"
            f"[providers.keyless]\nkind = 'openai_chat'\napi_key_env = 'NOT_SET'\n"
            f"[providers.second]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n"
        )
        provider.enqueue(ScriptedReply(HELLO))
        async with running_server(tmp_path, toml) as server, connect(server.address) as client:
            accepted = await client.messages.SendMessage(ask("/error unavailable"))
            await turn_ended(client, accepted)
            assert words_of(await answer_to(client, accepted)) == "Hello"
