"""How connections share the event loop of a server."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from opencode.event.event_pb2 import WatchEventsRequest
from opencode.session.session_pb2 import GetSessionRequest
from tests.support.clients.conversation import change_of, new_session, talk
from tests.support.clients.web import web_client
from tests.support.servers.running import Client, connect, running_server
from turnwire.app import Server
from turnwire.event_loop import fair_queue
from turnwire.event_loop.fair_loop import ROUND_SECONDS
from turnwire.event_loop.fair_queue import FairQueue, Ready

WATCHERS = 60
"""Of one connection."""

ASKING = 8
"""Calls of the other one at a time: some come while watchers are woken."""


class Ticking:
    """A clock on which each callback takes half of a round: the order does not depend on the machine."""

    def __init__(self) -> None:
        """Starts at 0."""
        self.now = 0.0

    def perf_counter(self) -> float:
        """Returns the time, a little later each time."""
        self.now += ROUND_SECONDS / 2
        return self.now


class Seen:
    """What waits, by owner."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.waiting = Counter[str]()
        self.ran = Counter[str]()
        self.most_waiting = 0
        self.overtaking: dict[str, int] = {}
        """Most callbacks of others that ran while one of an owner waited, which its own ones before it run between."""

    def note(self, owner: str, ready: Ready) -> Ready:
        """Returns the callback as one that is counted."""
        self.waiting[owner] += 1
        self.most_waiting = max(self.most_waiting, self.waiting[owner])
        before = self.ran.total() - self.ran[owner]

        def run() -> None:
            others = self.ran.total() - self.ran[owner] - before
            self.overtaking[owner] = max(others, self.overtaking.get(owner, 0))
            self.waiting[owner] -= 1
            self.ran[owner] += 1
            ready()

        return Ready(run)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What waits and runs in the server's process."""
    seen, add = Seen(), FairQueue.add
    monkeypatch.setattr(fair_queue, "time", Ticking())
    monkeypatch.setattr(FairQueue, "add", lambda self, owner, ready: add(self, owner, seen.note(owner, ready)))
    return seen


async def test_a_call_does_not_wait_for_all_watchers_of_another_connection(
    server: Server, client: Client, seen: Seen
) -> None:
    """When an event wakes them all, few of their steps run between two of its own."""
    session_id = await new_session(client)
    watches = [client.events.WatchEvents(WatchEventsRequest(session_id=session_id)) for _ in range(WATCHERS)]
    await asyncio.gather(*(watch.read() for watch in watches))
    async with connect(server.address) as other:
        before = {*seen.ran}
        await other.sessions.GetSession(GetSessionRequest(session_id=session_id))
        [neighbour] = {*seen.ran} - before
        seen.overtaking.clear()
        seen.most_waiting = 0
        done = asyncio.Event()

        async def ask() -> None:
            while not done.is_set():
                await other.sessions.GetSession(GetSessionRequest(session_id=session_id))

        asking = asyncio.gather(*(ask() for _ in range(ASKING)))
        for title in ("first", "second", "third"):
            await client.sessions.UpdateSession(change_of(session_id, title=title))
            await asyncio.gather(*(watch.read() for watch in watches))
        done.set()
        await asking
    for watch in watches:
        watch.cancel()
    assert seen.most_waiting > WATCHERS / 2
    assert seen.overtaking[neighbour] < WATCHERS / 2  # about two for each of its own before it; all without turns


async def test_calls_and_turns_are_work_of_their_connection(tmp_path: Path, seen: Seen) -> None:
    """At both listeners."""
    async with running_server(tmp_path, '[web]\nlisten = "127.0.0.1:0"\n') as server:
        async with connect(server.address) as client:
            await talk(client, "hello")
        assert len(seen.ran) == 1
        async with web_client(server.web_address) as web:
            assert (await web.json("session.SessionService/CreateSession", {})).status == 200
    assert [owner for owner in seen.ran if not owner.startswith(("ipv4:", "127.0.0.1:"))] == []
    assert len(seen.ran) == 2
