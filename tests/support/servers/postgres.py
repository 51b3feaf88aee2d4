"""A PostgreSQL of its own for a test, where one is installed: for the commands that get rows out of one."""

import contextlib
import os
import pwd
import shutil
from collections.abc import Iterator

import pytest

from tests.support.postgres import ACCOUNT, PostgresServer, binaries


@contextlib.contextmanager
def running_postgres() -> Iterator[dict[str, str]]:
    """Runs a server that only listens in its folder, and gives the variables with which `psql` finds it.

    The test is skipped where there is no PostgreSQL, or no user who may run it.
    """
    may_run = os.geteuid() != 0 or ACCOUNT in {entry.pw_name for entry in pwd.getpwall()}
    if binaries() is None or shutil.which("psql") is None or not may_run:
        pytest.skip("PostgreSQL is not installed, or there is no user who may run it")
    with contextlib.closing(PostgresServer()) as server:
        yield {"PGHOST": str(server.folder), "PGUSER": "turnwire", "PGDATABASE": "postgres"}
