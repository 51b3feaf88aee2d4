"""Sessions of an archive that several servers bring."""

from turnwire.core.use_cases.moving.bringing import Brought
from turnwire.core.use_cases.moving.shares import SharePlan


def test_a_plan_counts_what_is_left() -> None:
    """A session counts until it is brought or left out, once."""
    plan = SharePlan()
    for name in ("ses_1", "ses_2"):
        plan.add(name)
    assert plan.left == 2
    assert not plan.note(Brought(number=0, shard=1))
    assert [plan.note(Brought(number=number)) for number in (0, 0, 1)] == [True, False, True]
    assert (plan.left, plan.is_left(0), plan.is_left(1)) == (0, False, False)
