"""Pauses before a connection is tried again."""

from turnwire.tools.settings import Backoff


def test_the_wait_doubles_up_to_a_limit() -> None:
    """Half of it is left to chance."""
    backoff = Backoff()
    assert [backoff.delay(failures, 1) for failures in (1, 2, 3, 8, 1000)] == [0.5, 1, 2, 60, 60]
    assert [backoff.delay(failures, 0) for failures in (1, 2, 1000)] == [0.25, 0.5, 30]
