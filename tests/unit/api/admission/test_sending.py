"""Large answers have places while they are sent."""

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.loop import settled
from tests.support.oracles.budget import BudgetOracle, Part
from turnwire.api.admission import sending
from turnwire.api.admission.flow import Client
from turnwire.api.admission.sending import Reservation, Sending
from turnwire.domain.errors import TooManyCalls


@pytest.fixture(autouse=True)
def _much_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budgets of these tests are small."""
    monkeypatch.setattr(sending, "WAITING_SHARE", 10.0)


MANY = 1000


def of(connection: str, tenant: str = "") -> Client:
    """Returns a client."""
    return Client(tenant, connection)


def never() -> None:
    """Ends nothing."""
    raise AssertionError("nobody should be ended")


async def test_an_answer_without_a_place_is_refused() -> None:
    """The refusal names the limit; when the place is free again, the next answer has it."""
    places = Sending(100)
    held = places.reserve(80, of("a"), never)
    with pytest.raises(TooManyCalls) as refused:
        places.reserve(30, of("a"), never)
    assert refused.value.metadata == {"limit": "limits.max_sending_bytes", "limitValue": "100"}
    places.release(held)
    places.release(held)
    places.reserve(30, of("a"), never)
    assert places.bytes == 30


async def test_one_answer_may_be_larger_than_all() -> None:
    """Else nobody could ever read it."""
    places = Sending(100)
    places.reserve(1000, of("a"), never)
    with pytest.raises(TooManyCalls):
        places.reserve(1, of("b"), never)


async def test_no_answer_after_the_other_is_made_in_vain() -> None:
    """A connection that was refused a place is refused before its next answer is made, until a place is free."""
    places = Sending(100)
    held = places.reserve(80, of("a"), never)
    with pytest.raises(TooManyCalls):
        places.reserve(30, of("b"), never)
    places.check(of("c"))
    with pytest.raises(TooManyCalls):
        places.check(of("b"))
    places.release(held)
    places.check(of("b"))


async def test_who_does_not_read_is_cut_off_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, when another wants the place, and not before; the place is free when the call has ended."""
    ended = list[str]()
    places = Sending(100)
    held = places.reserve(100, of("a"), lambda: ended.append("old"))
    monkeypatch.setattr(sending, "UNREAD_SECONDS", 0.0)
    assert ended == []
    for _ in range(2):
        with pytest.raises(TooManyCalls):
            places.reserve(1, of("b"), never)
    assert ended == ["old"]
    places.release(held)
    places.reserve(100, of("b"), never)


async def test_a_stream_that_ends_while_it_waits_takes_no_place() -> None:
    """Also when it had just been given one."""
    places = Sending(100)

    async def stream() -> None:
        async with places.place(100, of("one"), never):
            await asyncio.Event().wait()

    for release_first in (False, True):
        held = places.reserve(100, of("a"), never)
        task = asyncio.create_task(stream())
        await asyncio.sleep(0)
        if release_first:
            places.release(held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        places.release(held)
        assert places.bytes == 0


async def test_a_waiting_stream_gets_the_place_of_who_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes again by itself when the time of the other is over."""
    monkeypatch.setattr(sending, "UNREAD_SECONDS", 0.05)
    places = Sending(100)
    held = places.reserve(100, of("a"), lambda: places.release(held))
    async with places.place(100, of("one"), never):
        assert places.bytes == 100


async def test_what_waits_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it a stream is refused; what several share counts once, until the last of them goes on."""
    monkeypatch.setattr(sending, "WAITING_SHARE", 1.5)
    places, one, other = Sending(100), "one", "other"
    held = places.reserve(100, of("a"), never)

    async def stream(size: int, shared: object = None) -> None:
        async with places.place(size, of("one"), never, shared):
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(stream(60, shared)) for shared in (one, one, other)]
    await asyncio.sleep(0)
    assert places.waiting_bytes == 120
    for shared in (None, object()):
        with pytest.raises(TooManyCalls):
            await stream(31, shared)
    tasks[0].cancel()
    await asyncio.wait(tasks[:1])
    assert places.waiting_bytes == 120
    tasks.append(asyncio.create_task(stream(30)))
    await asyncio.sleep(0)
    assert places.waiting_bytes == 150
    places.release(held)
    await asyncio.gather(*tasks[1:])
    assert (places.waiting_bytes, places.bytes, len(places._sharers)) == (0, 0, 0)


async def test_some_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as a third of the budget, unless a test says otherwise."""
    monkeypatch.undo()
    places = Sending(90)
    held = places.reserve(90, of("a"), never)

    async def stream(size: int) -> None:
        async with places.place(size, of("one"), never):
            pass

    tasks = [asyncio.create_task(stream(15)) for _ in range(2)]
    await asyncio.sleep(0)
    assert places.waiting_bytes == 30
    with pytest.raises(TooManyCalls):
        await stream(1)
    places.release(held)
    await asyncio.gather(*tasks)


async def test_a_tenant_leaves_half_for_others() -> None:
    """Where there are several: one alone has all."""
    places = Sending(90)
    alone = [places.reserve(30, of(connection, "one"), never) for connection in "acd"]
    for held in alone:
        places.release(held)
    places.release(places.reserve(1, of("b", "other"), never))
    first = [places.reserve(20, of(connection, "one"), never) for connection in "ad"]
    with pytest.raises(TooManyCalls):
        places.reserve(20, of("c", "one"), never)
    places.reserve(45, of("b", "other"), never)
    places.release(first[0])
    places.reserve(20, of("c", "one"), never)


async def test_tenants_wait_in_turns() -> None:
    """One with many connections that wait does not hold up another one."""
    places, order = Sending(100), list[str]()

    async def stream(connection: str, tenant: str) -> None:
        async with places.place(100, of(connection, tenant), never):
            order.append(connection)
            await asyncio.sleep(0)

    held = places.reserve(100, of("a", "many"), never)
    wanted = (("a", "many"), ("b", "many"), ("c", "many"), ("d", "one"))
    tasks = [asyncio.create_task(stream(*one)) for one in wanted]
    await asyncio.sleep(0)
    places.release(held)
    await asyncio.gather(*tasks)
    assert order == ["a", "d", "b", "c"]
    assert not places._waiting


async def test_a_tenant_that_waits_for_its_share_holds_up_nobody() -> None:
    """Another one that has room goes before it."""
    places = Sending(90)
    places.release(places.reserve(1, of("b", "other"), never))
    first = [places.reserve(20, of(connection, "one"), never) for connection in "ac"]
    waiting = asyncio.create_task(_sent(places, of("d", "one")))
    await asyncio.sleep(0)
    await _sent(places, of("b", "other"))
    assert not waiting.done()
    places.release(first[0])
    await waiting


async def test_a_connection_leaves_room_for_those_beside_it() -> None:
    """One that does not read, and for more of whose answers its streams wait, holds up none of its own tenant."""
    places = Sending(100)
    held = [places.reserve(25, of("slow"), never) for _ in range(2)]
    with pytest.raises(TooManyCalls):
        places.reserve(1, of("slow"), never)
    waiting = [asyncio.create_task(_sent(places, of("slow"))) for _ in range(3)]
    await asyncio.sleep(0)
    await _sent(places, of("neighbour"))
    places.release(places.reserve(20, of("neighbour"), never))
    assert not any(task.done() for task in waiting)
    places.release(held[0])
    await asyncio.gather(*waiting)


async def test_connections_of_a_tenant_wait_in_turns() -> None:
    """One with many streams that wait does not hold up another one."""
    places, order = Sending(100), list[str]()

    async def stream(connection: str) -> None:
        async with places.place(100, of(connection), never):
            order.append(connection)
            await asyncio.sleep(0)

    held = places.reserve(100, of("first"), never)
    tasks = [asyncio.create_task(stream(connection)) for connection in ("many", "many", "many", "one")]
    await asyncio.sleep(0)
    places.release(held)
    await asyncio.gather(*tasks)
    assert order == ["many", "one", "many", "many"]


async def test_connections_of_a_network_have_turns_for_answers_that_may_be_large() -> None:
    """Few are made at a time: a connection with many does not hold up another one behind the same proxy."""
    places, order = Sending(100), list[str]()

    async def make(connection: str) -> None:
        async with places.making(of(f"ipv4:192.0.2.1:{connection}"), of_objects=True):
            order.append(connection)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(make(connection)) for connection in "1111112"]
    await asyncio.gather(*tasks)
    assert order.index("2") <= sending.MAX_MADE


async def test_many_are_cut_off_in_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked at once, however often others are refused before those that were cut off have ended."""
    looks, ended = list[int](), list[int]()
    places = Sending(MANY)
    held = [places.reserve(1, of(str(number)), partial(ended.append, number)) for number in range(MANY)]
    monkeypatch.setattr(sending, "UNREAD_SECONDS", 0.0)

    def since(_: Reservation) -> float:
        looks.append(1)
        return 0.0

    monkeypatch.setattr(Reservation, "since", property(since))
    for _ in range(MANY):
        with pytest.raises(TooManyCalls):
            places.reserve(1, of("new"), never)
    assert (ended, len(looks)) == (list(range(MANY)), MANY)
    for one in held:
        places.release(one)
    assert places.bytes == 0


async def _sent(places: Sending, client: Client) -> None:
    async with places.place(20, client, never):
        pass


async def test_a_tenant_without_room_is_not_overtaken_for_ever() -> None:
    """Others with small answers would always have taken what it waits for."""
    places, order = Sending(100), list[str]()

    async def stream(tenant: str, size: int) -> None:
        async with places.place(size, of("two", tenant), never):
            order.append(tenant)

    held = [places.reserve(30, of("one", tenant), never) for tenant in ("a", "b")]
    tasks = [asyncio.create_task(stream("large", 60))]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(stream(tenant, 10)) for tenant in ("a", "c")]
    await asyncio.sleep(0)
    assert order == []
    places.release(held.pop())
    await asyncio.gather(*tasks)
    assert order[0] == "large"
    assert sorted(order) == ["a", "c", "large"]
    assert places.bytes == 30


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(("hold", "stream", "release", "leave")),
        st.sampled_from("ab"),
        st.sampled_from("xyz"),
        st.integers(1, 15),
    ),
    min_size=20,
    max_size=30,
)


@given(_STEPS)
def test_answers_have_places_as_in_a_model(steps: list[tuple[str, str, str, int]]) -> None:
    """Whatever is sent, read and left, in any order. One that is larger than all has all of it."""
    asyncio.run(_compare(steps))


async def _compare(steps: list[tuple[str, str, str, int]]) -> None:
    places, oracle = Sending(12), BudgetOracle(12)
    held, streams = dict[int, Reservation](), dict[int, asyncio.Task[None]]()

    async def stream(part: Part) -> None:
        async with places.place(part.size, Client(part.tenant, part.connection), never):
            await asyncio.Event().wait()

    for number, (step, tenant, connection, value) in enumerate(steps):
        part = Part(tenant, connection, min(value, 12), number)
        if step == "hold":
            if oracle.try_take(part):
                held[number] = places.reserve(value, Client(tenant, connection), never)
            else:
                with pytest.raises(TooManyCalls):
                    places.reserve(value, Client(tenant, connection), never)
        elif step == "stream":
            oracle.want(part)
            streams[number] = asyncio.create_task(stream(part))
        elif step == "release" and held:
            read = list(held)[value % len(held)]
            places.release(held.pop(read))
            oracle.release(next(one for one in oracle.held if one.number == read))
        elif step == "leave" and streams:
            gone = list(streams)[value % len(streams)]
            streams.pop(gone).cancel()
            left = next(one for one in (*oracle.held, *oracle.waiting) if one.number == gone)
            (oracle.release if left in oracle.held else oracle.leave)(left)
        await settled()
        assert places.bytes == oracle.used() <= 12
        assert places.waiting_bytes == sum(one.size for one in oracle.waiting)
    for task in streams.values():
        task.cancel()
    await asyncio.gather(*streams.values(), return_exceptions=True)
    for one in held.values():
        places.release(one)
    assert (places.bytes, places.waiting_bytes, len(places._unread), len(places._sharers)) == (0, 0, 0, 0)
