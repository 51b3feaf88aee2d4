"""Large answers have places while they are sent."""

import asyncio

import pytest

from turnwire.api.bounds import sending
from turnwire.api.bounds.sending import Sending
from turnwire.domain.errors import TooManyCalls


def never() -> None:
    """Ends nothing."""
    raise AssertionError("nobody should be ended")


async def test_an_answer_without_a_place_is_refused() -> None:
    """The refusal names the limit; when the place is free again, the next answer has it."""
    places = Sending(100)
    held = places.hold(80, "a", never)
    with pytest.raises(TooManyCalls) as refused:
        places.hold(30, "a", never)
    assert refused.value.metadata == {"limit": "limits.max_sending_bytes", "limitValue": "100"}
    places.release(held)
    places.release(held)
    places.hold(30, "a", never)
    assert places.bytes == 30


async def test_one_answer_may_be_larger_than_all() -> None:
    """Else nobody could ever read it."""
    places = Sending(100)
    places.hold(1000, "a", never)
    with pytest.raises(TooManyCalls):
        places.hold(1, "b", never)


async def test_no_answer_after_the_other_is_made_in_vain() -> None:
    """A connection that was refused a place is refused before its next answer is made, until a place is free."""
    places = Sending(100)
    held = places.hold(80, "a", never)
    with pytest.raises(TooManyCalls):
        places.hold(30, "b", never)
    places.check("c")
    with pytest.raises(TooManyCalls):
        places.check("b")
    places.release(held)
    places.check("b")


async def test_who_does_not_read_is_cut_off_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, when another wants the place, and not before; the place is free when the call has ended."""
    ended = list[str]()
    places = Sending(100)
    held = places.hold(100, "a", lambda: ended.append("old"))
    monkeypatch.setattr(sending, "UNREAD_SECONDS", 0.0)
    assert ended == []
    for _ in range(2):
        with pytest.raises(TooManyCalls):
            places.hold(1, "b", never)
    assert ended == ["old"]
    places.release(held)
    places.hold(100, "b", never)


async def test_connections_wait_in_turns() -> None:
    """A connection with many waiting streams does not hold up another one."""
    places, order = Sending(100), list[str]()

    async def stream(connection: str) -> None:
        async with places.place(100, connection, never):
            order.append(connection)
            await asyncio.sleep(0)

    held = places.hold(100, "a", never)
    tasks = [asyncio.create_task(stream(name)) for name in ("many", "many", "many", "one")]
    await asyncio.sleep(0)
    places.release(held)
    await asyncio.gather(*tasks)
    assert order == ["many", "one", "many", "many"]
    assert places.bytes == 0


async def test_a_stream_that_ends_while_it_waits_takes_no_place() -> None:
    """Also when it had just been given one."""
    places = Sending(100)

    async def stream() -> None:
        async with places.place(100, "one", never):
            await asyncio.Event().wait()

    for release_first in (False, True):
        held = places.hold(100, "a", never)
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
    held = places.hold(100, "a", lambda: places.release(held))
    async with places.place(100, "one", never):
        assert places.bytes == 100


async def test_what_waits_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it a stream is refused; what several share counts once, until the last of them goes on."""
    monkeypatch.setattr(sending, "MAX_WAITING_BYTES", 150)
    places, one, other = Sending(100), "one", "other"
    held = places.hold(100, "a", never)

    async def stream(size: int, shared: object = None) -> None:
        async with places.place(size, "one", never, shared):
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
    assert (places.waiting_bytes, places.bytes, len(places._shared)) == (0, 0, 0)


async def test_the_loop_goes_on_between_large_answers() -> None:
    """However many may be sent at the same time, each is given to gRPC in a turn of its own; small ones together."""
    places, turns = Sending(10**9), list[int]()
    turn = 0

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def send(size: int) -> None:
        async with places.place(size, "one", never):
            turns.append(turn)

    counting = asyncio.create_task(count())
    await asyncio.gather(*(send(1) for _ in range(5)))
    assert len(set(turns)) == 1
    turns.clear()
    await asyncio.gather(*(send(2 * sending.COPIED_BYTES) for _ in range(5)))
    assert len(set(turns)) == 5
    counting.cancel()
