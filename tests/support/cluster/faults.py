"""Faults of nodes, of their databases and of the links between them: each is a row of `FAULTS`.

A fault strikes when its context is entered, and is over when that is left. Between, a session of the victim gets a
message.
"""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta

from opencode.transfer.transfer_pb2 import IMPORT_OUTCOME_UNCHANGED, ImportSessionsRequest, ImportSessionsResponse
from tests.support.clients.archives import upload
from tests.support.cluster.databases import Pair
from tests.support.cluster.network import Network
from tests.support.cluster.nodes import Nodes
from tests.support.oracles.archives import golden_records
from tests.support.servers.moving import lines
from tests.support.servers.running import Client

CUT_SECONDS = 4.0
"""Length of a cut, longer than the database waits for a silent node."""

SLOW_KILOBITS = 400
"""Room of a slow link a second; what a node writes and reads needs more."""

IMPORTED = 120
"""Sessions of an import, which lasts longer than a node takes to start."""

JUMPS = (timedelta(hours=1), timedelta(hours=-1), timedelta(days=365), timedelta(days=-365))

Strike = Callable[[Nodes, str], AbstractAsyncContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """A fault of a node, or of what it needs."""

    name: str
    strike: Strike
    needs: str = ""
    """Requirement: "databases", "network" or "clocks"."""

    def missing(self, nodes: Nodes) -> bool:
        """Returns whether it cannot be made here."""
        there = {"": True, "databases": nodes.databases, "network": nodes.network, "clocks": nodes.clocks}
        return not there[self.needs]


@contextlib.asynccontextmanager
async def kill(nodes: Nodes, victim: str) -> AsyncIterator[None]:
    """A node is killed, and started again."""
    await nodes.processes[victim].kill()
    yield
    await nodes.start(victim)


@contextlib.asynccontextmanager
async def end(nodes: Nodes, victim: str) -> AsyncIterator[None]:
    """A node is told to end, and started again."""
    nodes.processes[victim].send_signal(signal.SIGTERM)
    yield
    assert await nodes.processes[victim].ended() == 0
    await nodes.start(victim)


def stop(seconds: float) -> Strike:
    """A node stands still, and goes on as if nothing was."""

    @contextlib.asynccontextmanager
    async def strike(nodes: Nodes, victim: str) -> AsyncIterator[None]:
        process, loop = nodes.processes[victim], asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        process.send_signal(signal.SIGSTOP)
        going_on = loop.call_at(ends_at, process.send_signal, signal.SIGCONT)
        try:
            yield
            await asyncio.sleep(ends_at - loop.time())
        finally:
            going_on.cancel()
            process.send_signal(signal.SIGCONT)

    return strike


@contextlib.asynccontextmanager
async def upgrade(nodes: Nodes, victim: str) -> AsyncIterator[None]:
    """One node after the other is told to end, and started again."""
    async with end(nodes, victim):
        yield
    for name in nodes.names:
        if name != victim:
            await nodes.until_all_own()
            async with end(nodes, name):
                pass


@contextlib.asynccontextmanager
async def start_in_import(nodes: Nodes, victim: str) -> AsyncIterator[None]:
    """A node is started while others import: it takes away nothing of what they have brought in part."""
    nodes.processes[victim].send_signal(signal.SIGTERM)
    assert await nodes.processes[victim].ended() == 0
    names = [f"{nodes.calls} {number}" for number in range(IMPORTED)]
    archive = lines([record for name in names for record in golden_records(name)])
    others, has_begun = [name for name in nodes.names if name != victim], asyncio.Event()
    uploads = [await nodes.surely(lambda client: upload(client, archive), others) for _ in range(2)]

    async def bring(client: Client, *, verify: bool = False) -> list[ImportSessionsResponse]:
        request = ImportSessionsRequest(upload_id=uploads[verify], request_id=f"{names[0]} {verify}", verify=verify)
        answers = []
        async for answer in client.transfer.ImportSessions(request):
            answers.append(answer)
            if answer.session_count:
                has_begun.set()
        return answers

    importing = asyncio.create_task(nodes.surely(bring, others))
    try:
        await asyncio.wait([importing, asyncio.create_task(has_begun.wait())], return_when=asyncio.FIRST_COMPLETED)
        assert not importing.done(), "the import ended before the start began"
        yield
        await nodes.start(victim)
        [*_, last] = await importing
    finally:
        importing.cancel()
    assert (last.session_count, last.incomplete_session_count) == (IMPORTED, 0)
    found = await nodes.surely(lambda client: bring(client, verify=True))
    outcomes = Counter(session.outcome for answer in found for session in answer.sessions)
    assert outcomes == {IMPORT_OUTCOME_UNCHANGED: IMPORTED}


@contextlib.asynccontextmanager
async def jump(nodes: Nodes, victim: str) -> AsyncIterator[None]:
    """The time of day of a node jumps, and back."""
    nodes.clocks[victim].move(nodes.rng.choice(JUMPS))
    yield
    await asyncio.sleep(1.0)
    nodes.clocks[victim].move(timedelta())


@contextlib.asynccontextmanager
async def end_connection(nodes: Nodes, victim: str) -> AsyncIterator[None]:
    """PostgreSQL ends the connection of a node."""
    _databases(nodes).execute(
        f"SELECT pg_terminate_backend(pid::int) FROM nodes WHERE address = '{nodes.peer_address(victim)}'"
    )
    yield


def cut_off(*from_whom: str) -> Strike:
    """A node hears nothing of some hosts, and they nothing of it: "peer" is another node, "databases" are both."""

    @contextlib.asynccontextmanager
    async def strike(nodes: Nodes, victim: str) -> AsyncIterator[None]:
        network, peers = _network(nodes), [name for name in nodes.names if name != victim]
        whom = {"databases": Pair.HOSTS, "peer": (nodes.rng.choice(peers),), Network.HERE: (Network.HERE,)}
        others = [host for one in from_whom for host in whom[one]]
        network.cut(victim, *others)
        try:
            yield
            await asyncio.sleep(CUT_SECONDS)
        finally:
            network.mend(victim, *others)

    return strike


@contextlib.asynccontextmanager
async def slow(nodes: Nodes, victim: str) -> AsyncIterator[None]:
    """The link of a node has little room."""
    network = _network(nodes)
    network.slow(victim, SLOW_KILOBITS)
    try:
        yield
        await asyncio.sleep(CUT_SECONDS)
    finally:
        network.hasten(victim)


@contextlib.asynccontextmanager
async def restart(nodes: Nodes, victim: str) -> AsyncIterator[None]:
    """The database crashes and is started again."""
    del victim
    databases = _databases(nodes)
    await asyncio.to_thread(databases.restart)
    yield
    await asyncio.to_thread(databases.wait_for_standby)


@contextlib.asynccontextmanager
async def fail_over(nodes: Nodes, victim: str) -> AsyncIterator[None]:
    """The database's host vanishes in the middle of COMMITs, and its standby takes its place."""
    del victim
    databases = _databases(nodes)
    await asyncio.to_thread(databases.hold, is_received=nodes.rng.random() < 0.5)
    while not databases.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"):
        await asyncio.sleep(0.01)
    gone = databases.primary_host
    if nodes.network is not None:  # its connections do not end: nobody says a word
        nodes.network.cut(gone, *nodes.names)
    await asyncio.to_thread(databases.fail_over)
    yield
    if nodes.network is not None:
        await asyncio.sleep(CUT_SECONDS)
        nodes.network.mend(gone, *nodes.names)
    await asyncio.to_thread(databases.return_standby)


FAULTS = (
    Fault("kill", kill),
    Fault("SIGTERM", end),
    Fault("SIGSTOP 1 s", stop(1)),
    Fault("SIGSTOP 2 s", stop(2)),
    Fault("SIGSTOP 10 s", stop(10)),
    Fault("clock jumps", jump, "clocks"),
    Fault("connection ended", end_connection, "databases"),
    Fault("rolling upgrade", upgrade, "databases"),
    Fault("start in an import", start_in_import, "databases"),
    Fault("database restarts", restart, "databases"),
    Fault("failover in COMMIT", fail_over, "databases"),
    Fault("cut off from database", cut_off("databases"), "network"),
    Fault("cut off from a node", cut_off("peer"), "network"),
    Fault("cut off from clients", cut_off(Network.HERE), "network"),
    Fault("slow link", slow, "network"),
)


def _databases(nodes: Nodes) -> Pair:
    assert nodes.databases is not None
    return nodes.databases


def _network(nodes: Nodes) -> Network:
    assert nodes.network is not None
    return nodes.network
