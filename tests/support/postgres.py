"""A PostgreSQL server of the tests' own, in a temporary folder."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ACCOUNT = "postgres"
"""Account that runs PostgreSQL when the tests run as root, which PostgreSQL refuses."""

SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
}


KEPT_DATABASES = 8
"""Number of the newest databases that stay: each has a thousand files; to remove all that are left takes minutes."""


def binaries() -> Path | None:
    """Returns the folder of the newest programs of PostgreSQL; None when there are none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    named = [Path(program).resolve() for program in [shutil.which("initdb")] if program]
    programs = [*found, *named]
    return programs[-1].parent if programs else None


class PostgresServer:
    """A running server. `close` ends it and removes its folder."""

    def __init__(self, settings: Mapping[str, str] = SETTINGS, *, source: str = "", within: Sequence[str] = ()) -> None:
        """Makes a server and starts it.

        Args:
            settings: Of the server.
            source: How the server is reached that this one follows as its standby; "" for one of its own.
            within: Words before the commands of the server, to run it on another host.

        Raises:
            RuntimeError: there are no programs, or they fail.
        """
        self._settings, self._within = settings, within
        programs = binaries()
        if programs is None:
            raise RuntimeError("no PostgreSQL: neither initdb on the PATH nor /usr/lib/postgresql")
        self._programs = programs
        self._as = ["setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--init-groups"] if os.getuid() == 0 else []
        self.folder = Path(tempfile.mkdtemp(prefix="turnwire-postgres-"))  # a short path, as sockets want
        if self._as:
            shutil.chown(self.folder, ACCOUNT)
        self._data = self.folder / "data"
        self._databases = 0
        try:
            self.follow(source) if source else self._initialize()
            self.start()
        except BaseException:
            self.close()
            raise

    def _initialize(self) -> None:
        locale = ("--encoding=UTF8", "--locale=C", "--auth=trust", "--username=turnwire")
        self._run("initdb", "--pgdata", str(self._data), "--no-sync", *locale)
        with (self._data / "pg_hba.conf").open("a") as file:
            file.write("host all,replication all samenet trust\n")

    def follow(self, source: str) -> None:
        """Makes the server, which does not run, a standby: its next start continues what another one has."""
        shutil.rmtree(self._data, ignore_errors=True)
        copying = ("--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync")
        self._run("pg_basebackup", "--dbname", source, "--pgdata", str(self._data), *copying)

    def promote(self) -> None:
        """Makes a standby a server of its own, and waits until it takes writes."""
        self._run("pg_ctl", "promote", "--wait", "--silent", "-D", str(self._data))

    def start(self) -> None:
        """Starts the server and waits until it takes connections."""
        settings = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in self._settings.items())
        options = f"-k {self.folder} {settings}"
        log = str(self.folder / "log")
        self._run("pg_ctl", "start", "--wait", "--silent", "-D", str(self._data), "-l", log, "-o", options)

    def stop(self, mode: str = "immediate") -> None:
        """Stops the server, `immediate` like a crash."""
        self._run("pg_ctl", "stop", "--wait", "--silent", "-D", str(self._data), "-m", mode)

    def url(self, database: str) -> str:
        """Returns the address of a database."""
        return f"postgresql://turnwire@/{database}?host={self.folder}"

    def new_database(self, source: str = "template1") -> str:
        """Copies a database, by default an empty one; the newest ones stay. Returns the address."""
        self._databases += 1
        name, old = (
            f"test_{os.getpid()}_{number}" for number in (self._databases, max(0, self._databases - KEPT_DATABASES))
        )
        self.execute("postgres", f"CREATE DATABASE {name} TEMPLATE {source}")
        self.execute("postgres", f"DROP DATABASE IF EXISTS {old} WITH (FORCE)")
        return self.url(name)

    def execute(self, database: str, statement: str) -> None:
        """Carries out a statement outside of a transaction."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)

    def close(self) -> None:
        """Ends the server and removes its folder."""
        if (self._data / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        # into a file: a server would keep a pipe open
        with tempfile.TemporaryFile() as output:
            command = [*self._within, *self._as, str(self._programs / program), *arguments]
            done = subprocess.run(command, stdout=output, stderr=output, cwd="/", check=False)
            if done.returncode:
                output.seek(0)
                raise RuntimeError(f"{program} failed: {output.read().decode(errors='replace')}")
