"""Nodes on a real PostgreSQL: who holds which shard, and what becomes of a node that loses its connection."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.support.fakes.domain_values import NOW, adding, creating, make_message
from tests.support.postgres import PostgresServer
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.errors import OutcomeUnknown, QuotaExceeded, SessionMoving, StorageBusy, StorageError
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.domain.shards import SHARDS, shard_of
from turnwire.ports.commit import Committed, RequireQuota
from turnwire.ports.ownership import ConnectionLost
from turnwire.ports.store import Standing, StoredEvent
from turnwire.storage.postgres import nodes, writing_database
from turnwire.storage.postgres.connection import opened
from turnwire.storage.postgres.nodes import MAX_NODES, SILENCE, NodeDatabase, PostgresLocks
from turnwire.storage.postgres.store import PostgresSettings, PostgresStore
from turnwire.storage.sql.accounts import totals

pytestmark = pytest.mark.slow

ALL = range(SHARDS)


class Node(NamedTuple):
    """A store that writes with others."""

    store: PostgresStore
    locks: PostgresLocks
    published: list[StoredEvent]

    async def create(self, session_id: str) -> int:
        """Makes a session, and returns the position of its event."""
        await self.store.commit(creating(session_id))
        return self.published[-1].event.position


@contextlib.asynccontextmanager
async def node(url: str, address: str) -> AsyncIterator[Node]:
    """Runs a node."""
    published: list[StoredEvent] = []
    store = await PostgresStore.open(PostgresSettings(url=url, node=address), ProtoCodec(), published.extend)
    try:
        yield Node(store, await store.locks(), published)
    finally:
        await store.aclose()


def end_connections(url: str, which: str = "nodes") -> None:
    """Has PostgreSQL end the connections of all nodes."""
    with contextlib.closing(opened(url, read_only=False)) as db:
        assert db.rows(f"SELECT pg_terminate_backend(CAST(pid AS int)) FROM {which}")


async def lost(node: Node) -> float:
    """Returns after how many seconds a node knows that it has lost its connection."""
    began = time.monotonic()
    with pytest.raises(ConnectionLost):
        while True:
            await node.locks.wait(0.01)
    return time.monotonic() - began


async def test_each_shard_has_one_holder(postgres_url: str) -> None:
    """A shard of one node goes to another when it is given; all see who has what."""
    async with node(postgres_url, "a:1") as a, node(postgres_url, "b:1") as b:
        assert await a.locks.take(range(100)) == frozenset(range(100))
        assert await b.locks.take(range(50, 150)) == frozenset(range(100, 150))
        for held in (await a.locks.held(), await b.locks.held()):
            assert held.nodes == 2
            assert held.owners == {n: "a:1" if n < 100 else "b:1" for n in range(150)}
        await a.locks.give(range(90, 100))
        assert await b.locks.take(ALL) == frozenset((*range(90, 100), *range(150, SHARDS)))
        await a.locks.leave()
        assert (await b.locks.held()).nodes == 1


async def test_a_node_writes_to_its_own_sessions_alone(postgres_url: str) -> None:
    """A commit for another shard stores nothing, and neither does one that comes after the shard was given."""
    async with node(postgres_url, "a:1") as a, node(postgres_url, "b:1") as b:
        own = shard_of("ses_1")
        await a.locks.take([own])
        await b.locks.take(set(ALL) - {own})
        with pytest.raises(SessionMoving):
            await b.store.commit(creating("ses_1"))
        await a.create("ses_1")
        await a.locks.give([own])
        with pytest.raises(SessionMoving):
            await a.store.commit(creating("ses_1"))
        assert [one.session_id for one in (await b.store.of(DEFAULT_TENANT).log_events(0, None)).events] == ["ses_1"]


async def test_the_connection_is_the_fence_whatever_the_event_loop_believes(postgres_url: str) -> None:
    """A commit of a shard whose lock is not held fails at the database, and those beside it are stored."""
    async with node(postgres_url, "a:1") as a:
        await a.locks.take([shard_of("ses_1")])
        a.store._writer.owns = lambda _: True
        outcomes = await asyncio.gather(
            a.store.commit(creating("ses_2")), a.store.commit(creating("ses_1")), return_exceptions=True
        )
        assert isinstance(outcomes[0], SessionMoving)
        assert [one.event.session_id for one in a.published] == ["ses_1"]


async def test_the_log_of_all_sessions_ends_where_an_event_may_still_come(postgres_url: str) -> None:
    """Events behind a transaction that has not ended are read when that has ended; those of one session at once."""
    async with node(postgres_url, "a:1") as a:
        await a.locks.take(ALL)
        store, first = a.store.of(DEFAULT_TENANT), await a.create("ses_1")
        with contextlib.closing(opened(postgres_url, read_only=False)) as other:
            with other.transaction():
                other.rows("SELECT pg_current_xact_id()")
                second = await a.create("ses_2")
                page = await store.log_events(0, None)
                assert [event.position for event in page.events] == [first]
                assert page.last == (await store.log_bounds()).head == first
                at_the_end = await store.log_events(first, None)
                assert (at_the_end.last, at_the_end.events) == (first, ())
                assert first <= at_the_end.settled < second
                assert len((await store.session_events("ses_2", 0, None)).events) == 1
            assert [event.position for event in (await store.log_events(first, None)).events] == [second]
            assert (await store.log_events(second, None)).settled > second


async def test_positions_are_unique_and_grow_with_each_session(postgres_url: str) -> None:
    """Whoever writes, and in whatever order."""
    async with node(postgres_url, "a:1") as a, node(postgres_url, "b:1") as b:
        names = [f"ses_{number}" for number in range(40)]
        mine = {shard_of(name) for name in names[:20]}
        await a.locks.take(mine)
        await b.locks.take(set(ALL) - mine)
        owners = [a if shard_of(name) in mine else b for name in names]
        await asyncio.gather(*(one.store.commit(creating(name)) for one, name in zip(owners, names, strict=True)))
        positions = [one.event.position for one in (*a.published, *b.published)]
        assert len(set(positions)) == len(positions) == 40
        for one in (a, b):
            assert [stored.event.position for stored in one.published] == sorted(
                p.event.position for p in one.published
            )
        newest = max(positions)
        await a.locks.give(mine)
        await b.locks.take(mine)
        await b.store.commit(creating("ses_new"))
        assert b.published[-1].event.position > newest


async def test_a_silent_node_loses_its_shards_and_an_idle_one_does_not(postgres_url: str) -> None:
    """The thread of the connection keeps it while the event loop stands; without it PostgreSQL ends the connection."""
    async with node(postgres_url, "a:1") as a, node(postgres_url, "b:1") as b:
        await a.locks.take(ALL)
        time.sleep(SILENCE.total_seconds() * 1.5)
        assert a.locks.silence() < SILENCE.total_seconds()
        assert await b.locks.take(ALL) == frozenset()
        await a.store._writing.run(lambda _: time.sleep(SILENCE.total_seconds() * 1.5))
        assert await b.locks.take(ALL) == frozenset(ALL)
        with pytest.raises((SessionMoving, OutcomeUnknown)):
            await a.store.commit(creating("ses_1"))
        await lost(a)


async def test_a_node_that_hangs_between_statements_that_it_sends_together_loses_its_shards(postgres_url: str) -> None:
    """PostgreSQL waits for more then, and takes the connection neither for idle nor for one in a transaction."""
    async with node(postgres_url, "a:1") as a, node(postgres_url, "b:1") as b:
        await a.locks.take(ALL)
        goes_on = threading.Event()

        def hang(db: NodeDatabase) -> None:
            with db.transaction(), db.together():
                db.run("UPDATE log_state SET pruned_through = pruned_through + 1")
                assert goes_on.wait(30)

        hanging = asyncio.ensure_future(a.store._writing.run(hang))  # type: ignore[arg-type]
        try:
            began = time.monotonic()
            async with asyncio.timeout(20):
                while not await b.locks.take(ALL):
                    await b.locks.held()
                    await asyncio.sleep(0.05)
            assert time.monotonic() - began > SILENCE.total_seconds() / 2
        finally:
            goes_on.set()
        with pytest.raises(StorageError):
            await hanging
        assert (await b.locks.held()).owners == dict.fromkeys(ALL, "b:1")


async def test_a_node_that_lost_its_connection_connects_again_without_shards(postgres_url: str) -> None:
    """It says so within a moment, stores nothing until it has shards again, and goes on then."""
    async with node(postgres_url, "a:1") as a:
        await a.locks.take(ALL)
        first = await a.create("ses_1")
        token = a.store.moment(DEFAULT_TENANT)
        end_connections(postgres_url)
        assert await lost(a) < 1.0
        for state in ("lost", "renewed"):
            with pytest.raises(SessionMoving):
                await a.store.commit(creating("ses_2"))
            if state == "lost":
                await a.locks.renew()
        assert (await a.locks.held()).owners == {}
        assert await a.locks.take(ALL) == frozenset(ALL)
        assert await a.create("ses_2") > first
        assert a.store.is_writable()
        assert a.store.standing(token) is Standing.PAST


async def test_a_node_goes_on_when_the_database_comes_back(postgres: PostgresServer) -> None:
    """It tries until it is there."""
    url = postgres.new_database()
    name = urlsplit(url).path.removeprefix("/")
    async with node(url, "a:1") as a:
        postgres.execute("postgres", f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        end_connections(postgres.url("postgres"), f"pg_stat_activity WHERE datname = '{name}'")
        await lost(a)
        renewing = asyncio.create_task(a.locks.renew())
        await asyncio.wait({renewing}, timeout=0.5)
        assert not renewing.done()
        postgres.execute("postgres", f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await renewing
        assert await a.locks.take(ALL) == frozenset(ALL)


async def test_a_timeline_begins_with_a_history_and_not_with_a_node(postgres_url: str) -> None:
    """Tokens of one node are good at all; when the database has another history, those beyond it are replaced."""
    async with node(postgres_url, "a:1") as a:
        await a.locks.take(ALL)
        await a.create("ses_1")
        before = a.store.moment(DEFAULT_TENANT)
        async with node(postgres_url, "b:1") as b:
            assert b.store.standing(before) is Standing.PAST
            assert b.store.moment(DEFAULT_TENANT).timeline == before.timeline
        with contextlib.closing(opened(postgres_url, read_only=False)) as db:  # as a restored backup has it
            db.run("DELETE FROM events")
            db.run("UPDATE lineage SET history = 'another'")
        end_connections(postgres_url)
        await lost(a)
        await a.locks.renew()
        assert a.store.moment(DEFAULT_TENANT).timeline != before.timeline
        assert a.store.standing(before) is Standing.REPLACED


async def test_a_server_that_writes_alone_and_nodes_exclude_each_other(postgres_url: str) -> None:
    """Whoever comes second does not start, and says why."""
    alone = PostgresSettings(url=postgres_url)
    async with node(postgres_url, "a:1"):
        with pytest.raises(StorageBusy, match="in use by another server"):
            await PostgresStore.open(alone, ProtoCodec(), lambda _: None)
    store = await PostgresStore.open(alone, ProtoCodec(), lambda _: None)
    try:
        with pytest.raises(StorageBusy, match="no node of a cluster"):
            async with node(postgres_url, "a:1"):
                pass
    finally:
        await store.aclose()


async def test_a_pool_of_connections_is_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind one, the process that serves a statement is not the one that the client was told of."""
    told = NodeDatabase.row
    monkeypatch.setattr(NodeDatabase, "row", lambda db, text, *rest: (1,) if "pid()" in text else told(db, text, *rest))
    with pytest.raises(StorageError, match="pool"):
        async with node(postgres_url, "a:1"):
            pass


async def test_what_a_tenant_has_is_counted_over_all_nodes(postgres_url: str) -> None:
    """In the database at once, and in the memory of each node soon."""
    async with node(postgres_url, "a:1") as a, node(postgres_url, "b:1") as b:
        await a.locks.take([shard_of("ses_1")])
        await b.locks.take([shard_of("ses_2")])
        await asyncio.gather(a.store.commit(creating("ses_1")), b.store.commit(creating("ses_2")))
        for one in (a, b):
            while one.store.of(DEFAULT_TENANT).account(NOW).sessions != 2:
                await asyncio.sleep(0.01)


async def test_quotas_hold_whatever_nodes_store_in_one_moment(postgres_url: str) -> None:
    """Each has room for what the other one has already stored: as many sessions and bytes as are allowed, in all."""
    async with node(postgres_url, "a:1") as a, node(postgres_url, "b:1") as b:
        names = [f"ses_{number}" for number in range(40)]
        mine = {shard_of(name) for name in names[:20]}
        await a.locks.take(mine)
        await b.locks.take(set(ALL) - mine)
        stores = [(a if shard_of(name) in mine else b).store for name in names]

        commits = [creating(name, NOW, RequireQuota(11, 0)) for name in names]
        made = [store.commit(commit) for store, commit in zip(stores, commits, strict=True)]
        outcomes = await asyncio.gather(*made, return_exceptions=True)
        assert sum(isinstance(one, QuotaExceeded) for one in outcomes) == 29
        there = [n for n, one in enumerate(outcomes) if isinstance(one, Committed)]
        with contextlib.closing(opened(postgres_url, read_only=True)) as db:
            assert totals(db, DEFAULT_TENANT)[0] == 11
            size = totals(db, DEFAULT_TENANT)[1] + 6_000
            messages = {n: make_message(f"msg_{n}", "x" * 1_000, session_id=names[n]) for n in there}
            made = [stores[n].commit(adding(messages[n], NOW, (), RequireQuota(0, size))) for n in there]
            outcomes = await asyncio.gather(*made, return_exceptions=True)
            assert 5 < sum(isinstance(one, QuotaExceeded) for one in outcomes) < 11
            assert totals(db, DEFAULT_TENANT)[1] <= size


async def test_nodes_that_start_together_seal_tokens_alike(postgres_url: str) -> None:
    """Those of one are good at the other."""
    async with contextlib.AsyncExitStack() as stack:
        opening = (stack.enter_async_context(node(postgres_url, address)) for address in ("a:1", "b:1", "c:1"))
        started = await asyncio.gather(*opening)
        assert len({one.store.token_key for one in started}) == 1
        assert len({one.store.moment(DEFAULT_TENANT).timeline for one in started}) == 1


async def test_nodes_that_index_in_one_second_give_no_number_twice(postgres_url: str) -> None:
    """Each has a lane of its own, and what one has given before is not given again after a takeover."""
    async with node(postgres_url, "a:1") as a, node(postgres_url, "b:1") as b:
        names = [f"ses_{number}" for number in range(24)]
        mine = {shard_of(name) for name in names[::2]}
        await a.locks.take(mine)
        await b.locks.take(set(ALL) - mine)
        owners = {name: a if shard_of(name) in mine else b for name in names}
        await asyncio.gather(*(one.store.commit(creating(name)) for name, one in owners.items()))
        adding_all = [adding(make_message(f"msg_{name}", "words", session_id=name)) for name in names]
        for commit, one in zip(adding_all, owners.values(), strict=True):
            await asyncio.sleep(0)
            await asyncio.gather(one.store.commit(commit))
        lanes = {one.store._writing._db.lane for one in (a, b)}  # type: ignore[union-attr]
        assert len(lanes) == 2
    with contextlib.closing(opened(postgres_url, read_only=False)) as db:
        given = [row for (row,) in db.rows("SELECT id FROM search_entries")]
        assert len(given) == 24
        assert {row % MAX_NODES for row in given} == {lane for lane, _ in lanes}


async def test_more_nodes_than_lanes_are_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one does not start, and says why."""
    monkeypatch.setattr(nodes, "MAX_NODES", 1)
    async with node(postgres_url, "a:1"):
        with pytest.raises(StorageBusy, match="has 1 nodes"):
            async with node(postgres_url, "b:1"):
                pass


async def test_two_nodes_do_not_share_an_address(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call for one would reach the other. The second does not start, unless the first one ends meanwhile."""
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(node(postgres_url, "a:1"))
        with monkeypatch.context() as patch:
            patch.setattr(writing_database, "LOCK_SECONDS", 0.2)
            with pytest.raises(StorageBusy, match=r"cluster\.advertise: another node has the address a:1"):
                await stack.enter_async_context(node(postgres_url, "a:1"))
        second = asyncio.create_task(stack.enter_async_context(node(postgres_url, "a:1")))
        with contextlib.closing(opened(postgres_url, read_only=False)) as db:
            while len(db.rows("SELECT 1 FROM nodes WHERE address = 'a:1'")) < 2:
                await asyncio.sleep(0.01)
        await first.store.aclose()
        await second


async def test_a_quota_that_others_use_up_meanwhile_is_checked_again(postgres_url: str) -> None:
    """A transaction that waits for the totals of its tenant decides by what it finds then; units beside it go on."""
    async with node(postgres_url, "a:1") as a:
        await a.locks.take(ALL)
        await a.create("ses_1")
        with contextlib.closing(opened(postgres_url, read_only=False)) as other:
            with other.transaction():
                other.run("UPDATE tenant_totals SET sessions = sessions + 3")
                free, bounded = (
                    a.store.commit(creating(f"ses_{number}", NOW, *quota))
                    for number, quota in ((2, ()), (3, (RequireQuota(4, 0),)))
                )
                while not other.rows("SELECT 1 FROM pg_locks WHERE NOT granted"):
                    await asyncio.sleep(0.01)
            await free
            with pytest.raises(QuotaExceeded) as refused:
                await bounded
            assert refused.value.metadata == {"quota": "sessions", "limit": "4", "used": "5"}
            assert totals(other, DEFAULT_TENANT)[0] == 5
