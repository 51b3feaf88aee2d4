"""What holds for all tests."""

import signal

import pytest
from hypothesis import settings

settings.register_profile("any_machine", deadline=None)
settings.load_profile("any_machine")
# A time for each example fails on a machine that is busy; that of a whole test is pytest-timeout's.


def pytest_configure(config: pytest.Config) -> None:
    """Lets the processes that a worker starts be interrupted.

    Workers of pytest-xdist ignore SIGINT, and so would every program that they start. A handler that does nothing does
    the same for the worker, and is not inherited.
    """
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, lambda *_: None)
