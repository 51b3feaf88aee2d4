"""Where scenes are played: a server, a client and a tape."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from opencode.message.message_pb2 import SendMessageResponse
from tests.support.clients.conversation import ask, new_session
from tests.support.servers.running import Client, connect, running_server
from tests.support.vectors.tape import Tape

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


async def send(tape: Tape, words: str, **fields: Any) -> SendMessageResponse:
    """Sends a message into the session of a tape."""
    return await tape.client.messages.SendMessage(ask(words, tape.session_id, **fields))


async def say(tape: Tape, words: str, **fields: Any) -> SendMessageResponse:
    """Sends a message and waits until the watch has told the end of its turn."""
    accepted = await send(tape, words, **fields)
    await tape.ended(accepted.turn_id)
    return accepted
