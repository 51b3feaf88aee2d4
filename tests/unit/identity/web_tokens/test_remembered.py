"""Memory of credentials that were checked."""

from turnwire.identity.web_tokens.remembered import Remembered


def test_a_value_has_its_time() -> None:
    """And is gone at its end."""
    remembered: Remembered[str] = Remembered(2)
    remembered.put(b"1", "one", 10)
    assert (remembered.get(b"1", 9.9), remembered.get(b"1", 10), len(remembered)) == ("one", None, 0)


def test_the_bound_holds() -> None:
    """The entry that was asked for the longest time ago goes."""
    remembered: Remembered[int] = Remembered(2)
    for number in (1, 2):
        remembered.put(bytes([number]), number, 10)
    remembered.get(b"\1", 0)
    remembered.put(b"\3", 3, 10)
    assert [remembered.get(bytes([number]), 0) for number in (1, 2, 3)] == [1, None, 3]
