"""Computations in pieces: their results, and how far two sequences are the same."""

from hypothesis import given
from hypothesis import strategies as st

from turnwire.domain.incremental.slices import Sliced, at_once, common_length


def test_a_computation_runs_at_once() -> None:
    """To its result, however often it could be interrupted."""

    def counting() -> Sliced[int]:
        for _ in range(3):
            yield
        return 3

    assert at_once(counting()) == 3


@given(same=st.integers(0, 3000), before=st.integers(0, 5), now=st.integers(0, 5))
def test_sequences_are_the_same_up_to_the_first_other_object(same: int, before: int, now: int) -> None:
    """Equal is not enough: values are compared as objects."""
    shared = [object() for _ in range(same)]
    one, other = [*shared, *(["a"] * before)], [*shared, *([1.5] * now)]
    assert at_once(common_length(one, other)) == same


def test_equal_values_are_not_the_same() -> None:
    """A message that was read again counts as another one."""
    assert at_once(common_length([(1, 2)], [tuple([1, 2])])) == 0  # noqa: C409 - another object
