"""State that goes back."""

from turnwire.domain.incremental.growing import Growing


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
