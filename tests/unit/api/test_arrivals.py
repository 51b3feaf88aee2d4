"""Which call begins next."""

import pytest

from turnwire.api.arrivals import Arrivals


def waiting(calls: dict[str, int], max_waiting: int = 1_000) -> Arrivals[str]:
    """Returns calls that wait, so many of each connection: `a0`, `a1`, ..."""
    arrivals = Arrivals[str](max_waiting)
    for connection, count in calls.items():
        for number in range(count):
            assert arrivals.add(f"host:{connection}", f"{connection}{number}") is None
    return arrivals


async def begun(arrivals: Arrivals[str], count: int) -> list[str]:
    """Returns the calls that begin next."""
    calls = list[str]()
    for _ in range(count):
        calls.append(await arrivals.next())
        arrivals.begun("host:" + calls[-1].rstrip("0123456789"))
    return calls


async def test_connections_have_turns() -> None:
    """However many calls one of them has sent before; its own are in their order."""
    arrivals = waiting({"a": 100, "b": 2, "c": 1})
    assert await begun(arrivals, 6) == ["b0", "c0", "b1", "a0", "a1", "a2"]
    assert arrivals.count == 97


async def test_a_call_begins_when_it_comes() -> None:
    """Whoever asks for one waits until then."""
    arrivals = Arrivals[str](10)
    asked = arrivals.next()
    arrivals.add("host:a", "a0")
    arrivals.add("host:a", "a1")
    assert (await asked, arrivals.count) == ("a0", 1)
    assert await arrivals.next() == "a1"


async def test_nobody_asks_any_more() -> None:
    """A call that comes then waits for the end."""
    arrivals = Arrivals[str](10)
    arrivals.next().cancel()
    arrivals.add("host:a", "a0")
    assert list(arrivals.end(ValueError("stopped"))) == ["a0"]


async def test_who_has_few_calls_goes_first() -> None:
    """But for one turn of four, so that those with many go on too. Calls that have begun count until they end."""
    arrivals = waiting({"many": 200})
    await begun(arrivals, 190)
    for number in range(10):
        arrivals.add("host:few", f"few{number}")
    order = await begun(arrivals, 8)
    assert [one for one in order if one.startswith("many")] == ["many190", "many191"]
    for _ in range(192):
        arrivals.ended("host:many")
    assert "many192" in await begun(arrivals, 2)


async def test_of_too_many_the_newest_of_who_has_most_is_refused() -> None:
    """Whoever comes last: a connection that has few is never refused for those of others."""
    arrivals = waiting({"a": 3, "b": 6}, max_waiting=9)
    assert arrivals.add("host:c", "c0") == ("host:b", "b5")
    assert arrivals.add("host:a", "a3") == ("host:b", "b4")
    assert arrivals.add("host:a", "a4") == ("host:a", "a4")
    assert arrivals.count == 9
    assert sorted(await begun(arrivals, 9)) == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3", "c0"]


async def test_calls_of_a_closed_connection_do_not_begin() -> None:
    """Others do."""
    arrivals = waiting({"a": 3, "b": 1})
    arrivals.drop("host:a")
    arrivals.drop("host:nobody")
    assert (arrivals.count, await begun(arrivals, 1)) == (1, ["b0"])
    assert arrivals.add("host:a", "a9") is None
    assert await begun(arrivals, 1) == ["a9"]


async def test_the_end_returns_what_waits() -> None:
    """Whoever waits for a call gets the error. What is not taken yet goes on waiting, and does not begin."""
    asked = Arrivals[str](10)
    future = asked.next()
    assert list(asked.end(ValueError("stopped"))) == []
    with pytest.raises(ValueError, match="stopped"):
        await future
    arrivals = waiting({"a": 2, "b": 1})
    rest = arrivals.end(ValueError("stopped"))
    taken = [next(rest)]
    assert arrivals.count == 2
    with pytest.raises(ValueError, match="stopped"):
        await arrivals.next()
    assert sorted(taken + list(rest)) == ["a0", "a1", "b0"]
    assert list(arrivals.end(ValueError("again"))) == []
