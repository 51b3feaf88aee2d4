"""How many calls there are at once."""

import pytest

from tests.support.fakes.identity import some_load
from turnwire.api.rights import BEGINS_WORK, LEAST_ROLE
from turnwire.domain.errors import DomainError, MemoryShort, TooManyCalls


def test_further_calls_are_refused_until_one_ends() -> None:
    """By whatever listener they came."""
    load = some_load(max_calls=2)
    first = load.enter(100, begins_work=False)
    load.enter(100, begins_work=False)
    with pytest.raises(TooManyCalls) as refused:
        load.enter(100, begins_work=False)
    assert refused.value.metadata == {"limit": "limits.max_calls", "limitValue": "2"}
    load.leave(first)
    load.enter(100, begins_work=False)
    assert load.calls == 2


def test_a_call_takes_the_room_of_one_that_waits_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit as its error. Where none waits there, the new one is refused."""
    load, ended = some_load(max_calls=1), list[str]()

    def make_room(connection: str, error: DomainError) -> bool:
        ended.append(error.metadata["limit"])
        return connection == "modest"

    monkeypatch.setattr(load.receiving, "make_room", make_room)
    load.enter(100, begins_work=False, connection="greedy")
    load.enter(100, begins_work=False, connection="modest")
    with pytest.raises(TooManyCalls):
        load.enter(100, begins_work=False, connection="greedy")
    assert (ended, load.calls) == (["limits.max_calls"] * 2, 2)


def test_only_much_metadata_counts() -> None:
    """What any call has costs nothing of the limit."""
    load = some_load(max_metadata_bytes=5000)
    for _ in range(100):
        load.enter(500, begins_work=False)
    long = load.enter(4000, begins_work=False)
    with pytest.raises(TooManyCalls) as refused:
        load.enter(4000, begins_work=False)
    assert refused.value.metadata["limit"] == "limits.max_metadata_bytes"
    load.leave(long)
    load.enter(4000, begins_work=False)


def test_new_work_waits_for_memory() -> None:
    """All else goes on. The error tells the limit that was reached, which is less in a control group."""
    load = some_load(max_memory_bytes=1000)
    load.memory_short(450)
    with pytest.raises(MemoryShort) as refused:
        load.enter(100, begins_work=True)
    assert refused.value.metadata == {"limit": "limits.max_memory_bytes", "limitValue": "450"}
    load.enter(100, begins_work=False)
    load.memory_short(None)
    load.enter(100, begins_work=True)


def test_what_begins_work_are_methods() -> None:
    """A name that no method has would refuse nothing."""
    assert set(LEAST_ROLE) >= BEGINS_WORK
