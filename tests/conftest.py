"""What holds for all tests."""

import os
import random
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.postgres import PostgresServer, binaries
from turnwire.telemetry import memory_monitor

settings.register_profile("any_machine", deadline=None)
settings.load_profile("any_machine")
# A time for each example fails on a machine that is busy; that of a whole test is pytest-timeout's.

FAULT_SEED = os.environ.get("TURNWIRE_FAULT_SEED", "")
"""Set by `make test-fault`: tests marked `fault_long` are run, and draw their cases by it."""


def pytest_configure(config: pytest.Config) -> None:
    """Lets the processes that a worker starts be interrupted.

    Workers of pytest-xdist ignore SIGINT, and so would every program that they start. A handler that does nothing does
    the same for the worker, and is not inherited.
    """
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, lambda *_: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the long faults to `make test-fault`."""
    if FAULT_SEED:
        return
    long = [item for item in items if item.get_closest_marker("fault_long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(autouse=True, scope="session")
def memory_of_a_server() -> Iterator[None]:
    """A server in the process of the tests would count what thousands of tests have left there, and refuse new work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_monitor, "resident_bytes", lambda: 2**26)
        yield


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """A generator of its own for each test, which the seed of the faults and the test's name begin."""
    seed = f"{FAULT_SEED or 1}:{request.node.name}"
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
