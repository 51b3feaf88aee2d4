"""Lines keep their order, and small things do not wait for the large ones of other lines."""

from hypothesis import given
from hypothesis import strategies as st

from turnwire.domain.incremental.lines import SMALL_FIRST, Lines


def lines_of(*things: str) -> Lines[str]:
    """Returns things that wait; their first letter names their line, and those in capitals are large."""
    lines = Lines[str](lambda one: one[0].lower(), str.isupper)
    for one in things:
        lines.add(one)
    return lines


def test_small_ones_do_not_wait_for_large_ones_of_others() -> None:
    """However many there are."""
    lines = lines_of("A1", "B1", "C1", "a2", "d1", "d2")
    assert lines.take(100) == ["d1", "d2", "A1", "a2", "B1", "C1"]
    assert len(lines) == 0


def test_large_ones_do_not_wait_for_ever() -> None:
    """One of so many is a large one."""
    lines = lines_of("A1", *(f"b{number}" for number in range(100)))
    assert lines.take(SMALL_FIRST)[-1] == "A1"


def test_lines_have_turns() -> None:
    """A line with many does not hold the others up."""
    lines = lines_of("a1", "a2", "a3", "b1", "C1", "C2", "D1")
    assert lines.take(4) == ["a1", "b1", "a2", "a3"]
    assert lines.take(3) == ["C1", "D1", "C2"]


def test_what_is_put_back_is_next() -> None:
    """In its order, before what came meanwhile."""
    lines = lines_of("a1", "A2", "b1")
    taken = lines.take(3)
    lines.add("b2")
    lines.add("a3")
    lines.put_back(taken[1:])
    assert taken == ["a1", "b1", "A2"]
    assert lines.take(9) == ["b1", "b2", "A2", "a3"]


def test_large_ones_that_are_put_back_do_not_wait_for_ever() -> None:
    """Also when few of those that are taken together are kept each time, as by a transaction that takes long."""
    lines, kept = lines_of("A1", *(f"b{number}" for number in range(100))), list[str]()
    for _ in range(4):
        taken = lines.take(2 * SMALL_FIRST)
        lines.put_back(taken[SMALL_FIRST // 4 :])
        kept += taken[: SMALL_FIRST // 4]
    assert kept[-1] == "A1"


steps = st.lists(st.one_of(st.text("abcABC", min_size=1, max_size=1), st.tuples(st.integers(1, 9), st.integers(0, 9))))


@given(steps)
def test_each_line_keeps_its_order(todo: list[str | tuple[int, int]]) -> None:
    """Whatever is added, taken and put back, and nothing is lost."""
    lines, added, stored = lines_of(), list[str](), list[str]()
    for number, step in enumerate(todo):
        if isinstance(step, str):
            added.append(f"{step}{number}")
            lines.add(added[-1])
        else:
            taken = lines.take(step[0])
            lines.put_back(taken[step[1] :])
            stored += taken[: step[1]]
    stored += lines.take(len(lines))
    for name in "abc":
        assert [one for one in stored if one[0].lower() == name] == [one for one in added if one[0].lower() == name]
