"""Which messages a branch has."""

import pytest

from turnwire.domain.errors import InvalidRequest
from turnwire.interop.archive.branches import branch_to, newest_leaf


def test_a_branch_goes_from_the_first_message_to_the_leaf() -> None:
    """Others are not in it."""
    parents = {"a": "", "b": "a", "c": "b", "x": "a"}
    assert branch_to("c", parents, "m") == (["a", "b", "c"], False)
    assert branch_to("x", parents, "m") == (["a", "x"], False)
    assert branch_to("gone", parents, "m") == ([], True)
    assert branch_to("b", {"b": "a"}, "m") == (["b"], True)


def test_circles_are_refused() -> None:
    """They would never end."""
    with pytest.raises(InvalidRequest, match="m: has messages that go round in a circle"):
        branch_to("a", {"a": "b", "b": "a"}, "m")


def test_the_newest_leaf_is_the_last_one() -> None:
    """That no other message follows."""
    assert newest_leaf({"a": "", "c": "a", "b": "a", "d": "c"}) == "d"
    assert newest_leaf({"a": "", "c": "a", "b": "c"}) == "b"
    assert newest_leaf({"a": "b", "b": "a"}) == "b"
    assert newest_leaf({}) == ""
