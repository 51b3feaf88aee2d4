"""The connection that writes. It has the locks, the positions of events, and the history of the database."""

import contextlib
import time
from collections.abc import Callable, Iterator

import psycopg

from turnwire.storage.postgres.connection import PostgresDatabase, configure

LOCK = 0x7457_6973
"""The advisory lock of the database. A server that writes alone holds it exclusively; the nodes of a cluster share
it."""

LOCK_SECONDS = 2.0
"""Maximum time that a server waits for the lock: PostgreSQL ends a connection some time after its client has closed it.
"""

LOCK_PAUSE_SECONDS = 0.05
"""Time between two attempts to get the lock."""

_KEEPALIVES = {"tcp_keepalives_idle": 5, "tcp_keepalives_interval": 2, "tcp_keepalives_count": 2}
"""Seconds and probes with which PostgreSQL looks whether the machine of the server is there. Without them the lock of
one that has disappeared would stay for two hours."""

POSITION_BITS = 20
"""Low bits of a node's position, for the events of one transaction. The bits above are the number of the transaction,
so that no two nodes use the same position, and what a session or a node stores later has a higher one. A server that
writes alone increments its positions by one, and stays lower, because each of its transactions has a number too."""

_HISTORY = """
SELECT concat_ws('/', system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8),
    (SELECT oid FROM pg_database WHERE datname = current_database()), 'lineage'::regclass::oid)
FROM pg_control_system()
"""
"""Identifies the history of the database. A new one begins when a standby is promoted or a backup is restored."""

_BEGIN = f"""
UPDATE lineage SET history = ?,
    position_offset = greatest(0, ? + 1 - (CAST(CAST(pg_current_xact_id() AS text) AS bigint) << {POSITION_BITS}))
WHERE history <> ?
"""


class Replaced(psycopg.OperationalError):
    """Another server has written, or the database went back, meanwhile: what is in memory is outdated."""


class WritingDatabase(PostgresDatabase):
    """The connection of a server that writes alone. Knows which transaction it has not ended.

    While the connection lives no other server can hold the lock, so no other one writes.
    """

    def __init__(self, url: str) -> None:
        """Connects and takes the lock. Raises an error of psycopg."""
        super().__init__(url, read_only=False)
        self.pending: str | None = None
        """The transaction whose COMMIT was not answered."""
        self.position_offset = 0
        self._lineage: tuple[str, int] | None = None
        """The history and the start of this server, once `begin` was called."""
        self._lock()

    def begin(self) -> None:
        """Notes that this server writes from now on. For a server before it, everything may have changed."""
        self.run("UPDATE lineage SET starts = starts + 1")
        self._lineage = self._stored_lineage()

    def renew(self) -> None:
        """Connects again and takes the lock again.

        Raises:
            Replaced: another server has written meanwhile, or the database has lost what was stored.
            psycopg.Error: the database cannot be reached, or another server has it.
        """
        super().renew()
        self._lock()
        if self._lineage is not None and (self._history(), self._lineage[1]) != self._stored_lineage():
            self.connection.close()
            raise Replaced("another server has written to the database, or it was restored")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Begins a transaction that writes."""
        with super().transaction():
            [(self.pending,)] = self.rows("SELECT CAST(pg_current_xact_id() AS text)")
            try:
                yield
            except BaseException:
                self.pending = None  # it will not be committed
                raise
        self.pending = None

    def is_aborted(self) -> bool:
        """Connects again, and returns whether nothing is stored of the transaction without an answer."""
        self.renew()
        return self.row("SELECT pg_xact_status(CAST(? AS xid8))", (self.pending,)) == ("aborted",)

    def begins_history(self, position: int) -> bool:
        """Returns whether the database has another history than when a server last wrote to it."""
        history = self._history()
        begins = self.run(_BEGIN, (history, position, history)) > 0
        [(self.position_offset,)] = self.rows("SELECT position_offset FROM lineage")
        return begins

    def _lock(self) -> None:
        configure(self.connection, _KEEPALIVES)
        self._acquire("pg_try_advisory_lock", "another server")

    def _acquire(self, function: str, refusal: str) -> None:
        self._wait(
            lambda: self.row(f"SELECT {function}(?)", (LOCK,)) == (True,),
            psycopg.errors.ObjectInUse(refusal),
        )

    def _wait(self, is_free: Callable[[], bool], refusal: Exception) -> None:
        """Returns once something is free that a server before this one may have had. Raises the refusal otherwise."""
        ends_at = time.monotonic() + LOCK_SECONDS
        while not is_free():
            if time.monotonic() >= ends_at:
                self.connection.close()
                raise refusal
            time.sleep(LOCK_PAUSE_SECONDS)

    def _history(self) -> str:
        [(history,)] = self.rows(_HISTORY)
        return str(history)

    def _stored_lineage(self) -> tuple[str, int]:
        [(history, starts)] = self.rows("SELECT history, starts FROM lineage")
        return history, starts
