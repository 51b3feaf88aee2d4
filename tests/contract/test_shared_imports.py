"""Imports of several servers over the real store: each brings the sessions that it owns."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from copy import copy
from pathlib import Path

import pytest

from tests.support.oracles.archives import golden_records, real_id
from tests.support.servers.moving import MINE, OTHERS, Moving, lines, moving
from turnwire.core.servers import PartRequest, ServerLost
from turnwire.core.use_cases.moving import runs
from turnwire.core.use_cases.moving.bringing import NOT_ASKED, Brought, ImportRequest
from turnwire.core.use_cases.moving.formats import OWN, Formats
from turnwire.core.use_cases.moving.identities import Source
from turnwire.core.use_cases.moving.imports import Imports
from turnwire.core.use_cases.moving.progress import ImportOutcome
from turnwire.core.use_cases.moving.shares import ShareReport, ShareRequest
from turnwire.domain.errors import SessionMoving, ShuttingDown, StorageFull
from turnwire.domain.principal import Principal
from turnwire.domain.shards import shard_of
from turnwire.feed.memory import Subscription
from turnwire.interop.turnwire_lines.reading import LinesReader
from turnwire.ports.commit import Commit, Committed
from turnwire.ports.moving.archives import ArchiveFormat

COUNT = 12
NAMES = sorted(map(str, range(COUNT)), key=lambda name: real_id("ses", name))
"""In the order in which an export has their sessions: all were created at the same time."""

IDS = [real_id("ses", name) for name in NAMES]


class Cluster:
    """Two servers, a and b, on one store."""

    def __init__(self, here: Moving) -> None:
        self.here = here
        self.owner: Callable[[int], str | None] = lambda shard: "ab"[shard % 2]
        self.shares = Counter[str]()
        self.after_report: Callable[[str], None] = lambda _: None
        self.when_looking: Callable[[], None] = lambda: None
        formats = Formats({OWN: ArchiveFormat(LinesReader(2**22), None)})
        self.servers = {}
        for name in "ab":
            environment = copy(here.environment)
            environment.servers = OneServer(self, name)
            self.servers[name] = Imports(environment, formats)

    def imports_of(self, principal: Principal) -> Imports:
        """Returns the imports of the server that has those of a tenant."""
        owner = self.owner(shard_of(principal.tenant))
        assert owner is not None
        return self.servers[owner]

    @contextlib.contextmanager
    def as_server(self, principal: Principal) -> Iterator[None]:
        """Lets imports of a tenant go to the servers."""
        alone, self.here.imports = self.here.imports, self.imports_of(principal)
        try:
            yield
        finally:
            self.here.imports = alone


class OneServer:
    """The servers as one of them sees them; see `Servers`."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def owns(self, key: str) -> bool:
        """Returns whether it owns the shard of an id."""
        return self.owner_of(shard_of(key)) == ""

    def owner_of(self, shard: int) -> str | None:
        """Returns the owner of a shard."""
        owner = self.cluster.owner(shard)
        return "" if owner == self.name else owner

    async def changed(self, _seconds: float) -> None:
        """Looks again at once."""
        self.cluster.when_looking()
        await asyncio.sleep(0.005)

    async def share(self, address: str, principal: Principal, request: bytes) -> AsyncGenerator[bytes]:
        """Has the other one carry out its share."""
        self.cluster.shares[address] += 1
        async with contextlib.aclosing(self.cluster.servers[address].shares.serve(principal, request)) as reports:
            async for report in reports:
                yield report
                self.cluster.after_report(address)

    def watch_all(self, tenant: str, request: PartRequest) -> Subscription:
        """Is not needed."""
        raise NotImplementedError


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Two servers on one store."""
    async with moving(tmp_path) as here:
        made = Cluster(here)
        yield made
        for imports in made.servers.values():
            await imports.aclose()


def archive() -> bytes:
    """Returns an archive of all sessions."""
    return lines([one for name in NAMES for one in golden_records(name)])


def owned_by(name: str) -> set[str]:
    """Returns the sessions of the archive that a server owns."""
    return {session_id for session_id in IDS if "ab"[shard_of(session_id) % 2] == name}


async def test_each_session_is_brought_by_its_owner(cluster: Cluster) -> None:
    """The outcome is that of one server; the same archive again changes nothing, and all of it is found."""
    assert owned_by("a") and owned_by("b")
    with cluster.as_server(MINE):
        done = await cluster.here.bring(archive())
        assert {one.session_id for one in done.sessions} == set(IDS)
        assert {one.outcome for one in done.sessions} == {ImportOutcome.CREATED}
        assert (done.last.session_count, done.last.problem_count, done.last.incomplete_count) == (COUNT, 0, 0)
        assert done.last.done_bytes == done.last.total_bytes == len(archive())
        assert sum(cluster.shares.values()) == 1
        again = await cluster.here.bring(archive())
        assert Counter(one.outcome for one in again.sessions) == {ImportOutcome.UNCHANGED: COUNT}
        checked = await cluster.here.bring(archive(), verify=True)
        assert (checked.last.session_count, checked.last.incomplete_count) == (COUNT, 0)
    assert await cluster.here.archive() == archive()


async def test_what_stores_nothing_asks_nobody(cluster: Cluster) -> None:
    """The store has all that is to be compared."""
    with cluster.as_server(MINE):
        for fields in ({"dry_run": True}, {"verify": True}):
            done = await cluster.here.bring(archive(), **fields)
            assert (done.last.session_count, done.last.incomplete_count) == (COUNT, COUNT)
            assert done.last.problem_count == (COUNT if "verify" in fields else 0)
    assert not cluster.shares


@pytest.mark.slow
async def test_a_session_whose_id_is_taken_goes_to_the_owner_of_the_next(cluster: Cluster) -> None:
    """It gets the id that one server would have given it, and is known by it later."""
    await cluster.here.bring(archive(), OTHERS)
    key, new_id = cluster.here.store.token_key, cluster.here.environment.new_id
    expected = {}
    for session_id in IDS:
        candidates = Source(MINE.tenant, OWN, session_id, is_own=True).candidates(key, new_id)
        expected[session_id] = [next(candidates).session_id for _ in range(2)][1]
    assert any(shard_of(one) % 2 != shard_of(other) % 2 for one, other in expected.items())
    with cluster.as_server(MINE):
        for outcome in (ImportOutcome.CREATED, ImportOutcome.UNCHANGED):
            done = await cluster.here.bring(archive())
            assert {one.source_id: one.session_id for one in done.sessions} == expected
            assert {one.outcome for one in done.sessions} == {outcome}


async def test_what_a_lost_server_has_left_is_brought_by_the_next_owner(cluster: Cluster) -> None:
    """Also what it has brought without having told of it: that is found to be there."""

    def lose(_address: str) -> None:
        cluster.owner = lambda _: owner
        raise ServerLost

    owner = cluster.owner(shard_of(MINE.tenant))
    cluster.after_report = lose
    with cluster.as_server(MINE):
        done = await cluster.here.bring(archive())
    assert {one.session_id for one in done.sessions} == set(IDS)
    assert (done.last.session_count, done.last.problem_count, done.last.incomplete_count) == (COUNT, 0, 0)
    assert await cluster.here.archive() == archive()


async def test_what_a_lost_server_has_left_waits_for_the_next_owner(cluster: Cluster) -> None:
    """Also right after a round that has brought something."""
    owner = cluster.owner
    this = owner(shard_of(MINE.tenant))

    def lose(_address: str) -> None:
        cluster.owner = lambda shard: this if owner(shard) == this else None
        raise ServerLost

    def take() -> None:
        cluster.owner = lambda _: this

    cluster.after_report, cluster.when_looking = lose, take
    with cluster.as_server(MINE):
        done = await cluster.here.bring(archive())
    assert {one.session_id for one in done.sessions} == set(IDS)
    assert (done.last.session_count, done.last.problem_count, done.last.incomplete_count) == (COUNT, 0, 0)


@pytest.mark.slow
async def test_sessions_that_nobody_takes_are_left_for_the_same_request(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a problem; the upload stays."""
    monkeypatch.setattr(runs, "PATIENCE_SECONDS", 0.02)
    here, owner = cluster.here, cluster.owner
    upload_id = await here.upload(archive())
    with cluster.as_server(MINE):
        [other] = {"a", "b"} - {str(owner(shard_of(MINE.tenant)))}
        cluster.owner = lambda shard: None if owner(shard) == other else owner(shard)
        done = await here.follow(MINE, upload_id=upload_id, request_id="once")
        assert {one.source_id for one in done.problems} == owned_by(other)
        assert {one.reason for one in done.problems} == {"NOT_STORED"}
        assert done.last.incomplete_count == len(owned_by(other))
        assert {one.session_id for one in done.sessions} == set(IDS) - owned_by(other)
        cluster.owner = owner
        rest = await here.follow(MINE, upload_id=upload_id, request_id="once")
    created = {one.session_id for one in rest.sessions if one.outcome is ImportOutcome.CREATED}
    assert (created, rest.last.session_count, rest.last.incomplete_count) == (owned_by(other), COUNT, 0)
    assert await here.archive() == archive()


async def test_a_server_that_cannot_store_ends_the_import(cluster: Cluster) -> None:
    """As on one server; what is stored stays."""

    def fill(_address: str) -> None:
        raise StorageFull("no space is left for the database")

    cluster.after_report = fill
    with cluster.as_server(MINE), pytest.raises(StorageFull):
        await cluster.here.bring(archive())


@pytest.mark.slow
async def test_a_server_that_gives_a_tenant_away_ends_its_import(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same request goes on at the next one. Meanwhile the first one takes none."""
    here, go_on, begun = cluster.here, asyncio.Event(), asyncio.Event()

    async def removals() -> None:
        begun.set()
        await go_on.wait()

    monkeypatch.setattr(here.store, "removals", removals)
    owner, imports = cluster.owner, cluster.imports_of(MINE)
    upload_id = await here.upload(archive())
    with cluster.as_server(MINE):
        running = asyncio.create_task(here.follow(MINE, upload_id=upload_id))
        await begun.wait()
        assert imports.is_idle(lambda key: key == OTHERS.tenant)
        assert not imports.is_idle(lambda key: key == MINE.tenant)
        cluster.owner = lambda shard: {"a": "b", "b": "a"}[str(owner(shard))]
        await imports.leave(lambda key: key == MINE.tenant)
        with pytest.raises(ShuttingDown):
            await running
        assert imports.is_idle(lambda _: True)
        with pytest.raises(SessionMoving):
            await here.follow(MINE, upload_id=upload_id)
    go_on.set()
    with cluster.as_server(MINE):
        done = await here.follow(MINE, upload_id=upload_id)
    assert done.last.session_count == COUNT
    assert await here.archive() == archive()


async def test_a_share_ends_with_the_session_that_it_writes(cluster: Cluster) -> None:
    """Its shard goes to another server, which brings the session; nothing of it is stored twice."""
    here, owner = cluster.here, cluster.owner
    asked, real = asyncio.Event(), here.store.commit
    [other] = {"a", "b"} - {str(owner(shard_of(MINE.tenant)))}
    imports = cluster.servers[other]

    def commit(unit: Commit) -> asyncio.Future[Committed]:
        if unit.session_id in owned_by(other):
            asked.set()
        return real(unit)

    here.store.commit = commit  # type: ignore[method-assign]
    with cluster.as_server(MINE):
        running = asyncio.create_task(here.bring(archive()))
        await asked.wait()
        assert not imports.is_idle(lambda key: key in owned_by(other))
        [this] = {"a", "b"} - {other}
        cluster.owner = lambda _: this
        await imports.leave(lambda key: key in owned_by(other))
        done = await running
    assert {one.session_id for one in done.sessions} == set(IDS)
    assert (done.last.session_count, done.last.incomplete_count) == (COUNT, 0)
    assert await here.archive() == archive()


async def test_another_share_of_a_tenant_ends_the_one_before(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller is gone: two would bring the same sessions."""
    here, go_on, begun = cluster.here, asyncio.Event(), asyncio.Event()

    async def removals() -> None:
        begun.set()
        await go_on.wait()

    monkeypatch.setattr(here.store, "removals", removals)
    shares, name = cluster.servers["a"].shares, sorted(owned_by("a"))[0]
    request = ImportRequest(upload_id=await here.upload(archive()))
    share = ShareRequest(request, bytes(0 if one == name else NOT_ASKED for one in IDS))
    before = shares.carry_out(MINE, share)
    assert not (await anext(before)).brought
    await begun.wait()
    after = asyncio.create_task(all_of(shares.carry_out(MINE, share)))
    with pytest.raises(ShuttingDown):
        await all_of(before)
    go_on.set()
    [brought] = await after
    assert brought.session is not None and brought.session.outcome is ImportOutcome.CREATED
    assert (brought.number, brought.session.session_id) == (IDS.index(name), name)


async def all_of(reports: AsyncGenerator[ShareReport]) -> list[Brought]:
    """Returns what a share brings."""
    return [brought async for report in reports for brought in report.brought]
