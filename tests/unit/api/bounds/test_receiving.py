"""Requests while they are received."""

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

import pytest

from tests.support.fakes.loop import elapse, settled
from turnwire.api.bounds import copying, receiving
from turnwire.api.bounds.connections.unfinished import Unfinished
from turnwire.api.bounds.copying import COPIED_BYTES, Copying
from turnwire.api.bounds.peers import MAX_RESETS, Resets
from turnwire.api.bounds.receiving import (
    BEHIND,
    HURRIED_SECONDS,
    LARGE_BYTES,
    LARGE_HURRIED_SECONDS,
    LARGE_SECONDS,
    LOOK_SECONDS,
    MAX_LATE,
    QUICK_SECONDS,
    RECEIVE_SECONDS,
    SMALL_AGAIN,
    CallerGone,
    Receiving,
)
from turnwire.config.sections import ServerConfig
from turnwire.domain.errors import MemoryShort, RequestTooSlow, TooManyCalls

QUICK, LONG = timedelta(seconds=QUICK_SECONDS), timedelta(seconds=RECEIVE_SECONDS)
HURRIED, LARGE = timedelta(seconds=HURRIED_SECONDS), timedelta(seconds=LARGE_SECONDS)
LARGE_HURRIED = timedelta(seconds=LARGE_HURRIED_SECONDS)
LOOK = timedelta(seconds=LOOK_SECONDS)


MANY = 4_000
"""Calls of one connection that wait."""


class Sent:
    """Requests that come when the test says so."""

    def __init__(self, places: int) -> None:
        """Takes how many may be received at a time."""
        self.copying = Copying()
        self.cut_off = list[str]()
        """Connections."""

        def shut_down(connection: str) -> bool:
            self.cut_off.append(connection)
            return True

        self.received: dict[str, int] = {}
        """What the system tells of connections."""

        def received(_: Collection[str]) -> dict[str, int]:
            return self.received

        self.receiving = Receiving(places, 1, self.copying, Resets(shut_down), Unfinished(received))
        self.begun: list[str] = []
        self._futures: dict[str, asyncio.Future[bytes]] = {}

    def ask(self, name: str, connection: str = "a") -> "asyncio.Task[str]":
        """Begins to receive a request."""
        future = self._futures[name] = asyncio.get_running_loop().create_future()

        async def receive() -> bytes:
            self.begun.append(name)
            return await future

        async def read() -> str:
            return (await self.receiving.read(connection, receive)).decode().strip()

        return asyncio.create_task(read())

    def come(self, name: str, size: int = 1) -> None:
        """Lets a request of a size come."""
        self._futures[name].set_result(name.encode().ljust(size))


async def test_few_are_received_at_a_time() -> None:
    """The others wait, and are asked for once there is a place."""
    sent = Sent(2)
    calls = [sent.ask(name) for name in "123"]
    await settled()
    assert sent.begun == ["1", "2"]
    sent.come("2")
    await settled()
    assert sent.begun == ["1", "2", "3"]
    for name in "13":
        sent.come(name)
    assert await asyncio.gather(*calls) == ["1", "2", "3"]


async def test_connections_take_turns() -> None:
    """A connection with many requests does not hold up another one with one."""
    sent = Sent(2)
    calls = [sent.ask(name, "greedy") for name in "12345"] + [sent.ask("6", "modest")]
    await settled()
    for name in "12":
        sent.come(name)
    await settled()
    assert sent.begun == ["1", "2", "3", "6"]
    for name in "3645":
        sent.come(name)
        await settled()
    await asyncio.gather(*calls)


async def test_a_slow_one_makes_room() -> None:
    """It still comes, without a place."""
    sent = Sent(2)
    calls = [sent.ask(name) for name in "123"]
    await settled()
    await elapse(QUICK)
    assert (sent.begun, sent.receiving.slow) == (["1", "2", "3"], 2)
    for name in "321":
        sent.come(name)
    assert await asyncio.gather(*calls) == ["1", "2", "3"]
    assert sent.receiving.slow == 0


async def test_places_are_taken_back_sooner_while_others_wait() -> None:
    """So a call behind those of many connections does not wait long for it. The others still come."""
    sent = Sent(2)
    slow = [sent.ask(str(number), f"slow{number}") for number in range(20)]
    quick = sent.ask("quick", "quick")
    await settled()
    for _ in range(10):
        await elapse(HURRIED)
    assert sent.begun[-1] == "quick"
    for name in ("quick", *map(str, range(20))):
        sent.come(name)
    assert await asyncio.gather(quick, *slow) == ["quick", *map(str, range(20))]
    assert sent.receiving.slow == 0


async def test_places_are_taken_back_at_once_by_a_timer_that_tells_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As uvloop makes one that is due: others may begin to wait before it is called."""
    loop = asyncio.get_running_loop()
    call_at = loop.call_at

    def as_uvloop(when: float, callback: Callable[..., object], *given: Any, context: Any = None) -> asyncio.Handle:
        if when > loop.time():
            return call_at(when, callback, *given, context=context)
        return loop.call_soon(callback, *given, context=context)

    sent = Sent(2)
    slow = [sent.ask(name, f"slow{name}") for name in "12"]
    await settled()
    await elapse(HURRIED)
    monkeypatch.setattr(loop, "call_at", as_uvloop)
    quick = [sent.ask(name, name) for name in "34"]
    await settled()
    monkeypatch.undo()
    for name in "3412":
        sent.come(name)
    assert await asyncio.gather(*slow, *quick) == [*"1234"]


async def test_hurried_ones_have_their_time_when_memory_is_short() -> None:
    """Who has sent a request is not refused because many others wait."""
    sent = Sent(2)
    calls = [sent.ask(name, name) for name in "123"]
    await settled()
    await elapse(HURRIED)
    assert sent.receiving.slow == 1
    sent.receiving.end_slow(MemoryShort.at("limits.max_memory_bytes", 1000, timedelta(seconds=1)))
    sent.come("1")
    assert await calls[0] == "1"
    await elapse(QUICK)
    for call in calls[1:]:
        with pytest.raises(MemoryShort):
            await call


async def test_the_newest_that_waits_behind_makes_room_for_a_call_of_others() -> None:
    """None is ended for a call of a connection that has slow ones itself."""
    sent = Sent(2)
    full = TooManyCalls.at("limits.max_calls", 5, timedelta(seconds=1))
    assert not sent.receiving.make_room("modest", full)
    greedy = [sent.ask(name, "greedy") for name in "12"]
    await settled()
    await elapse(QUICK)
    greedy += [sent.ask(name, "greedy") for name in "3456"]
    await settled()
    assert not sent.receiving.make_room("greedy", full)
    assert sent.receiving.make_room("modest", full)
    with pytest.raises(TooManyCalls):
        await greedy[5]
    assert sent.receiving.make_room("modest", full)
    assert not sent.receiving.make_room("modest", full)
    for name in "1234":
        sent.come(name)
    assert await asyncio.gather(*greedy[:4]) == ["1", "2", "3", "4"]


async def test_the_newest_of_who_has_most_makes_room_for_a_call_of_others() -> None:
    """Of those that wait for a place, unless the other one of its address has about as many."""
    sent = Sent(2)
    full = TooManyCalls.at("limits.max_calls", 5, timedelta(seconds=1))
    calls = [sent.ask(name, "host:greedy") for name in "123456"]
    await settled()
    assert not sent.receiving.make_room("host:greedy", full)
    modest = [sent.ask(name, "host:modest") for name in "78"]
    await settled()
    assert sent.receiving.make_room("host:modest", full)
    assert not sent.receiving.make_room("host:modest", full)
    assert sent.receiving.make_room("other:modest", full)
    with pytest.raises(TooManyCalls):
        await calls[5]
    with pytest.raises(TooManyCalls):
        await calls[4]
    for name in "123478":
        sent.come(name)
    assert await asyncio.gather(*calls[:4], *modest) == [*"123478"]


async def test_who_has_slow_ones_does_not_wait_for_ever() -> None:
    """Beside a connection of which always some wait."""
    sent = Sent(2)
    slow = sent.ask("slow", "slow")
    await settled()
    await elapse(QUICK)
    calls = [sent.ask(str(number), "greedy") for number in range(2 + 4 * BEHIND)]
    await settled()
    behind = sent.ask("behind", "slow")
    for number in range(2 * BEHIND):
        await settled()
        sent.come(str(number))
    await settled()
    assert "behind" in sent.begun
    for call in (slow, behind, *calls):
        call.cancel()
    await asyncio.gather(slow, behind, *calls, return_exceptions=True)


async def test_callers_that_left_together_are_passed_over_a_few_at_a_time() -> None:
    """Everything else has its turns between them."""
    sent = Sent(2)
    calls = [sent.ask(name) for name in "12"]
    await asyncio.sleep(0)
    gone = [sent.ask(f"gone{number}", "b") for number in range(MANY)]
    await asyncio.sleep(0)
    for call in gone:
        call.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    calls.append(sent.ask("3", "b"))
    await asyncio.sleep(0)
    sent.come("1")
    rounds = 0
    while sent.begun[-1] != "3":
        await asyncio.sleep(0)
        rounds += 1
    assert rounds > 10
    sent.come("2")
    sent.come("3")
    assert await asyncio.gather(*calls) == [*"123"]


async def test_one_that_is_refused_and_cancelled_at_once_gives_no_place_back() -> None:
    """It had none. Else each would let one more be received than memory is for."""
    sent = Sent(2)
    full = TooManyCalls.at("limits.max_calls", 5, timedelta(seconds=1))
    calls = [sent.ask(name, "host:greedy") for name in "123"]
    await settled()
    assert sent.receiving.make_room("other:modest", full)
    calls[2].cancel()
    calls.append(sent.ask("4", "other:modest"))
    await settled()
    assert calls[2].cancelled()
    assert sent.begun == ["1", "2"]
    for name in "12":
        sent.come(name)
    await settled()
    sent.come("4")
    assert await asyncio.gather(*calls[:2], calls[3]) == [*"124"]


async def test_one_that_does_not_come_fails() -> None:
    """After its time."""
    call = Sent(2).ask("1")
    await settled()
    await elapse(QUICK)
    await elapse(LONG)
    with pytest.raises(RequestTooSlow):
        await call


async def test_slow_ones_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused, and told to try again."""
    monkeypatch.setattr(receiving, "MAX_SLOW", 1)
    sent = Sent(2)
    calls = [sent.ask(name) for name in "12"]
    await settled()
    await elapse(QUICK)
    with pytest.raises(TooManyCalls) as refused:
        await calls[1]
    assert refused.value.retry_after is not None
    sent.come("1")
    assert await calls[0] == "1"


async def test_the_connection_with_most_slow_ones_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has many cannot have those of others refused."""
    monkeypatch.setattr(receiving, "MAX_SLOW", 3)
    sent = Sent(8)
    greedy = [sent.ask(name, "greedy") for name in "123"]
    await settled()
    await elapse(QUICK)
    modest = sent.ask("4", "modest")
    await settled()
    await elapse(QUICK)
    with pytest.raises(TooManyCalls):
        await greedy[2]
    assert sent.receiving.slow == 3
    for name in "124":
        sent.come(name)
    assert await asyncio.gather(*greedy[:2], modest) == ["1", "2", "4"]
    assert sent.receiving.slow == 0


async def test_what_is_there_of_slow_ones_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow requests of the connection that has sent most of them end, and are told when to try again."""
    monkeypatch.setattr(receiving, "MAX_SLOW_BYTES", 1_000)
    sent = Sent(8)
    greedy, modest = [sent.ask(name, "greedy") for name in "12"], [sent.ask(name, "modest") for name in "34"]
    await settled()
    await elapse(QUICK)
    sent.received = {"greedy": 600, "modest": 400}
    await elapse(LOOK)
    await elapse(LOOK)
    assert sent.receiving.slow == 4
    sent.received = {"greedy": 601, "modest": 400}
    while sent.receiving.slow == 4:
        await elapse(LOOK)
    for call in greedy:
        with pytest.raises(TooManyCalls) as refused:
            await call
        assert refused.value.metadata == {"limit": "MAX_SLOW_BYTES", "limitValue": "1000"}
        assert refused.value.retry_after is not None
    for name in "34":
        sent.come(name)
    assert await asyncio.gather(*modest) == ["3", "4"]


async def test_connections_with_slow_ones_wait_behind_others() -> None:
    """Requests that do not come keep every place for a moment, again and again."""
    sent = Sent(2)
    slow = [sent.ask(name, f"slow{name}") for name in "12"]
    await settled()
    await elapse(QUICK)
    calls = [sent.ask(name, "quick") for name in "34"]
    await settled()
    calls += [sent.ask("5", "slow1"), sent.ask("6", "slow2"), sent.ask("7", "quick"), sent.ask("8", "quick")]
    await settled()
    for name in "34785612":
        sent.come(name)
        await settled()
    assert sent.begun == [*"123478", *"56"]
    await asyncio.gather(*slow, *calls)


async def test_what_waits_of_a_connection_goes_behind_with_its_first_slow_one() -> None:
    """A flood of requests that do not come arrives all at once."""
    sent = Sent(2)
    flood = [sent.ask(name, "flood") for name in "1234"]
    await settled()
    quick = sent.ask("5", "quick")
    await settled()
    await elapse(QUICK)
    assert sent.begun == [*"125", "3"]
    for name in "54321":
        if name == "4":
            await settled()
        sent.come(name)
    await asyncio.gather(*flood, quick)


async def _sends_large(sent: Sent, *connections: str) -> None:
    """Lets each connection send a large request."""
    for connection in connections:
        call = sent.ask("large", connection)
        await settled()
        sent.come("large", LARGE_BYTES)
        await call
    sent.begun.clear()


async def test_connections_with_large_requests_have_half_of_the_places() -> None:
    """Theirs take long to come, and the others do not wait for them."""
    sent = Sent(4)
    await _sends_large(sent, "large1", "large2")
    calls = [sent.ask(name, f"large{1 + int(name) % 2}") for name in "1234"] + [sent.ask("5", "b")]
    await settled()
    assert sent.begun == [*"125"]
    sent.come("1")
    await settled()
    assert sent.begun == [*"1253"]
    for name in "2354":
        sent.come(name)
        await settled()
    assert await asyncio.gather(*calls) == [*"12345"]


async def test_large_ones_take_turns_with_others() -> None:
    """Neither holds the other up, whoever began to wait first."""
    sent = Sent(2)
    await _sends_large(sent, "large")
    calls = [sent.ask(name, "b") for name in "1234"]
    await settled()
    calls += [sent.ask(name, "large") for name in "56"]
    await settled()
    for name in "12":
        sent.come(name)
        await settled()
    assert sorted(sent.begun) == [*"1235"]
    for name in "3546":
        sent.come(name)
        await settled()
    assert await asyncio.gather(*calls) == [*"123456"]


async def test_a_large_one_keeps_its_place_for_longer() -> None:
    """While others wait, too. With its place taken back, a hundred of them would come together."""
    sent = Sent(2)
    await _sends_large(sent, "large")
    large = sent.ask("1", "large")
    others = [sent.ask(name, "b") for name in "23"]
    await settled()
    await elapse(QUICK)
    assert (sent.begun, sent.receiving.slow) == ([*"123"], 1)
    await elapse(LARGE)
    assert sent.receiving.slow == 3
    for name in "123":
        sent.come(name)
    assert await asyncio.gather(large, *others) == [*"123"]


async def test_a_large_one_that_does_not_come_does_not_hold_up_those_of_other_addresses() -> None:
    """Those of its own address wait for it. It still comes, without its place."""
    sent, here, elsewhere = Sent(2), [f"ipv4:192.0.2.1:{port}" for port in "123"], "ipv4:192.0.2.2:1"
    await _sends_large(sent, *here, elsewhere)
    calls = [sent.ask(name, connection) for name, connection in zip("123", here, strict=True)]
    await settled()
    await elapse(LARGE_HURRIED)
    assert (sent.begun, sent.receiving.slow) == ([*"1"], 0)
    calls.append(sent.ask("4", elsewhere))
    await settled()
    for _ in range(3):
        await elapse(LARGE_HURRIED)
    assert "4" in sent.begun
    for name in "1423":
        sent.come(name)
        await settled()
    assert await asyncio.gather(*calls) == [*"1234"]


async def test_a_quick_one_that_waits_is_not_held_up_by_the_time_of_large_ones() -> None:
    """They have longer, and lose their places at their own time."""
    sent, elsewhere = Sent(4), "ipv4:192.0.2.2:1"
    await _sends_large(sent, "large1", "large2", elsewhere)
    calls = [sent.ask("1", "large1"), sent.ask("2", "large2"), sent.ask("3", elsewhere)]
    await settled()
    calls += [sent.ask(name, name) for name in "456"]
    await settled()
    assert sent.begun == [*"1245"]
    await elapse(HURRIED)
    assert (sent.begun, sent.receiving.slow) == ([*"12456"], 1)
    for name in "142563":
        sent.come(name)
        await settled()
    assert await asyncio.gather(*calls) == [*"123456"]


async def test_who_sends_small_ones_again_waits_among_the_others() -> None:
    """After as many as `SMALL_AGAIN`."""
    sent = Sent(2)
    await _sends_large(sent, "once", "large")
    for number in range(SMALL_AGAIN):
        assert ("once" in sent.receiving._sends_large) == (number < SMALL_AGAIN)
        call = sent.ask("small", "once")
        sent.come("small")
        await call
    sent.begun.clear()
    calls = [sent.ask("1", "large"), sent.ask("2", "large"), sent.ask("3", "once")]
    await settled()
    assert sent.begun == ["1", "3"]
    for name in "132":
        sent.come(name)
        await settled()
    await asyncio.gather(*calls)


async def test_slow_ones_that_have_sent_much_are_large() -> None:
    """Also when they end before they are there: who tries again waits among the large ones."""
    sent = Sent(8)
    call = sent.ask("1", "large")
    await settled()
    await elapse(QUICK)
    sent.received = {"large": LARGE_BYTES}
    while "large" not in sent.receiving._sends_large:
        await elapse(LOOK)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def test_nothing_more_is_received_while_what_came_late_is_to_be_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests whose calls have ended may still come; they have no place, and memory."""
    sent = Sent(2)
    monkeypatch.setattr(Copying, "late", MAX_LATE)
    call = sent.ask("1")
    await settled()
    await elapse(HURRIED)
    assert sent.begun == []
    monkeypatch.setattr(Copying, "late", MAX_LATE - 1)
    await elapse(HURRIED)
    sent.come("1")
    assert await call == "1"


async def test_slow_ones_end_when_they_are_told() -> None:
    """With the error of who ends them; quick ones stay."""
    sent = Sent(2)
    slow = sent.ask("1")
    await settled()
    await elapse(QUICK)
    quick = sent.ask("2")
    await settled()
    sent.receiving.end_slow(MemoryShort.at("limits.max_memory_bytes", 1, timedelta(seconds=1)))
    with pytest.raises(MemoryShort):
        await slow
    sent.come("2")
    assert await quick == "2"


async def test_those_that_become_slow_later_end_too() -> None:
    """Until they may come again: what is short then stays short for a while."""
    sent = Sent(2)
    sent.receiving.end_slow(MemoryShort.at("limits.max_memory_bytes", 1, timedelta(seconds=1)))
    slow = sent.ask("1")
    await settled()
    await elapse(QUICK)
    with pytest.raises(MemoryShort):
        await slow
    sent.receiving.end_slow(None)
    slow = sent.ask("2")
    await settled()
    await elapse(QUICK)
    sent.come("2")
    assert await slow == "2"


async def test_one_that_is_complete_keeps_its_place_until_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in memory, however long others are copied before it."""
    monkeypatch.setattr(copying, "PAUSE_SECONDS", RECEIVE_SECONDS)
    sent, message = Sent(2), asyncio.get_running_loop().create_future()

    async def copied() -> bytes:
        return bytes(await message)

    complete = asyncio.create_task(sent.receiving.read("a", lambda: sent.copying.read(copied(), "a")))
    await settled()
    sent.copying._others.count(COPIED_BYTES)
    message.set_result(b"1")
    await elapse(QUICK)
    assert (complete.done(), sent.receiving.slow) == (False, 0)
    await elapse(LONG)
    assert await complete == b"1"


@pytest.mark.parametrize("when", ["waiting", "granted", "reading"])
async def test_a_caller_who_leaves_gives_the_place_back(when: str) -> None:
    """At any moment."""
    sent = Sent(2)
    first = [sent.ask(name) for name in "12"]
    await settled()
    leaving, later = sent.ask("3"), sent.ask("4")
    await settled()
    if when == "waiting":
        leaving.cancel()
    sent.come("1")
    if when == "granted":
        await first[0]
        leaving.cancel()
    await settled()
    leaving.cancel()
    await settled()
    sent.come("2")
    sent.come("4")
    assert await asyncio.gather(*first, later) == ["1", "2", "4"]
    more = [sent.ask(name) for name in "56"]
    await settled()
    assert sent.begun[-2:] == ["5", "6"]
    for name in "56":
        sent.come(name)
    await asyncio.gather(*more)


@pytest.mark.parametrize("goes", ["cancelled", "gone"])
async def test_who_only_leaves_is_cut_off(goes: str) -> None:
    """Who leaves before the request is there; a request that comes makes up for one that does not."""
    sent = Sent(2)

    async def gone() -> bytes:
        raise CallerGone

    async def leave(connection: str) -> None:
        if goes == "cancelled":
            call = sent.ask("1", connection)
            await settled()
            call.cancel()
        else:
            call = asyncio.create_task(sent.receiving.read(connection, gone))
        await asyncio.gather(call, return_exceptions=True)

    for _ in range(MAX_RESETS + 1):
        call = sent.ask("2", "half")
        sent.come("2")
        await call
        for connection in ("half", "all"):
            await leave(connection)
    while not sent.cut_off:
        await asyncio.sleep(0)
    assert sent.cut_off == ["all"]


async def test_who_is_refused_has_not_left() -> None:
    """Requests that the listener refuses may be many."""
    sent = Sent(2)

    async def refused() -> bytes:
        raise ValueError

    for _ in range(2 * MAX_RESETS):
        with pytest.raises(ValueError):
            await sent.receiving.read("a", refused)
    await settled()
    assert sent.cut_off == []


def test_a_slow_line_brings_the_largest_request_in_time() -> None:
    """50 KB a second is slow and honest."""
    assert ServerConfig().max_message_bytes < RECEIVE_SECONDS * 50_000
