"""A server is killed while it renews what an older version has stored: the file is right, and the next one goes on."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from opencode.session.session_pb2 import ListSessionsRequest
from tests.support.clients.conversation import messages_of, words_of
from tests.support.fakes.domain_values import adding, creating, make_message
from tests.support.fakes.opened_store import opened_store
from tests.support.oracles.older_layout import make_older
from tests.support.servers.process import server_process
from tests.support.servers.running import connect
from turnwire.api.wire.codec import VERSION, ProtoCodec
from turnwire.cli.operator.event_frames import ProtoFrames
from turnwire.storage.sqlite.care.examination import Examiner

MESSAGES = 600


async def older_file(folder: Path) -> Path:
    """Returns a file with many messages of the older layout, and more events than one step removes."""
    async with opened_store(folder) as opened:
        await opened.store.commit(creating())
        commits = (adding(make_message(f"msg_{number}", f"text {number}")) for number in range(MESSAGES))
        await asyncio.gather(*map(opened.store.commit, commits))
    make_older(opened.path)
    return opened.path


def versions(path: Path) -> dict[int, int]:
    """Returns how many messages there are of each version."""
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT display_version, count(*) FROM messages GROUP BY 1"))


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3])
async def test_killed_renewal_goes_on(tmp_path: Path, delay: float) -> None:
    """No message is lost or shown otherwise, nothing is wrong in the file at any time, and the work ends."""
    path = await older_file(tmp_path)
    examiner = Examiner(ProtoCodec(), ProtoFrames())
    for _ in range(2):
        async with server_process(tmp_path) as server:
            await asyncio.sleep(delay)
            await server.kill()
        problems = {str(found.severity) for found in examiner.examine(path).findings}
        assert problems <= {"note"}
    async with server_process(tmp_path) as server, connect(server.address) as client:
        [session] = (await client.sessions.ListSessions(ListSessionsRequest())).sessions
        listed = await messages_of(client, session.id)
        assert [words_of(message) for message in listed] == [f"text {number}" for number in range(MESSAGES)]
        while versions(path) != {VERSION: MESSAGES} or events_left(path):
            await asyncio.sleep(0.05)
        assert await messages_of(client, session.id) == listed
    assert examiner.examine(path).findings == ()


def events_left(path: Path) -> bool:
    """Returns whether events are there that the upgrade has given up."""
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT EXISTS (SELECT 1 FROM events WHERE position <= (SELECT pruned_through FROM log_state))"
        return bool(db.execute(query).fetchone()[0])
