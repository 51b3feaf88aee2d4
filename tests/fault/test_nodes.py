"""Nodes on one database, and a server on a file, while what they need fails, drawn by a seed: `make test-cluster`.

TURNWIRE_FAULT_SEED chooses what happens, TURNWIRE_CLUSTER_FAULTS how often: each fault once before one comes again.
TURNWIRE_CLUSTER_ONLY is a part of the names of the only ones.
"""

import asyncio
import contextlib
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from pathlib import Path

import grpc
import pytest

from opencode.event.session_event_pb2 import RESYNC_REASON_HISTORY_REPLACED
from tests.conftest import FAULT_SEED
from tests.support.clients.conversation import messages_of, new_session, talk, watching, words_of
from tests.support.cluster import network as networks
from tests.support.cluster.databases import Pair
from tests.support.cluster.faults import FAULTS, Fault
from tests.support.cluster.guarantees import AcknowledgedOnce, History, OneOwner, check_acknowledged_once, check_owner
from tests.support.cluster.network import Network
from tests.support.cluster.nodes import Nodes
from tests.support.cluster.traffic import Session, Traffic
from tests.support.cluster.writes import note_writes, writes_of
from tests.support.postgres import binaries

COUNT = int(os.environ.get("TURNWIRE_CLUSTER_FAULTS", "0"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(not COUNT, reason="make test-cluster sets TURNWIRE_CLUSTER_FAULTS"),
]

ONLY = os.environ.get("TURNWIRE_CLUSTER_ONLY", "")

FAULT_SECONDS = 180.0
"""Time limit of a fault, until all is as before."""

LOST = 5
"""Messages that only the primary has when it vanishes."""

SESSIONS = 5
"""Number of sessions that are written to at a time: each fault brings a new one, and then the oldest is checked."""


class Run:
    """Faults one after the other under traffic, and what was counted."""

    def __init__(self, nodes: Nodes, traffic: Traffic) -> None:
        self._nodes, self._traffic = nodes, traffic
        self._sessions: list[Session] = []
        self._answered = defaultdict[str, list[float]](list)
        self._slowest = defaultdict[str, float](float)
        self._last = ""

    async def hit(self, fault: Fault) -> None:
        """Lets a fault befall a node that has sessions and has written, and notes when one of them is served again."""
        nodes = self._nodes
        await self._settle()
        victim = nodes.rng.choice(nodes.names)
        session = await self._written_by(victim)
        others = [name for name in nodes.names if name != victim]
        began = time.monotonic()
        async with fault.strike(nodes, victim):
            if others:
                await self._traffic.send(session, others)
                self._note(fault, time.monotonic() - began)
        if not others:
            await self._traffic.send(session)
            self._note(fault, time.monotonic() - began)
        if len(self._sessions) > SESSIONS:
            await self._traffic.end(self._sessions.pop(0))

    async def end(self) -> None:
        """Checks the sessions that are left."""
        await self._settle()
        for session in self._sessions:
            await self._traffic.end(session)
        self._traffic.end_watch()

    def table(self) -> Iterator[str]:
        """Yields the lines of a table with what was counted."""
        yield "| fault | times | served again, p50 | longest | slowest call |"
        yield "|---|---|---|---|---|"
        for fault in FAULTS:
            if seconds := self._answered.get(fault.name):
                middle, longest = statistics.median(seconds), max(seconds)
                figures = f"{len(seconds)} | {middle:.1f} s | {longest:.1f} s | {self._slowest[fault.name]:.1f} s"
                yield f"| {fault.name} | {figures} |"
            else:
                yield f"| {fault.name} | {'not here' if fault.missing(self._nodes) else 0} | | | |"
        nodes, traffic = self._nodes, self._traffic
        failed = ", ".join(f"{reason} {count}" for reason, count in nodes.failures.most_common())
        yield f"{nodes.calls} calls answered; tries that failed: {failed or 'none'}"
        checked = ", ".join(f"{name} {count}" for name, count in traffic.checked.items())
        yield f"{traffic.messages} acknowledged messages and {traffic.events} watched events checked; {checked}"

    def _note(self, fault: Fault, seconds: float) -> None:
        self._answered[fault.name].append(seconds)
        self._last = fault.name

    async def _settle(self) -> None:
        """Returns when each node has shards, with the slowest call since the last fault noted."""
        await self._nodes.until_all_own()
        self._slowest[self._last] = max(self._slowest[self._last], self._nodes.slowest_seconds)
        self._nodes.slowest_seconds = 0.0

    async def _written_by(self, victim: str) -> Session:
        """Returns a new session that a node owns after it has acknowledged a message there."""
        while True:
            session = await self._traffic.begin([victim])
            self._sessions.append(session)
            if self._nodes.is_owner(victim, session.session_id):
                return session


@contextlib.asynccontextmanager
async def running(folder: Path, databases: Pair | None, network: Network | None) -> AsyncIterator[Nodes]:
    """Runs the nodes."""
    print(f"\nseed {FAULT_SEED}")
    async with aclosing(Nodes(folder, random.Random(FAULT_SEED), databases, network)) as nodes:
        for name in nodes.names:
            await nodes.start(name)
        if databases is not None:
            note_writes(databases)
        yield nodes


async def strike(nodes: Nodes, count: int) -> None:
    """Lets faults come in an order that is drawn, and prints what was counted, should it fail too."""
    possible = [fault for fault in FAULTS if ONLY in fault.name and not fault.missing(nodes)]
    if not possible:
        pytest.skip(f"no fault with {ONLY!r} in its name here")
    drawn = list[Fault]()
    while len(drawn) < count:
        drawn += nodes.rng.sample(possible, len(possible))
    async with asyncio.TaskGroup() as tasks:
        run = Run(nodes, Traffic(nodes, tasks))
        try:
            for fault in drawn[:count]:
                print(f"{time.strftime('%X')} {fault.name}", flush=True)
                async with asyncio.timeout(FAULT_SECONDS):
                    await run.hit(fault)
            await run.end()
        finally:
            print(*run.table(), sep="\n")


@pytest.fixture
def network() -> Iterator[Network | None]:
    """A network with a host for each node and each database; None where there can be none, which is printed."""
    if reason := networks.missing():
        print(f"without cuts of links: {reason}")
        yield None
        return
    with closing(Network(["a", "b", "c", *Pair.HOSTS])) as made:
        yield made


@pytest.fixture
def databases(network: Network | None) -> Iterator[Pair]:
    """A database and its standby."""
    if binaries() is None and os.environ.get("TURNWIRE_TEST_POSTGRES") != "1":
        pytest.skip("this machine has no PostgreSQL")
    with closing(Pair(network)) as made:
        yield made


async def test_faults_of_nodes(tmp_path: Path, databases: Pair, network: Network | None) -> None:
    """No guarantee breaks: each acknowledged message is there once, and each watch has each event once."""
    async with running(tmp_path, databases, network) as nodes:
        await strike(nodes, COUNT)


async def test_faults_of_one_server(tmp_path: Path) -> None:
    """The same guarantees, by the same checks, for a server on a file, which is not worth as many faults."""
    async with running(tmp_path, None, None) as nodes:
        await strike(nodes, (COUNT + 2) // 3)


async def test_a_write_without_the_lock_is_noted(tmp_path: Path, databases: Pair, network: Network | None) -> None:
    """By the database itself: else OneOwner would hold whatever happens."""
    async with running(tmp_path, databases, network) as nodes:
        session_id = await nodes.surely(new_session)
        await nodes.surely(lambda client: talk(client, "hello", session_id))
        history = History(writes=writes_of(databases, session_id))
        [(history.head,)] = databases.execute(f"SELECT max(sequence) FROM events WHERE session_id = '{session_id}'")
        check_owner(history)
        newest = f"FROM events WHERE session_id = '{session_id}' ORDER BY sequence DESC LIMIT 1"
        rest = "at_us, turn_id, kind, message_id, facts, tenant"
        databases.execute(f"INSERT INTO events SELECT position + 1, session_id, sequence + 1, {rest} {newest}")
        history.head, history.writes = history.head + 1, writes_of(databases, session_id)
        with pytest.raises(OneOwner, match="without the lock"):
            check_owner(history)


async def test_a_failover_that_loses_commits_is_told(tmp_path: Path, databases: Pair, network: Network | None) -> None:
    """Without a synchronous standby, messages that were acknowledged may go: the log and each watch say so."""
    history = History()
    async with running(tmp_path, databases, network) as nodes:
        await nodes.until_all_own()
        client = nodes.clients["a"]
        session_id = await new_session(client)
        async with watching(client, from_beginning=True) as every, watching(client, session_id) as one:
            await every.until_turn_ended((await talk(client, "kept", session_id)).turn_id)
            await one.until_kind("turn_ended")
            kept = {session_id: one.token, "": every.token}
            await asyncio.to_thread(databases.stop_waiting)
            await asyncio.to_thread(databases.hold, is_received=False)
            for number in range(LOST):
                words = f"lost {number}"
                sent = await talk(client, words, session_id)
                history.answers[words] = [(words, sent.message_id)]
            for watch in (every, one):
                await watch.until_turn_ended(sent.turn_id)
            lost = {session_id: one.token, "": every.token}
            await asyncio.to_thread(databases.fail_over, is_planned=True)
            await nodes.surely(lambda client: talk(client, "after", session_id))
            for watch in (every, one):  # it would go on without what is stored now in the place of what is gone
                with pytest.raises(grpc.aio.AioRpcError):
                    async with asyncio.timeout(FAULT_SECONDS):
                        while await watch.batch():
                            pass
        found = await nodes.surely(lambda client: messages_of(client, session_id))
        history.stored = [[(message.message_id, words_of(message)) for message in found]]
        assert [words for _, words in history.stored[0]] == ["kept", "kept", "after", "after"]
        with pytest.raises(AcknowledgedOnce):
            check_acknowledged_once(history)
        for name, client in nodes.clients.items():
            assert any('"history_begun"' in line for line in nodes.processes[name].stderr)
            for place, token in kept.items():
                async with watching(client, place, resume_token=token) as watch:
                    added = await watch.until_kind("message_added")
                    assert words_of(added.message_added.message) == "after"
            for place, token in lost.items():
                async with watching(client, place, resume_token=token) as watch:
                    assert (await watch.batch())[0].resync.reason == RESYNC_REASON_HISTORY_REPLACED
        assert any('"commits_lost":true' in line for line in nodes.processes["a"].stderr)
