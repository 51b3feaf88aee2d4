"""A client generated from the fixed contract works unchanged against the real server."""

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.clients.fixed_client import FixedClient

NEVER_GIVEN = "no-such-id"


@pytest.fixture
async def client(server: Any) -> AsyncIterator[FixedClient]:
    """A client of the running server."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield FixedClient(channel)


class Events:
    """The events that a subscription has received so far."""

    def __init__(self) -> None:
        """Starts empty."""
        self._events: list[Any] = []
        self._arrived = asyncio.Condition()
        """Guards the list for waiters; notified for each event. Nothing is awaited while it is held."""

    async def collect(self, stream: grpc.aio.UnaryStreamCall) -> None:
        """Adds events until the stream ends."""
        async for event in stream:
            async with self._arrived:
                self._events.append(event)
                self._arrived.notify_all()

    async def of(self, directory: str, enough: Callable[[list[Any]], bool] = bool) -> list[Any]:
        """Waits until there are enough events of the session in that directory and returns them, oldest first."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: enough(self._select(directory)))
            return self._select(directory)

    def _select(self, directory: str) -> list[Any]:
        return [event for event in self._events if event.directory == directory]


@pytest.fixture
async def events(client: FixedClient, tmp_path: Path) -> AsyncIterator[Events]:
    """A subscription that is known to be live."""
    events = Events()
    stream = client.SubscribeGlobalEvents()
    collecting = asyncio.create_task(events.collect(stream))
    try:
        probe = await client.CreateSession(title="probe")
        directory = tmp_path / "probe"
        directory.mkdir()
        await client.UpdateSessionDirectory(probe.id, str(directory))
        # The fixed contract has no sign that a subscription has begun, other than its first event.
        while not collecting.done():
            await client.SendMessage(probe.id, "are you there?")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await events.of(str(directory))
                    break
        yield events
    finally:
        stream.cancel()
        await asyncio.gather(collecting, return_exceptions=True)


async def _session_in(client: FixedClient, directory: Path) -> str:
    """Returns a new session in that directory, which is how a client of the fixed contract tells events apart."""
    session = await client.CreateSession(title="A conversation")
    await client.UpdateSessionDirectory(session.id, str(directory))
    return str(session.id)


def _kind(event: Any) -> str | None:
    kind = event.WhichOneof("event")
    return event.message_part_updated.WhichOneof("part") if kind == "message_part_updated" else kind


def _finishes(events: list[Any]) -> list[str]:
    """Returns how the assistant's messages ended, in order."""
    updates = [event.message_updated for event in events if _kind(event) == "message_updated"]
    return [update.finish for update in updates if update.role == "assistant" and update.HasField("finish")]


def _parts(events: list[Any], kind: str, message_id: str) -> list[Any]:
    """The updates of a message's parts of one kind."""
    parts = [event.message_part_updated for event in events if _kind(event) == kind]
    return [getattr(part, kind) for part in parts if part.message_id == message_id]


def _text_came(events: list[Any], text: str) -> bool:
    return any(_kind(event) == "text" and event.message_part_updated.text.text == text for event in events)


async def _assert_refused(call: Any, code: grpc.StatusCode) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await call
    assert refusal.value.code() is code


async def test_an_answer_streams_as_accumulated_text_and_is_kept(
    client: FixedClient, events: Events, tmp_path: Path
) -> None:
    """Updates carry all of the text so far, the last finish is "stop", and GetMessages shows the same afterwards."""
    session_id = await _session_in(client, tmp_path)
    answer = " ".join(f"word{number}" for number in range(60))
    request = f"/reason I count.\n/rate 100\n{answer}"

    accepted = await client.SendMessage(session_id, request)
    seen = await events.of(str(tmp_path), lambda seen: _finishes(seen) != [])

    assert accepted.ListFields() == []
    assert _finishes(seen) == ["stop"]
    user, assistant = (await client.GetMessages(session_id)).messages
    assert (user.role, list(user.text_parts)) == ("user", [request])
    assert (assistant.role, list(assistant.text_parts)) == ("assistant", [answer])
    assert list(assistant.reasoning_parts) == ["I count."]

    texts = [part.text for part in _parts(seen, "text", assistant.message_id)]
    assert len(texts) > 1
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert texts[-1] == answer
    assert [part.text for part in _parts(seen, "reasoning", assistant.message_id)][-1] == "I count."

    updates = [event.message_updated for event in seen if _kind(event) == "message_updated"]
    assert {(update.message_id, update.role) for update in updates} == {
        (user.message_id, "user"),
        (assistant.message_id, "assistant"),
    }
    started, *_, ended = [update for update in updates if update.role == "assistant"]
    assert not started.HasField("finish")
    assert 0 < ended.created_at <= ended.updated_at
    assert (ended.tokens.input, ended.tokens.output, ended.tokens.reasoning) == (
        assistant.tokens_input,
        assistant.tokens_output,
        assistant.tokens_reasoning,
    )
    assert assistant.tokens_reasoning == 2
    assert assistant.tokens_output == 62


async def test_all_parts_of_a_message_reach_the_model(client: FixedClient, events: Events, tmp_path: Path) -> None:
    """Text parts stay separate in the conversation; a file as a data URI goes to the model with them."""
    session_id = await _session_in(client, tmp_path)
    data = base64.b64encode(b"not really a picture").decode()
    file = {"mime": "image/png", "filename": "dot.png", "url": f"data:image/png;base64,{data}"}
    parts = [{"text": {"text": "first"}}, {"file": file}, {"text": {"text": "second"}}]

    await client.SendMessage(session_id, parts=parts)
    await events.of(str(tmp_path), lambda seen: _finishes(seen) != [])

    user, assistant = (await client.GetMessages(session_id)).messages
    assert list(user.text_parts) == ["first", "second"]
    assert list(assistant.text_parts) == ["first\nsecond\n[dot.png, 20 bytes]"]


async def test_the_default_model_answers_when_none_is_named(
    client: FixedClient, events: Events, tmp_path: Path
) -> None:
    """Model and agent are optional."""
    session_id = await _session_in(client, tmp_path)
    await client.SendMessage(session_id, "hello", model=None, agent="default")
    assert _finishes(await events.of(str(tmp_path), lambda seen: _finishes(seen) != [])) == ["stop"]


async def test_a_tool_call_shows_its_state_and_result(client: FixedClient, events: Events, tmp_path: Path) -> None:
    """A call of a tool that nobody has ends as an error, the model hears of it, and the turn goes on."""
    session_id = await _session_in(client, tmp_path)
    await client.SendMessage(session_id, '/tool weather {"city": "Bern"}')
    await events.of(str(tmp_path), lambda seen: len(_finishes(seen)) == 2)

    _, called, answered = (await client.GetMessages(session_id)).messages
    (call,) = called.tool_calls
    assert (call.name, call.status, call.input_json) == ("weather", "error", '{"city": "Bern"}')
    assert call.error != ""
    states = [part.state for part in _parts(await events.of(str(tmp_path)), "tool", called.message_id)]
    assert states[-1] == call
    assert answered.text_parts[0].startswith("weather failed: ")


async def test_abort_keeps_what_was_said_and_can_be_repeated(
    client: FixedClient, events: Events, tmp_path: Path
) -> None:
    """The cut answer reads "error", its text stays, a second abort changes nothing, and the session goes on."""
    session_id = await _session_in(client, tmp_path)
    await client.SendMessage(session_id, "one two three\n/sleep 600\nnever said")
    await events.of(str(tmp_path), lambda seen: _text_came(seen, "one two three"))

    assert (await client.AbortSession(session_id)).ListFields() == []
    after_first = await client.GetMessages(session_id)
    assert (await client.AbortSession(session_id)).ListFields() == []
    assert await client.GetMessages(session_id) == after_first

    user, assistant, note = after_first.messages
    assert (user.role, note.role, list(note.text_parts)) == ("user", "system", ["The turn was aborted."])
    assert list(assistant.text_parts) == ["one two three"]
    assert _finishes(await events.of(str(tmp_path), lambda seen: _finishes(seen) != [])) == ["error"]

    await client.SendMessage(session_id, "and now?")
    assert _finishes(await events.of(str(tmp_path), lambda seen: len(_finishes(seen)) == 2)) == ["error", "stop"]
    assert list((await client.GetMessages(session_id)).messages[-1].text_parts) == ["and now?"]


async def test_sessions_are_created_listed_moved_and_deleted(client: FixedClient, tmp_path: Path) -> None:
    """A session is found with what it was given until it is deleted, and its messages go with it."""
    untitled = await client.CreateSession()
    titled = await client.CreateSession(title="Plans")
    assert (untitled.title, titled.title, titled.directory) == ("", "Plans", "")
    assert 0 < titled.time.created <= titled.time.updated

    moved = await client.UpdateSessionDirectory(titled.id, str(tmp_path))
    assert (moved.id, moved.title, moved.directory) == (titled.id, "Plans", str(tmp_path))
    listed = {session.id: session for session in (await client.ListSessions()).sessions}
    assert listed[untitled.id].title == ""
    assert listed[titled.id] == moved
    assert list((await client.GetMessages(titled.id)).messages) == []

    assert (await client.DeleteSession(titled.id)).ListFields() == []
    remaining = {session.id for session in (await client.ListSessions()).sessions}
    assert untitled.id in remaining
    assert titled.id not in remaining
    await _assert_refused(client.GetMessages(titled.id), grpc.StatusCode.NOT_FOUND)
    await _assert_refused(client.DeleteSession(titled.id), grpc.StatusCode.NOT_FOUND)


async def test_deleting_a_session_ends_its_turn(client: FixedClient, events: Events, tmp_path: Path) -> None:
    """A session can be deleted while its model speaks."""
    session_id = await _session_in(client, tmp_path)
    await client.SendMessage(session_id, "one\n/sleep 600\nnever said")
    await events.of(str(tmp_path), lambda seen: _text_came(seen, "one"))
    await client.DeleteSession(session_id)
    await _assert_refused(client.AbortSession(session_id), grpc.StatusCode.NOT_FOUND)


async def test_providers_name_their_models_and_never_their_keys(client: FixedClient) -> None:
    """The offline provider is there with its models and a default."""
    answer = await client.GetProviders()
    providers = {provider.id: provider for provider in answer.providers}
    assert list(providers) == sorted(providers)
    echo = providers["offline"].models["echo"]
    assert (echo.id, echo.provider_id) == ("echo", "offline")
    assert answer.defaults["offline"] in providers["offline"].models
    assert not any(provider.HasField("key") for provider in providers.values())


async def test_agents_have_a_default(client: FixedClient) -> None:
    """The agent that everything uses without being told is listed."""
    agents = {agent.name: agent for agent in (await client.ListAgents()).agents}
    assert list(agents) == sorted(agents)
    assert agents["default"].built_in


async def test_answers_to_unknown_permission_requests_are_not_found(client: FixedClient) -> None:
    """There is nothing to permit."""
    session = await client.CreateSession()
    for response in ("approve", "once", "always", "reject"):
        await _assert_refused(client.RespondToPermission(session.id, NEVER_GIVEN, response), grpc.StatusCode.NOT_FOUND)


async def test_wrong_requests_are_refused_and_store_nothing(client: FixedClient) -> None:
    """Each is refused with a status that says whose fault it is."""
    session = await client.CreateSession()
    unknown_model = {"provider": {"id": "offline"}, "model_id": NEVER_GIVEN}
    for call in (
        client.SendMessage(session.id),
        client.SendMessage(session.id, " "),
        client.SendMessage(session.id, "hello", model=unknown_model),
        client.SendMessage(session.id, "hello", agent=NEVER_GIVEN),
        client.SendMessage(session.id, parts=[{"file": {"mime": "image/png", "url": "data:image/png;base64,%%"}}]),
        client.UpdateSessionDirectory(session.id, "not/absolute"),
    ):
        await _assert_refused(call, grpc.StatusCode.INVALID_ARGUMENT)
    assert list((await client.GetMessages(session.id)).messages) == []

    for call in (
        client.SendMessage(NEVER_GIVEN, "hello"),
        client.GetMessages(NEVER_GIVEN),
        client.AbortSession(NEVER_GIVEN),
        client.DeleteSession(NEVER_GIVEN),
        client.UpdateSessionDirectory(NEVER_GIVEN, "/"),
    ):
        await _assert_refused(call, grpc.StatusCode.NOT_FOUND)
