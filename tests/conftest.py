"""What holds for all tests."""

import signal

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Lets the processes that a worker starts be interrupted.

    Workers of pytest-xdist ignore SIGINT, and so would every program that they start. A handler that does nothing does
    the same for the worker, and is not inherited.
    """
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, lambda *_: None)
