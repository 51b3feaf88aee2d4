"""Conversations with branches: each message names the one before it. A session has the branch that is shown."""

from collections.abc import Mapping

from turnwire.interop.forms import refuse


def branch_to(leaf: str, parents: Mapping[str, str], place: str) -> tuple[list[str], bool]:
    """Returns the ids from the first one to a leaf, and whether the first one names a parent that does not exist.

    Args:
        leaf: An id in `parents`.
        parents: The id before each id; "" for none.
        place: The path of the ids, for errors.

    Raises:
        InvalidRequest: the ids form a cycle.
    """
    found: list[str] = []
    seen: set[str] = set()
    at = leaf
    while at in parents:
        if at in seen:
            refuse(place, "has messages that go round in a circle")
        seen.add(at)
        found.append(at)
        at = parents[at]
    found.reverse()
    return found, bool(at)


def newest_leaf(parents: Mapping[str, str]) -> str:
    """Returns the last id that is not the parent of another one; the last one when there is none; "" for no ids."""
    inner = set(parents.values())
    newest = last = ""
    for last in parents:
        if last not in inner:
            newest = last
    return newest or last
