"""In which order callbacks of owners run, on a clock that only moves when they work."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.event_loop import fair_queue
from turnwire.event_loop.fair_queue import DUE_SECONDS, FEW, FEW_SHARE, KEPT_OWNERS, SHARE_SECONDS, FairScheduler, Ready

MILLISECOND = 0.001


class Clock:
    """A clock that only moves when a callback works."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        """Returns the time."""
        return self.now


class Callbacks:
    """A queue, and what has run."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.told = list[str]()
        self.errors = list[tuple[Ready, BaseException]]()
        self.queue = FairScheduler(lambda ready, error: self.errors.append((ready, error)))

    def add(
        self, owner: str, count: int = 1, seconds: float = MILLISECOND, then: Callable[[], object] = lambda: None
    ) -> Ready:
        """Adds callbacks that work for a time, and returns the last one."""

        def work() -> None:
            self.clock.now += seconds
            self.told.append(owner)
            then()

        for _ in range(count):
            self.queue.add(owner, ready := Ready(work))
        return ready

    def run(self, milliseconds: float = 1e6) -> str:
        """Runs them, and returns the owners of those that ran."""
        self.told.clear()
        self.queue.run(milliseconds * MILLISECOND)
        return "".join(self.told)


@pytest.fixture
def callbacks(monkeypatch: pytest.MonkeyPatch) -> Callbacks:
    """An empty queue."""
    clock = Clock()
    monkeypatch.setattr(fair_queue, "time", clock)
    return Callbacks(clock)


def test_owners_take_turns(callbacks: Callbacks) -> None:
    """Though all callbacks of one came before those of the other."""
    callbacks.add("a", 5)
    callbacks.add("b", 3)
    assert callbacks.run() == "abababaa"


def test_callbacks_of_an_owner_keep_their_order(callbacks: Callbacks) -> None:
    """Also those that others add while it runs."""
    order = list[int]()
    for number in range(20):
        callbacks.add("a", then=lambda number=number: order.append(number))  # type: ignore[misc]
        callbacks.add("b", then=lambda n=number: callbacks.add("a", then=lambda: order.append(20 + n)))  # type: ignore[misc]
    callbacks.run()
    assert order == [*range(40)]


def test_owners_share_the_time_and_not_the_callbacks(callbacks: Callbacks) -> None:
    """One whose callbacks take long has fewer of them."""
    callbacks.add("a", 5, seconds=4 * MILLISECOND)
    callbacks.add("b", 16)
    assert callbacks.run(24) == "abbbb" * 3


def test_short_callbacks_of_an_owner_run_together(callbacks: Callbacks) -> None:
    """As long as it may have the time at once."""
    callbacks.add("a", 8, seconds=SHARE_SECONDS / 4)
    callbacks.add("b", 2, seconds=SHARE_SECONDS / 4)
    assert callbacks.run() == "aaaabbaaaa"


def test_who_comes_after_a_pause_goes_first(callbacks: Callbacks) -> None:
    """However many callbacks of another one wait."""
    callbacks.add("a", 1000)
    callbacks.run(500)
    callbacks.add("b")
    assert callbacks.run(2) == "ba"


def test_who_has_few_goes_before_hundreds_who_have_many(callbacks: Callbacks) -> None:
    """In three quarters of the time; those with many have the rest."""
    for number in range(300):
        callbacks.add(f"m{number}", 2 * FEW)
    callbacks.run(8)
    callbacks.add("a", 12)
    callbacks.run(8)
    assert (callbacks.told.count("a"), len(callbacks.told)) == (6, 8)
    callbacks.run(8)
    assert (callbacks.told.count("a"), len(callbacks.told)) == (6, 8)
    callbacks.run(8)
    assert (callbacks.told.count("a"), len(callbacks.told)) == (0, 8)


def test_who_has_many_has_a_quarter_beside_callbacks_that_take_a_round(callbacks: Callbacks) -> None:
    """A round ends with each of them, and the next one begins with what is due."""

    def again() -> None:
        callbacks.add("a", seconds=2 * MILLISECOND, then=again)

    again()
    callbacks.add("b", 1000)
    told = "".join(callbacks.run(2) for _ in range(100))
    assert abs(told.count("b") - (told.count("b") + 2 * told.count("a")) / 4) <= 2


def test_a_moment_without_the_processor_is_not_made_up_for(callbacks: Callbacks) -> None:
    """An owner with few does not wait for seconds because the process stood still while one of them ran."""
    callbacks.add("a", 2 * FEW)
    callbacks.add("b", seconds=10_000 * MILLISECOND)
    callbacks.add("b", 2)
    callbacks.run(1)
    callbacks.clock.now += 1
    assert "b" in callbacks.run(1000 * DUE_SECONDS / FEW_SHARE + 2)


def test_connections_of_an_address_share_its_time(callbacks: Callbacks) -> None:
    """However many they are, the only one of another address has as much as all of them."""
    for port in range(20):
        callbacks.add(f"ipv4:10.0.0.1:{port}", 100)
    callbacks.add("ipv4:10.0.0.2:1", 100)
    callbacks.run(80)
    assert callbacks.told.count("ipv4:10.0.0.2:1") in (39, 40, 41)
    assert {callbacks.told.count(f"ipv4:10.0.0.1:{port}") for port in range(20)} <= {1, 2, 3}


@pytest.mark.parametrize("count", [1, 2 * FEW])
def test_connections_of_an_address_are_not_before_one_of_another(callbacks: Callbacks, count: int) -> None:
    """However many of them come at the same moment: none has had anything yet, but their address has."""
    for port in range(300):
        callbacks.add(f"ipv4:10.0.0.1:{port}", count)
    callbacks.add("ipv4:10.0.0.2:1", 8 * count)
    callbacks.run(16)
    assert callbacks.told.count("ipv4:10.0.0.2:1") >= 7


def test_new_connections_of_an_address_have_no_more_than_old_ones(callbacks: Callbacks) -> None:
    """A client that comes by another connection each time shares with the others as if it had one."""

    def again() -> None:
        callbacks.add("ipv4:10.0.0.2:1", then=again)

    again()
    old = 0
    for port in range(100):
        callbacks.add(f"ipv4:10.0.0.1:{port}")
        callbacks.add(f"ipv4:10.0.0.1:{1000 + port}")
        old += callbacks.run(1) == "ipv4:10.0.0.2:1"
    assert old in (49, 50, 51)


@pytest.mark.slow
def test_connections_that_come_and_go_are_forgotten_while_their_address_is_busy(callbacks: Callbacks) -> None:
    """Each has had its part, and so have the others of the address."""
    callbacks.add("ipv4:10.0.0.2:1", 100_000)
    callbacks.add("ipv4:10.0.0.1:1", 100_000)
    for port in range(20 * KEPT_OWNERS):
        callbacks.add(f"ipv4:10.0.0.1:{port}", 2)
        callbacks.run(8)
    assert callbacks.queue.owners <= 2 * KEPT_OWNERS


@given(
    st.lists(
        st.one_of(st.tuples(st.sampled_from(("x:a", "x:b", "c")), st.integers(1, 40)), st.integers(1, 30)), max_size=40
    )
)
def test_each_callback_runs_once_and_those_of_an_owner_in_their_order(steps: list[tuple[str, int] | int]) -> None:
    """However many come, and whenever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fair_queue, "time", clock := Clock())
        callbacks, ran, added = Callbacks(clock), dict[str, list[int]](), Counter[str]()
        for step in steps:
            if isinstance(step, int):
                callbacks.run(step)
                continue
            owner, count = step
            for _ in range(count):
                number, line = added[owner], ran.setdefault(owner, [])
                callbacks.add(owner, then=lambda line=line, number=number: line.append(number))  # type: ignore[misc]
                added[owner] += 1
        callbacks.run()
    assert not callbacks.queue
    assert ran == {owner: [*range(count)] for owner, count in added.items()}


def test_who_had_few_for_long_is_not_behind_when_it_has_many(callbacks: Callbacks) -> None:
    """It has had more than the others, and more was due to it."""
    callbacks.add("b", 1000)
    for _ in range(50):
        callbacks.add("a", 6)
        callbacks.run(8)
    callbacks.add("a", 100)
    assert callbacks.run(20).count("a") in (9, 10)


def test_a_pause_is_no_claim(callbacks: Callbacks) -> None:
    """An owner that has worked a lot meanwhile is not kept from it now."""
    callbacks.add("b")
    callbacks.add("a", 1000)
    callbacks.run(500)
    callbacks.add("b", 100)
    assert callbacks.run(20).count("a") == 10


def test_an_owner_pays_for_what_took_long(callbacks: Callbacks) -> None:
    """Before its next callback, also if it has none when others have their turn."""
    callbacks.add("a", seconds=5 * MILLISECOND)
    callbacks.add("b", 16)
    callbacks.run(6)
    callbacks.add("a", 16)
    assert callbacks.run(8) == "bbbbabab"


def test_the_time_ends(callbacks: Callbacks) -> None:
    """Others remain, and the queue says so."""
    callbacks.add("a", 3)
    assert (callbacks.run(2), bool(callbacks.queue)) == ("aa", True)
    assert (callbacks.run(2), bool(callbacks.queue)) == ("a", False)


def test_a_cancelled_callback_does_not_run(callbacks: Callbacks) -> None:
    """Others of its owner do."""
    ready = callbacks.add("a")
    callbacks.add("a")
    ready.cancel()
    ready.cancel()
    assert (callbacks.run(), ready.cancelled()) == ("a", True)


def test_an_error_is_told(callbacks: Callbacks) -> None:
    """And others run."""

    def fail() -> None:
        raise ValueError("no")

    ready = callbacks.add("a", then=fail)
    callbacks.add("a")
    assert callbacks.run() == "aa"
    [(failed, error)] = callbacks.errors
    assert failed is ready
    assert repr(error) == "ValueError('no')"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interruption_comes_through(callbacks: Callbacks, kind: type[BaseException]) -> None:
    """The others remain, in their order."""

    def stop() -> None:
        raise kind

    callbacks.add("a", then=stop)
    callbacks.add("a")
    callbacks.add("b")
    with pytest.raises(kind):
        callbacks.run()
    assert sorted(callbacks.run()) == ["a", "b"]


def test_idle_owners_are_forgotten(callbacks: Callbacks) -> None:
    """Connections come and go for ever; a queue that is empty owes nobody anything."""
    for number in range(20 * KEPT_OWNERS):
        callbacks.add(f"owner {number}", seconds=number * MILLISECOND)
        callbacks.run()
    assert callbacks.queue.owners <= KEPT_OWNERS + 1


def test_idle_owners_are_forgotten_while_others_wait(callbacks: Callbacks) -> None:
    """Those who have paid for what they had."""
    callbacks.add("a", 100_000)
    for number in range(20 * KEPT_OWNERS):
        callbacks.add(f"owner {number}")
        callbacks.run(4)
    assert callbacks.queue.owners <= KEPT_OWNERS + 3


def test_callbacks_of_a_closed_loop_are_forgotten(callbacks: Callbacks) -> None:
    """With all that they refer to."""
    callbacks.add("a", 3)
    callbacks.queue.clear()
    assert (callbacks.run(), callbacks.queue.owners) == ("", 0)


def test_a_callback_is_shown_without_what_it_is_called_with() -> None:
    """The log has no values of clients."""

    def work(_: str) -> None: ...

    ready = Ready(lambda *_: None, work, "secret")
    assert repr(ready).endswith(".work>")
    assert "secret" not in repr(ready)
    ready.cancel()
    assert " cancelled " in repr(ready)
