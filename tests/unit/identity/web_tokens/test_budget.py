"""Number of signatures that are checked in a second."""

import pytest

from turnwire.domain.errors import TooManySignIns
from turnwire.identity.web_tokens.budget import PER_SECOND, WRONG_PER_ADDRESS, VerificationBudget


def test_a_second_has_a_bound() -> None:
    """For all addresses together; the next second begins anew."""
    now = [0.5]
    budget = VerificationBudget(lambda: now[0])
    for number in range(PER_SECOND):
        budget.take(f"192.0.2.{number}")
    with pytest.raises(TooManySignIns):
        budget.take("192.0.2.1")
    now[0] = 1.0
    budget.take("192.0.2.1")


def test_an_address_with_wrong_signatures_waits() -> None:
    """Others do not wait for it, and right signatures do not count."""
    budget = VerificationBudget(lambda: 0.0)
    for _ in range(WRONG_PER_ADDRESS):
        budget.take("192.0.2.1")
        budget.count_wrong("192.0.2.1")
        budget.take("192.0.2.2")
    with pytest.raises(TooManySignIns):
        budget.take("192.0.2.1")
    budget.take("192.0.2.2")
