"""Titles that a cheap model gives to sessions, once an answer has ended."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from opencode.event.session_event_pb2 import SessionEvent
from opencode.usage.usage_pb2 import USAGE_DIMENSION_MODEL, QueryUsageRequest
from tests.support.clients.conversation import change_of, model, new_session, session_of, talk, watching
from tests.support.models.scripts import API_OF_PATH, APIS, CHECKS, Say, Tokens, answer, error
from tests.support.servers.provider import ProviderServer, RecordedRequest, ScriptedReply
from tests.support.servers.running import Client, connect, running_server
from turnwire.core.use_cases.titles import INSTRUCTION

MODEL = model("m", "mine")


def asks_for_a_title(request: RecordedRequest) -> bool:
    """Tells whether the model is asked for a title."""
    return json.dumps(INSTRUCTION)[1:60] in json.dumps(request.body)


def titling(title: str) -> Callable[[RecordedRequest], ScriptedReply]:
    """Returns a model that writes this title, and else answers."""

    def reply(request: RecordedRequest) -> ScriptedReply:
        words = title if asks_for_a_title(request) else "Lions sleep."
        return answer(API_OF_PATH[request.path], Say(words), tokens=Tokens(100, 7))

    return reply


LIONS = titling("About lions")


@dataclass
class World:
    """A server that wants titles, and its model."""

    client: Client
    provider: ProviderServer

    def calls(self) -> list[RecordedRequest]:
        """Returns the requests for titles."""
        return [request for request in self.provider.requests if asks_for_a_title(request)]

    async def titled(self, session_id: str, count: int = 1) -> list[SessionEvent]:
        """Returns the first so many changes of a session."""
        async with watching(self.client, session_id, after_sequence=0) as watch:
            await watch.until_kind("session_updated", count)
            return [event for event in watch.events if event.WhichOneof("kind") == "session_updated"]


def configuration(provider: ProviderServer, api: str = "openai_chat", more: str = "") -> str:
    """Returns the configuration with the model "mine/m", whose provider has a cheap model."""
    return (
        f"[providers.mine]\nkind = '{api}'\nbase_url = '{provider.base_url}'\n[retries]\nmax_retries = 0\n"
        f"[titles]\nenabled = true\nmodels = ['offline/echo', 'mine/cheap']\n{more}"
    )


@contextlib.asynccontextmanager
async def world(
    folder: Path, reply: Callable[[RecordedRequest], ScriptedReply] = LIONS, api: str = "openai_chat", more: str = ""
) -> AsyncIterator[World]:
    """Runs server and model."""
    async with (
        ProviderServer(reply) as provider,
        running_server(folder, configuration(provider, api, more)) as server,
        connect(server.address) as client,
    ):
        yield World(client, provider)


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
async def test_a_session_gets_a_title_after_its_first_answer(tmp_path: Path, api: str) -> None:
    """The cheap model of the provider makes it of question and answer; one event tells it, and it is asked for once."""
    async with world(tmp_path, titling('\n"About\tlions\u200b."\nand more'), api) as here:
        accepted = await talk(here.client, "Do lions sleep?", model=MODEL)
        [event] = await here.titled(accepted.session_id)
        assert event.session_updated.session.title == "About lions"
        assert event.session_updated.session.revision == 2
        await talk(here.client, "And tigers?", accepted.session_id, model=MODEL)
        [call] = here.calls()
        assert CHECKS[api](call.body) == []
        assert call.body["model"] == "cheap"
        assert "Do lions sleep?" in json.dumps(call.body)
        assert "Lions sleep." in json.dumps(call.body)
        assert (await session_of(here.client, accepted.session_id)).title == "About lions"


async def test_what_a_title_costs_is_counted(tmp_path: Path) -> None:
    """In the usage of the tenant, under the model that wrote it."""
    async with world(tmp_path) as here:
        accepted = await talk(here.client, "Do lions sleep?", model=MODEL)
        await here.titled(accepted.session_id)
        query = QueryUsageRequest(group_by=[USAGE_DIMENSION_MODEL])
        rows = (await here.client.usage.QueryUsage(query)).rows
        assert {row.model_id: (row.steps, row.usage.input_tokens) for row in rows} == {"m": (1, 100), "cheap": (1, 100)}


@pytest.mark.slow
async def test_a_title_of_a_person_stays(tmp_path: Path) -> None:
    """Whether it was there before, or came while the model was asked; a copy with a title has its own."""
    release = asyncio.Event()

    def reply(request: RecordedRequest) -> ScriptedReply:
        made = titling("The model's")(request)
        return ScriptedReply((release, *made.chunks)) if asks_for_a_title(request) else made

    async with world(tmp_path, reply) as here:
        named = await new_session(here.client, title="Mine")
        await talk(here.client, "Hello", named, model=MODEL)
        fork = await here.client.sessions.ForkSession(session_id=named)
        await talk(here.client, "Hello", fork.session.id, model=MODEL)
        assert here.calls() == []
        accepted = await talk(here.client, "Hello", model=MODEL)
        while not here.calls():
            await asyncio.sleep(0.01)
        await here.client.sessions.UpdateSession(change_of(accepted.session_id, title="Mine too"))
        release.set()
        query = QueryUsageRequest(group_by=[USAGE_DIMENSION_MODEL])
        while "cheap" not in {row.model_id for row in (await here.client.usage.QueryUsage(query)).rows}:
            await asyncio.sleep(0.01)
        assert (await session_of(here.client, accepted.session_id)).title == "Mine too"


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("reply", "more"),
    [
        (lambda request: error(API_OF_PATH[request.path], "overloaded"), ""),
        (titling("  \n'\" "), ""),
        (titling("x" * 70_000), ""),
        (lambda _: ScriptedReply((asyncio.Event(),)), "max_seconds = 0.05"),
    ],
    ids=["error", "empty", "too large", "too slow"],
)
async def test_a_model_that_fails_leaves_no_title(
    tmp_path: Path, reply: Callable[[RecordedRequest], ScriptedReply], more: str
) -> None:
    """And holds nothing up; it is not asked again after the next answer."""

    def either(request: RecordedRequest) -> ScriptedReply:
        return reply(request) if asks_for_a_title(request) else titling("")(request)

    async with world(tmp_path, either, more=more) as here:
        accepted = await talk(here.client, "Hello", model=MODEL)
        await talk(here.client, "Hello again", accepted.session_id, model=MODEL)
        while not here.calls():
            await asyncio.sleep(0.01)
        await talk(here.client, "And again", accepted.session_id, model=MODEL)
        assert (await session_of(here.client, accepted.session_id)).settings.title == ""
        assert len(here.calls()) == 1


@pytest.mark.slow
async def test_a_deleted_session_ends_the_call(tmp_path: Path) -> None:
    """The request to the model ends, what it may have cost is counted, and the queue was never held up."""

    def reply(request: RecordedRequest) -> ScriptedReply:
        return ScriptedReply((asyncio.Event(),)) if asks_for_a_title(request) else titling("")(request)

    async with world(tmp_path, reply) as here:
        accepted = await talk(here.client, "Hello", model=MODEL)
        while not here.calls():
            await asyncio.sleep(0.01)
        await talk(here.client, "Not held up", accepted.session_id, model=MODEL)
        await here.client.sessions.DeleteSession(session_id=accepted.session_id)
        [call] = here.calls()
        await call.disconnected.wait()
        rows = (await here.client.usage.QueryUsage(group_by=[USAGE_DIMENSION_MODEL])).rows
        assert {row.model_id: row.estimated_steps for row in rows} == {"m": 0, "cheap": 1}


@pytest.mark.slow
async def test_titles_are_off_unless_they_are_wanted(tmp_path: Path) -> None:
    """No second request is made; and models of the offline provider write none unless the configuration names one."""
    async with ProviderServer(titling("No")) as provider:
        plain = configuration(provider).replace("enabled = true", "enabled = false")
        async with running_server(tmp_path, plain) as server, connect(server.address) as client:
            accepted = await talk(client, "Hello", model=MODEL)
            await talk(client, "Hello", accepted.session_id, model=MODEL)
            assert len(provider.requests) == 2
            assert (await session_of(client, accepted.session_id)).settings.title == ""
    offline = "[titles]\nenabled = true\n"
    async with running_server(tmp_path, offline) as server, connect(server.address) as client:
        accepted = await talk(client, "Hello")
        await talk(client, "Hello", accepted.session_id)
        assert (await session_of(client, accepted.session_id)).settings.title == ""
