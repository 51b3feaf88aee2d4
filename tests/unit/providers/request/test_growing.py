"""State that goes back."""

import pytest

from turnwire.providers.request.growing import Growing, common_length


def test_going_back_forgets_what_was_added() -> None:
    """In lists and dictionaries, to any mark, and growing goes on from there."""
    numbers, names = list[int](), dict[str, int]()
    state = Growing((numbers, names))
    start = state.mark()
    numbers.append(1)
    names["a"] = 1
    middle = state.mark()
    numbers += [2, 3]
    names.update(b=2, c=3)
    state.go_back(middle)
    assert (numbers, names) == ([1], {"a": 1})
    names["d"] = 4
    state.go_back(start)
    assert (numbers, names) == ([], {})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [([], [], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2], 2), ([1, 2], [1, 3, 2], 1), ([1], [], 0)],
)
def test_what_is_the_same_is_counted_from_the_beginning(one: list[int], other: list[int], same: int) -> None:
    """Up to the first difference, or to the end of the shorter one."""
    assert common_length(one, other) == same


def test_equal_values_are_not_the_same() -> None:
    """Only the same object is."""
    assert common_length([(1, 2)], [tuple([1, 2])]) == 0  # noqa: C409 - another object
