"""A node of a cluster: the connection on which it writes, and the locks of shards on that connection.

PostgreSQL ends a silent connection, rolls back its open transaction, and only then releases its locks. So no other node
can take a shard while its owner can still write. The proof needs neither a heartbeat nor a clock of our own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import structlog
from psycopg.pq import PipelineStatus

from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.errors import DomainError, OutcomeUnknown, SessionMoving, StorageBusy, StorageError
from turnwire.domain.shards import shard_of
from turnwire.ports.ownership import ConnectionLost, Held
from turnwire.storage.postgres.connection import (
    FAILURES,
    POSTGRES,
    WAITING_OF_NODES,
    PostgresDatabase,
    configure,
    connected,
    is_lost,
)
from turnwire.storage.postgres.writing_database import POSITION_BITS, WritingDatabase
from turnwire.storage.rows import Row
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.engine import last_position
from turnwire.storage.sql.removal import GIVE_UP
from turnwire.storage.sql.sessions import DELETING
from turnwire.storage.sql.writer import NoFiles

if TYPE_CHECKING:
    from psycopg.abc import Params, Query

SHARD = 0x7475_726E
"""Class of the locks of shards; the number of the lock is the shard."""

NODE = SHARD + 1
"""Class of the lock that all nodes share: its holders want shards."""

TASK = SHARD + 2
"""Class of the locks of tasks that one node at a time does."""

LANE = SHARD + 3
"""Class of the locks of number ranges that one node uses; see `Database.lane`."""

MAX_NODES = 16
"""Maximum number of nodes, each with a lane."""

SILENCE = timedelta(seconds=1.5)
"""Time that PostgreSQL waits for a statement before it ends the connection of a node."""

BEAT = SILENCE / 5
"""Idle time of the connection's thread after which it sends a statement."""

_MILLISECONDS = round(SILENCE.total_seconds() * 1000)

_SETTINGS = {
    "idle_session_timeout": _MILLISECONDS,
    "idle_in_transaction_session_timeout": _MILLISECONDS,
    "tcp_user_timeout": _MILLISECONDS,
    "client_connection_check_interval": _MILLISECONDS // 3,
    "tcp_keepalives_idle": 1,
    "tcp_keepalives_interval": 1,
    "tcp_keepalives_count": 2,
}

_IN_THIS_DATABASE = "held.database = (SELECT oid FROM pg_database WHERE datname = current_database())"

_HELD = f"""
SELECT CAST(held.classid AS bigint), CAST(held.objid AS bigint), coalesce(nodes.address, '')
FROM pg_locks AS held LEFT JOIN nodes ON nodes.pid = held.pid
WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 2
    AND CAST(held.classid AS bigint) IN ({SHARD}, {NODE})
    AND {_IN_THIS_DATABASE}
"""

_END_SILENT = f"""
SELECT pg_terminate_backend(activity.pid) FROM pg_stat_activity AS activity JOIN nodes USING (pid)
WHERE activity.state = 'active' AND activity.wait_event = 'ClientRead' AND activity.pid <> pg_backend_pid()
    AND clock_timestamp() - activity.state_change > interval '{_MILLISECONDS} milliseconds'
"""
"""Ends the connections of nodes that are silent between statements that they send together. PostgreSQL waits for the
next one then without any limit: it takes the connection neither for idle nor for idle in a transaction."""

_WAITS = f"{POSTGRES.field('turns.body', 'status')} = '{TurnStatus.QUEUED}'"

_WORK_ELSEWHERE = f"""
SELECT tenant, count(*) FILTER (WHERE NOT {_WAITS}), count(*) FILTER (WHERE {_WAITS})
FROM turns JOIN sessions ON sessions.id = turns.session
WHERE turns.ended = 0 AND NOT sessions.shard = ANY(?) GROUP BY tenant
"""

_HORIZON = f"""
SELECT position_offset + (CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint) << {POSITION_BITS})
FROM lineage
"""

_SAME_ADDRESS = f"""
SELECT 1 FROM nodes JOIN pg_locks AS held USING (pid)
WHERE address = ? AND pid <> pg_backend_pid() AND held.locktype = 'advisory' AND held.granted
    AND CAST(held.classid AS bigint) = {NODE} AND {_IN_THIS_DATABASE}
"""

T = TypeVar("T")

log = structlog.get_logger()


class _Connection(psycopg.Connection[Row]):
    """A connection that notes when it sent the last statement that was answered."""

    answered_at = 0.0

    def execute(self, query: "Query", params: "Params | None" = None, **options: Any) -> "psycopg.Cursor[Row]":
        """Carries out a statement."""
        sent_at = time.monotonic()
        cursor = super().execute(query, params, **options)  # type: ignore[arg-type]  # its type has more than it takes
        if self.pgconn.pipeline_status == PipelineStatus.OFF:  # else nothing is answered yet
            self.answered_at = sent_at
        return cursor


class NodeReader(PostgresDatabase):
    """A connection on which a node reads. Other nodes store events at the same time, each in an order of its own."""

    waiting = WAITING_OF_NODES

    def horizon(self) -> int:
        """Returns the position of the oldest open transaction: all events before it are stored or will never be.

        A position has the number of its transaction, on every node.
        """
        [(position,)] = self.rows(_HORIZON)
        return int(position)


class NodeDatabase(WritingDatabase):
    """The connection on which a node writes. It never reconnects by itself: losing it loses the shards."""

    waiting = WAITING_OF_NODES

    def __init__(self, url: str, address: str) -> None:
        """Connects. Raises an error of psycopg; see `join`."""
        self._address = address
        self.shards = set[int]()
        """The shards whose locks this connection holds. Changed on its thread, between transactions."""
        super().__init__(url)

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last answered statement was sent. For any thread."""
        return time.monotonic() - (self.connection.answered_at if isinstance(self.connection, _Connection) else 0.0)

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended, and its locks with it. For any thread."""
        return bool(self.connection.closed)

    def join(self) -> None:
        """Makes this connection the one of a node.

        Raises:
            StorageError: it leads to a connection pool, which does not keep one connection for a client, so that its
                locks mean nothing.
            StorageBusy: there are too many nodes.
        """
        if self.row("SELECT pg_backend_pid()") != (self.connection.info.backend_pid,):
            self.connection.close()
            raise StorageError("storage.url leads to a pool of connections: a node needs one to PostgreSQL itself")
        self.run(
            "INSERT INTO nodes (pid, address) VALUES (pg_backend_pid(), ?)"
            " ON CONFLICT (pid) DO UPDATE SET address = excluded.address",
            (self._address,),
        )
        self.run("DELETE FROM nodes WHERE pid NOT IN (SELECT pid FROM pg_stat_activity)")
        free = f"pg_try_advisory_lock({LANE}, CAST(lane AS int))"
        lane = self.row(f"SELECT lane FROM generate_series(0, ?) AS lane WHERE {free} LIMIT 1", (MAX_NODES - 1,))
        if lane is None:
            self.connection.close()
            raise StorageBusy(f"the database has {MAX_NODES} nodes, which is the most that it can have")
        self.lane = (lane[0], MAX_NODES)
        self.row("SELECT pg_advisory_lock_shared(CAST(? AS int), 0)", (NODE,))

    def claim_address(self) -> None:
        """Returns once no other node has this node's address. For a start: the one before it may just have ended.

        Raises:
            StorageBusy: another one has it, so calls for one of them would reach the other.
        """
        self._wait(
            lambda: self.row(_SAME_ADDRESS, (self._address,)) is None,
            StorageBusy(f"cluster.advertise: another node has the address {self._address}"),
        )

    def renew(self) -> None:
        """Connects again, without any shard."""
        self.shards.clear()
        self.connection.close()
        self.connection = self._connected()
        self._lock()
        self.join()
        self.begin()

    def first_position(self, after: int) -> int:
        """Returns the position of the first event of the transaction, by its number."""
        del after
        assert self.pending is not None
        return self.position_offset + (int(self.pending) << POSITION_BITS)

    def owns(self, session_id: str) -> bool:
        """Returns whether this connection holds the lock of a session's shard."""
        return shard_of(session_id) in self.shards

    def is_first(self, task: str) -> bool:
        """Returns whether no other node does a task until its transaction ends."""
        return self.row("SELECT pg_try_advisory_xact_lock(CAST(? AS int), hashtext(?))", (TASK, task)) == (True,)

    def beat(self) -> None:
        """Sends a statement, so that PostgreSQL does not end the connection."""
        if not self.is_lost:
            try:
                self.run("SELECT 1")
            except psycopg.Error:
                self.connection.close()  # a beat that fails means a lost connection

    def held(self) -> Held:
        """Returns the owners of shards, after it has ended the connections of nodes that hang."""
        self.rows(_END_SILENT)
        rows = self.rows(_HELD)
        owners = {shard: address for kind, shard, address in rows if kind == SHARD}
        return Held(owners, sum(kind == NODE for kind, *_ in rows))

    def take(self, shards: Collection[int]) -> tuple[frozenset[int], int, bool]:
        """Takes the locks that are free, and removes the imports that former owners have not ended.

        Returns:
            The shards that it got, the newest position, above which none of their events is, and whether any of their
            sessions are to be removed.
        """
        free = f"pg_try_advisory_lock({SHARD}, CAST(shard AS int))"
        others = list(set(shards) - self.shards)  # a lock that is held would be taken twice
        rows = self.rows(f"SELECT shard FROM unnest(CAST(? AS bigint[])) AS shard WHERE {free}", (others,))
        taken = frozenset(shard for (shard,) in rows)
        if taken:
            self.run(f"{GIVE_UP} AND shard = ANY(?)", (list(taken),))
        self.shards |= taken
        removed = self.row(f"SELECT 1 {DELETING} AND shard = ANY(?) LIMIT 1", (list(taken),))
        return taken, last_position(self), removed is not None

    def give(self, shards: Collection[int]) -> None:
        """Releases locks."""
        self.shards -= set(shards)
        self.rows(
            f"SELECT pg_advisory_unlock({SHARD}, CAST(shard AS int)) FROM unnest(CAST(? AS bigint[])) AS shard",
            (list(shards),),
        )

    def work_elsewhere(self) -> dict[str, tuple[int, int]]:
        """Returns by tenant how many turns run, and how many messages wait, in sessions that this node does not own."""
        rows = self.rows(_WORK_ELSEWHERE, (list(self.shards),))
        return {tenant: (running, waiting) for tenant, running, waiting in rows}

    def leave(self) -> None:
        """Leaves the nodes that want shards."""
        self.row("SELECT pg_advisory_unlock_shared(CAST(? AS int), 0)", (NODE,))

    def _connected(self) -> "psycopg.Connection[Row]":
        return connected(self._url, _Connection, waiting=self.waiting)

    def _lock(self) -> None:
        configure(self.connection, _SETTINGS)
        self._acquire("pg_try_advisory_lock_shared", "a server that is no node of a cluster")

    def _surely(self, statement: str, parameters: Any = ()) -> "psycopg.Cursor[Row]":
        return self._once(statement, parameters)


class NodeKeeper(NoFiles):
    """The database of several nodes. Implements `turnwire.storage.sql.writer.Keeper`; see there."""

    def refusal(self, db: Database, error: Exception) -> tuple[DomainError, StorageError | None]:
        """Returns why the server rejected a transaction. Losing the connection loses the shards."""
        assert isinstance(db, NodeDatabase)
        if not (is_lost(error) or db.is_lost):
            return db.translate(error), None
        db.connection.close()
        unheard, db.pending = db.pending, None
        return SessionMoving() if unheard is None else OutcomeUnknown(), None


class PostgresLocks:
    """Implements `turnwire.ports.ownership.Locks`; see there. Used on the event loop only."""

    def __init__(
        self,
        connection: Connection[NodeDatabase],
        db: NodeDatabase,
        note_position: Callable[[int], None],
        on_removal: Callable[[], None],
        renewed: Callable[[], Awaitable[None]],
    ) -> None:
        """Args:
        connection: The connection on which the node writes, which has joined.
        db: The same; here, only what any thread may use.
        note_position: Called with the newest position when shards were taken.
        on_removal: Called when sessions of shards that were taken are to be removed.
        renewed: Called when the node is connected again, before it has a shard.
        """
        self._connection, self._db = connection, db
        self._note_position, self._on_removal, self._renewed = note_position, on_removal, renewed
        self._shards = set[int]()

    def owns(self, session_id: str) -> bool:
        """Returns whether this node has the shard of a session."""
        return shard_of(session_id) in self._shards

    async def held(self) -> Held:
        """Returns the owners of shards."""
        return await self._run(NodeDatabase.held)

    async def take(self, shards: Collection[int]) -> frozenset[int]:
        """Takes the locks of shards that are free."""
        taken, position, has_removals = await self._run(lambda db: db.take(shards))
        self._note_position(position)
        if has_removals:
            self._on_removal()
        self._shards |= taken
        return taken

    async def give(self, shards: Collection[int]) -> None:
        """Releases the locks of shards."""
        self._shards -= set(shards)
        await self._run(lambda db: db.give(shards))

    async def leave(self) -> None:
        """Removes this node from those that want shards."""
        await self._run(NodeDatabase.leave)

    async def wait(self, seconds: float) -> None:
        """Returns after some time."""
        await asyncio.sleep(seconds)
        if self._db.is_lost:
            raise self._lost()

    async def renew(self) -> None:
        """Connects again."""
        while True:
            try:
                await self._connection.run(NodeDatabase.renew)
                await self._renewed()
                return
            except StorageError as error:
                log.warning("database_not_reached", reason=error.reason, message=error.message)
                await asyncio.sleep(BEAT.total_seconds())

    def silence(self) -> float:
        """Returns the seconds since the last statement that PostgreSQL answered was sent."""
        return self._db.silent_seconds

    async def _run(self, function: Callable[[NodeDatabase], T]) -> T:
        """Carries out a function. Raises ConnectionLost after any failure: the connection then holds no lock."""

        def run(db: NodeDatabase) -> T:
            try:
                return function(db)
            except FAILURES:
                db.connection.close()
                raise

        try:
            return await self._connection.run(run)
        except StorageError as error:
            log.warning("database_lost", reason=error.reason, message=error.message)
            raise self._lost() from error

    def _lost(self) -> ConnectionLost:
        self._shards.clear()
        return ConnectionLost()
