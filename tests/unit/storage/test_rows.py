"""Heads that are known in a transaction."""

from turnwire.storage.rows import Known


def test_what_a_refused_unit_has_changed_is_as_before() -> None:
    """A head that was known has its value again, and one that was never read is read when it is wanted."""
    asked = list[list[str]]()

    def read(keys: list[str]) -> dict[str, int]:
        asked.append(keys)
        return dict.fromkeys(keys, 1)

    known = Known[int](read)
    assert known.head("a") == 1
    for key in "ab":
        known.change(key, 2)
    known.undo()
    assert (known.head("a"), known.head("b"), asked) == (1, 1, [["a"], ["b"]])
    known.change("b", 3)
    known.keep()
    known.undo()
    assert known.head("b") == 3
