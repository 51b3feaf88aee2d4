"""Whose turn is next."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.api.turns import Turns
from turnwire.domain.networks import network_of_peer


def waiting(counts: dict[str, int]) -> Turns[str]:
    """Returns so many of each owner: `a0`, `a1`, ... All are of one address."""
    turns = Turns[str]()
    for owner, count in counts.items():
        for number in range(count):
            turns.add(f"host:{owner}", f"{owner}{number}")
    return turns


def taken(turns: Turns[str], count: int) -> list[str]:
    """Returns what is next."""
    return [turns.take()[1] for _ in range(count)]


def test_owners_with_as_much_go_one_after_the_other() -> None:
    """The things of each keep their order."""
    assert taken(waiting({"a": 3, "b": 3, "c": 1}), 7) == ["a0", "b0", "c0", "a1", "b1", "a2", "b2"]


def test_who_has_few_goes_first() -> None:
    """But for one turn of four, which is of who has waited longest."""
    turns = waiting({"many": 100, "most": 200})
    assert taken(turns, 1) == ["many0"]
    for number in range(3):
        turns.add("host:few", f"few{number}")
    assert taken(turns, 4) == ["few0", "few1", "most0", "few2"]
    assert taken(turns, 4) == ["many1", "many2", "most1", "many3"]


def test_connections_of_an_address_have_no_more_turns_than_one_of_another() -> None:
    """However many they are, and how many things they have."""
    turns = waiting({str(port): 1 for port in range(300)})
    for number in range(100):
        turns.add("neighbour:1", f"neighbour{number}")
    assert len([one for one in taken(turns, 200) if one.startswith("neighbour")]) == 100


def test_what_an_owner_has_besides_counts() -> None:
    """As soon as it is told."""
    further = Counter({"host:a": 100})
    turns = Turns[str](further.__getitem__)
    for owner in "abab":
        turns.add(f"host:{owner}", owner)
    assert taken(turns, 1) == ["b"]
    further["host:a"] = 0
    turns.changed("host:a")
    turns.changed("nobody")
    assert taken(turns, 3) == ["b", "a", "a"]


def test_who_adds_more_keeps_its_turn() -> None:
    """It does not begin to wait anew."""
    turns = waiting({"a": 1, "b": 1})
    turns.add("host:a", "a1")
    assert taken(turns, 3) == ["a0", "b0", "a1"]


def test_the_newest_of_who_has_most_can_be_taken() -> None:
    """And all of an owner."""
    turns = waiting({"a": 2, "b": 5, "c": 4})
    assert (turns.owner_of_most(), turns.count_of("host:b"), turns.count_of("nobody")) == ("host:b", 5, 0)
    assert (turns.take_newest("host:b"), turns.take_newest("host:b"), turns.owner_of_most()) == ("b4", "b3", "host:c")
    assert list(turns.drop("host:c")) == ["c0", "c1", "c2", "c3"]
    assert (turns.owner_of_most(), turns.count) == ("host:b", 5)
    assert not turns.drop("nobody")
    assert sorted(taken(turns, 5)) == ["a0", "a1", "b0", "b1", "b2"]
    with pytest.raises(IndexError):
        turns.take()


@given(
    st.lists(
        st.tuples(st.sampled_from(("add", "take", "newest", "drop")), st.sampled_from(("x:a", "x:b", "c"))), max_size=60
    )
)
def test_nothing_is_lost(steps: list[tuple[str, str]]) -> None:
    """Whatever is done, each thing comes out once, and those of an owner in their order."""
    turns, held = Turns[int](), dict[str, list[int]]({"x:a": [], "x:b": [], "c": []})
    for number, (step, owner) in enumerate(steps):
        if step == "add":
            turns.add(owner, number)
            held[owner].append(number)
        elif step == "drop":
            assert list(turns.drop(owner)) == held[owner]
            held[owner] = []
        elif turns.count and step == "take":
            next_owner, one = turns.take()
            assert one == held[next_owner].pop(0)
        elif turns.count:
            most = turns.owner_of_most()
            groups = {"x": len(held["x:a"]) + len(held["x:b"]), "c": len(held["c"])}
            assert groups[network_of_peer(most)] == max(groups.values())
            assert len(held[most]) == max(
                len(held[one]) for one in held if network_of_peer(one) == network_of_peer(most)
            )
            assert turns.take_newest(most) == held[most].pop()
        assert turns.count == sum(map(len, held.values()))


def test_a_group_knows_whether_others_wait() -> None:
    """Its own things are none of others."""
    turns = Turns[int]()
    assert not turns.has_others("ipv4:192.0.2.1:1")
    turns.add("ipv4:192.0.2.1:2", 1)
    assert not turns.has_others("ipv4:192.0.2.1:1")
    assert turns.has_others("ipv4:192.0.2.2:1")
    turns.add("ipv4:192.0.2.2:2", 1)
    assert turns.has_others("ipv4:192.0.2.1:1")
