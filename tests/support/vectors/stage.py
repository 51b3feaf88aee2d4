"""Where scenes are played: a server, a client and a tape."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from opencode.message.message_pb2 import SendMessageResponse
from tests.support.clients.conversation import ask, model, new_session
from tests.support.models.scripts import Say, Think, answer
from tests.support.servers.provider import ProviderServer, ScriptedReply
from tests.support.servers.running import Client, connect, running_server
from tests.support.vectors.tape import Tape
from turnwire.core.environment import Environment
from turnwire.ports.commit import Committed, Work

WORLDS = "één twee drie 世界 und Grüße 🌍 👩‍👩‍👧 नमस्ते konec."
"""Text whose characters have one to four bytes."""


@contextlib.asynccontextmanager
async def stage(folder: Path, toml: str = "") -> AsyncIterator[Client]:
    """Runs a server in a folder and gives a client of it."""
    async with running_server(folder, toml) as server, connect(server.address) as client:
        yield client


@contextlib.asynccontextmanager
async def taped(folder: Path, toml: str = "", **settings: Any) -> AsyncIterator[Tape]:
    """Runs a server, and gives a tape that watches a new session of it from the first event on."""
    async with stage(folder, toml) as client:
        tape = Tape(client, await new_session(client, **settings))
        async with tape.watching():
            yield tape


@dataclass
class HeldModel:
    """A model that stops in the middle of its answer until it is let go."""

    toml: str
    """The configuration of the server that asks it."""
    goes_on: asyncio.Event
    name = model("m", "mine")


@contextlib.asynccontextmanager
async def held_model() -> AsyncIterator[HeldModel]:
    """Runs a model that reasons, says WORLDS, and after a pause WORLDS again."""
    goes_on = asyncio.Event()
    said = answer("openai_chat", Think("Let me think."), Say(WORLDS), Say(f" {WORLDS}"))
    reply = ScriptedReply((*said.chunks[:2], goes_on, *said.chunks[2:]))
    async with ProviderServer(lambda _: reply) as provider:
        yield HeldModel(f"[providers.mine]\nkind = 'openai_chat'\nbase_url = '{provider.base_url}'\n", goes_on)


@dataclass
class HeldCommit:
    """Work that the server has begun and not stored yet."""

    is_there: asyncio.Event = field(default_factory=asyncio.Event)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)


@contextlib.contextmanager
def held_commit(kind: type) -> Iterator[HeldCommit]:
    """Lets work that tells an event of a kind wait before it is stored, as on a slow disk, until it is let go."""
    held, commit = HeldCommit(), Environment.commit

    async def later(environment: Environment, tenant: str, session_id: str, work: Work, at: datetime) -> Committed:
        held.is_there.set()
        await held.goes_on.wait()
        return await commit(environment, tenant, session_id, work, at)

    def begin(
        environment: Environment, tenant: str, session_id: str, work: Work, at: datetime
    ) -> asyncio.Future[Committed]:
        if any(isinstance(event.kind, kind) for event in work.events):
            return asyncio.ensure_future(later(environment, tenant, session_id, work, at))
        return commit(environment, tenant, session_id, work, at)

    with patch.object(Environment, "commit", begin):
        yield held


async def send(tape: Tape, words: str, **fields: Any) -> SendMessageResponse:
    """Sends a message into the session of a tape."""
    return await tape.client.messages.SendMessage(ask(words, tape.session_id, **fields))


async def say(tape: Tape, words: str, **fields: Any) -> SendMessageResponse:
    """Sends a message and waits until the watch has told the end of its turn."""
    accepted = await send(tape, words, **fields)
    await tape.ended(accepted.turn_id)
    return accepted
