"""A PostgreSQL of its own for a test, where one is installed: for the commands that get rows out of one."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

USER = "postgres"
"""Who owns the database; also the user of the system who runs it when root may not."""


@contextlib.contextmanager
def running_postgres() -> Iterator[dict[str, str]]:
    """Runs a server that only listens in its folder, and gives the variables with which `psql` finds it.

    The test is skipped where there is no PostgreSQL, or no user who may run it.
    """
    programs = [shutil.which(name) for name in ("initdb", "pg_ctl", "psql")]
    as_other = os.geteuid() == 0
    if not all(programs) or (as_other and USER not in {entry.pw_name for entry in pwd.getpwall()}):
        pytest.skip("PostgreSQL is not installed, or there is no user who may run it")
    folder = Path(tempfile.mkdtemp(prefix="turnwire-postgres-"))  # not that of the test, which others may not enter
    try:
        if as_other:
            shutil.chown(folder, USER)
        user = USER if as_other else None
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        data = str(folder / "data")
        _run([str(programs[0]), "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"], user)
        _run([str(programs[1]), "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start"], user)
        try:
            yield {"PGHOST": str(folder), "PGUSER": USER, "PGDATABASE": USER}
        finally:
            _run([str(programs[1]), "-D", data, "-w", "-m", "immediate", "stop"], user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], user: str | None) -> None:
    subprocess.run(
        command, user=user, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, cwd="/"
    )
