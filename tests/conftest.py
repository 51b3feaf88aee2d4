"""What holds for all tests."""

import gc
import os
import random
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.postgres import PostgresServer, binaries
from turnwire.storage.sqlite import connection
from turnwire.storage.sqlite.schema import migrate
from turnwire.storage.sqlite.store import SqliteKeeper
from turnwire.telemetry import memory_monitor

EXAMPLES = int(os.environ.get("TURNWIRE_EXAMPLES", "5"))
"""How many examples each property is tried with, the same ones each time: few in `make test`, many in `.ci/run`."""

settings.register_profile("turnwire", deadline=None, derandomize=True, max_examples=EXAMPLES)
settings.load_profile("turnwire")
# A time for each example fails on a machine that is busy; that of a whole test is pytest-timeout's.

FAULT_SEED = os.environ.get("TURNWIRE_FAULT_SEED", "1")
"""Tests of faults draw their cases by it."""


def pytest_configure(config: pytest.Config) -> None:
    """Lets the processes that a worker starts be interrupted.

    Workers of pytest-xdist ignore SIGINT, and so would every program that they start. A handler that does nothing does
    the same for the worker, and is not inherited.
    """
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, lambda *_: None)


@pytest.hookimpl(tryfirst=True)  # before the marks choose
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Makes all cases of a `matrix` slow but its first one: they are the same rule for other APIs, formats or seeds."""
    begun: set[str] = set()
    for item in items:
        if item.get_closest_marker("matrix") is not None:
            test = item.nodeid.partition("[")[0]
            if test in begun:
                item.add_marker("slow")
            begun.add(test)


def pytest_collection_finish() -> None:
    """Collects garbage seldom, and not among the tests: going through all objects would be a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 50)


@pytest.fixture(autouse=True, scope="session")
def memory_of_a_server() -> Iterator[None]:
    """A server in the process of the tests would count what thousands of tests have left there, and refuse new work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_monitor, "resident_bytes", lambda: 2**26)
        yield


@pytest.fixture(autouse=True, scope="session")
def disk_of_a_server() -> Iterator[None]:
    """A store in the process of the tests does not wait for the disk at each commit, which would be most of their time.

    Only a loss of power would show the difference. Tests of that start processes, which wait.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "SYNCHRONOUS", "OFF")
        yield


@pytest.fixture(autouse=True, scope="session")
def new_database_of_a_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A store in the process of the tests begins with a copy of a new database, which is a third of the work."""
    path = tmp_path_factory.mktemp("new") / "turnwire.db"
    with closing(connection.opened(path, read_only=False)) as db:
        migrate(db)
    contents = path.read_bytes()
    keep = SqliteKeeper.__init__

    def kept(keeper: SqliteKeeper, path: Path) -> None:
        keep(keeper, path)
        if not path.stat().st_size:
            path.write_bytes(contents)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteKeeper, "__init__", kept)
        yield


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """A generator of its own for each test, which the seed of the faults and the test's name begin."""
    seed = f"{FAULT_SEED}:{request.node.name}"
    print(f"drawn by {seed}")  # shown when the test fails
    return random.Random(seed)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of a run. Skips what needs it where there are no programs of PostgreSQL.

    With TURNWIRE_TEST_POSTGRES=1 that is a failure.
    """
    if binaries() is None and os.environ.get("TURNWIRE_TEST_POSTGRES") != "1":
        pytest.skip("this machine has no PostgreSQL")
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """The address of a new database."""
    return postgres.new_database()
