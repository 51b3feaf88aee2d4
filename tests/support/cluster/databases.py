"""Two servers of PostgreSQL, of which one is the synchronous standby of the other, until it takes its place."""

import os
import signal
import time
from typing import Any

import psycopg

from tests.support.cluster.network import Network
from tests.support.postgres import SETTINGS, PostgresServer

DATABASE = "turnwire"

_SETTINGS = {**SETTINGS, "wal_retrieve_retry_interval": "100ms"}
"""A standby that waits to try again is not promoted meanwhile."""

_PAUSE_SECONDS = 0.02


class Pair:
    """A primary and its standby, each on a host of its own where there is a network. Make it with `started`."""

    HOSTS = ("database1", "database2")

    def __init__(self, network: Network | None) -> None:
        """Starts both, and waits until each COMMIT is on both."""
        self._network = network
        self._servers = [self._server(0)]
        self._primary = 0
        self._held = 0  # the process that stands still
        try:
            self.execute(f"CREATE DATABASE {DATABASE}", database="postgres")
            self._servers.append(self._server(1, self._source()))
            self.wait_for_standby()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The address with which a client finds the primary, whichever it is."""
        hosts = [self._host(number) for number in range(len(self.HOSTS))]
        ports = ",".join("5432" for _ in hosts)
        return f"postgresql://turnwire@/{DATABASE}?host={','.join(hosts)}&port={ports}&target_session_attrs=read-write"

    @property
    def primary_host(self) -> str:
        """The host of the primary, in the network."""
        return self.HOSTS[self._primary]

    @property
    def primary(self) -> PostgresServer:
        """The server that takes writes."""
        return self._servers[self._primary]

    @property
    def standby(self) -> PostgresServer:
        """The other one."""
        return self._servers[1 - self._primary]

    def execute(self, statement: str, *, database: str = DATABASE, standby: bool = False) -> list[Any]:
        """Carries out a statement on the primary, or on the standby, whatever is cut off. Returns the rows."""
        server = self.standby if standby else self.primary
        with psycopg.connect(server.url(database), autocommit=True) as db:
            cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def wait_for_standby(self) -> None:
        """Has each COMMIT wait for the standby, and returns when it follows."""
        self._set(self.primary, "synchronous_standby_names", "*")
        while self.execute("SELECT sync_state FROM pg_stat_replication") != [("sync",)]:
            time.sleep(_PAUSE_SECONDS)

    def stop_waiting(self) -> None:
        """Has no COMMIT wait for the standby: it may lack what was acknowledged."""
        self._set(self.primary, "synchronous_standby_names", "")

    def hold(self, *, is_received: bool) -> None:
        """Lets no COMMIT of the primary end: the standby gets them and does not say so, or gets nothing more."""
        if is_received:
            [(receiver,)] = self.execute("SELECT pid FROM pg_stat_wal_receiver", standby=True)
            os.kill(receiver, signal.SIGSTOP)
            self._held = receiver
        else:
            self._set(self.standby, "primary_conninfo", "")
            while self.execute("SELECT 1 FROM pg_stat_replication"):
                time.sleep(_PAUSE_SECONDS)

    def restart(self) -> None:
        """Lets the primary crash, and starts it again."""
        self.primary.stop("immediate")
        self.primary.start()

    def fail_over(self, *, is_planned: bool = False) -> None:
        """Lets the primary vanish, and puts the standby in its place, which then has no standby.

        Args:
            is_planned: Whether the standby takes the place before the primary ends, so that clients find it at once.
        """
        if not is_planned:
            self.primary.stop("immediate")
        if self._held:
            os.kill(self._held, signal.SIGCONT)
            self._held = 0
        self._set(self.standby, "synchronous_standby_names", "")
        self.standby.promote()
        if is_planned:
            self.primary.stop("immediate")
        self._primary = 1 - self._primary

    def return_standby(self) -> None:
        """Lets the server that was the primary follow the other one."""
        self.standby.follow(self._source())
        self.standby.start()
        self.wait_for_standby()

    def close(self) -> None:
        """Ends both and removes their folders."""
        for server in self._servers:
            server.close()

    def _server(self, number: int, source: str = "") -> PostgresServer:
        if self._network is None:
            return PostgresServer(_SETTINGS, source=source)
        listening = {**_SETTINGS, "listen_addresses": self._host(number)}
        return PostgresServer(listening, source=source, within=self._network.within(self.HOSTS[number]))

    def _host(self, number: int) -> str:
        if self._network is not None:
            return self._network.address(self.HOSTS[number])
        return str(self._servers[number].folder)

    def _source(self) -> str:
        return f"host={self._host(self._primary)} user=turnwire"

    @staticmethod
    def _set(server: PostgresServer, name: str, value: str) -> None:
        server.execute("postgres", f"ALTER SYSTEM SET {name} = '{value}'")
        server.execute("postgres", "SELECT pg_reload_conf()")
