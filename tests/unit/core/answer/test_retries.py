"""When a model call is tried again."""

from datetime import timedelta

import pytest

from turnwire.core.answer.retries import delay_before_retry, may_fall_back, note_long_wait
from turnwire.core.settings import Retries
from turnwire.domain import errors as e

RETRIES = Retries(max_retries=3, first_delay_seconds=1, longest_delay_seconds=3)


@pytest.mark.parametrize(("attempt", "longest"), [(1, 1.0), (2, 2.0), (3, 3.0)])
def test_delays_double_up_to_the_longest(attempt: int, longest: float) -> None:
    """Less up to a half at random."""
    delays = {delay_before_retry(RETRIES, e.ProviderUnavailable("busy"), attempt) for _ in range(50)}
    assert all(delay is not None and longest / 2 <= delay.total_seconds() <= longest for delay in delays)
    assert len(delays) > 1


def test_the_provider_s_own_word_wins() -> None:
    """Its wait is kept to exactly; one that is too long means that it is gone."""
    short, long = timedelta(seconds=2.5), timedelta(seconds=4)
    assert delay_before_retry(RETRIES, e.ProviderRateLimited("wait", retry_after=short), 1) == short
    assert delay_before_retry(RETRIES, e.ProviderRateLimited("wait", retry_after=long), 1) is None


def test_a_wait_that_is_too_long_is_told() -> None:
    """Whoever reads the failure learns how long, and which limit is shorter; of another one nothing is said."""
    long, short = (e.ProviderRateLimited("wait", retry_after=timedelta(seconds=seconds)) for seconds in (4, 2))
    note_long_wait(RETRIES, long)
    assert long.metadata == {
        "retryAfterSeconds": "4",
        "limit": "retries.longest_delay_seconds",
        "limitValue": "3",
    }
    assert "4 seconds" in long.message
    note_long_wait(RETRIES, short)
    assert (short.message, short.metadata) == ("wait", {})


def test_attempts_are_limited() -> None:
    """After the last retry nobody waits."""
    assert delay_before_retry(RETRIES, e.ProviderTimeout("late"), 4) is None
    assert delay_before_retry(Retries(max_retries=0), e.ProviderTimeout("late"), 1) is None


@pytest.mark.parametrize(
    ("error", "again", "elsewhere"),
    [
        (e.ProviderRateLimited, True, True),
        (e.ProviderUnavailable, True, True),
        (e.ProviderTimeout, True, True),
        (e.ProviderAnswerOverLimit, False, True),
        (e.ProviderStreamCut, True, True),
        (e.ProviderStreamFailed, True, True),
        (e.ProviderCredentialsRejected, False, True),
        (e.ProviderRefusedRequest, False, False),
        (e.ProviderContextFull, False, False),
    ],
)
def test_only_what_may_pass_is_tried_again(error: type[e.ProviderError], again: bool, elsewhere: bool) -> None:
    """A refused request or a full context is the same next time; another model may have another key."""
    raised = error("trouble")
    assert (delay_before_retry(RETRIES, raised, 1) is not None, may_fall_back(raised)) == (again, elsewhere)
