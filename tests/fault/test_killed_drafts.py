"""kill -9 while a long text grows: what was saved of it is there, and nothing else is left of how it grew."""

import asyncio
import os
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from opencode.message.content_pb2 import MESSAGE_STATUS_INTERRUPTED
from tests.support.clients.conversation import answer_to, ask, turn_ended, watching, words_of
from tests.support.clients.pace import Pace
from tests.support.oracles.fold import SessionFold
from tests.support.oracles.sound import assert_sound
from tests.support.servers.process import server_process
from tests.support.servers.running import Client, connect

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("TURNWIRE_KILLS", "2"))
"""How often the server is killed; set it to 50 or more for a long run."""

LONG_CHARACTERS = 12_000

PROMISED_SECONDS = 0.3
"""Text that a watcher has held for so long survives a kill."""


class _Reader:
    """Remembers when it held which text, until the connection ends."""

    def __init__(self, client: Client, session_id: str) -> None:
        self._client = client
        self._session_id = session_id
        self._fold = SessionFold(session_id)
        self.is_long = asyncio.Event()
        """Set when the text is long."""
        self.held: list[tuple[float, str]] = []

    async def run(self) -> None:
        """Reads until the server is gone."""
        try:
            async with watching(self._client, self._session_id, self._fold, after_sequence=0) as watch:
                while await watch.batch():
                    text = words_of(self._fold.listed()[-1])
                    self.held.append((time.monotonic(), text))
                    if len(text) > LONG_CHARACTERS:
                        self.is_long.set()
                    watch.events.clear()
        except grpc.aio.AioRpcError as error:
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), error


def _count(database: Path, query: str) -> int:
    with closing(sqlite3.connect(database)) as db:
        return int(db.execute(query).fetchone()[0])


@pytest.mark.timeout(300 + 10 * KILLS)
@pytest.mark.parametrize("kill", range(KILLS))
async def test_a_long_text_survives_up_to_the_last_save(tmp_path: Path, kill: int) -> None:
    """The next server has the text, marked as interrupted, in one piece; the doctor finds nothing before and after."""
    database = tmp_path / "turnwire.db"
    async with server_process(tmp_path) as server, connect(server.address) as client:
        accepted = await client.messages.SendMessage(ask("/rate 4000\n/words 100000"))
        reader = _Reader(client, accepted.session_id)
        reading = asyncio.create_task(reader.run())
        measuring = asyncio.create_task((pace := Pace(client)).run())
        await reader.is_long.wait()
        await asyncio.sleep(random.Random(kill).uniform(0, 0.8))  # the moment of the kill, not a wait
        killed_at = time.monotonic()
        await server.kill()
        await asyncio.gather(reading, measuring)
    assert _count(database, "SELECT count(*) FROM drafts") > 0
    assert_sound(database)
    async with server_process(tmp_path) as server, connect(server.address) as client:
        await turn_ended(client, accepted)
        answer = await answer_to(client, accepted)
        assert answer.status == MESSAGE_STATUS_INTERRUPTED
        promised = [text for at, text in reader.held if at <= killed_at - pace.within(PROMISED_SECONDS)]
        assert words_of(answer).startswith(promised[-1] if promised else "")
        assert reader.held[-1][1].startswith(words_of(answer)[: len(reader.held[-1][1])])
        assert await server.terminate() == 0
    assert _count(database, "SELECT count(*) FROM drafts") == 0
    assert_sound(database)
