"""What gRPC copies is spread over the rounds of the event loop."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.fakes.loop import settled
from turnwire.api.bounds.copying import COPIED_BYTES, SMALL_CALL_BYTES, Copying

LARGE = b"x" * (2 * COPIED_BYTES)

AT_ONCE = COPIED_BYTES // SMALL_CALL_BYTES
"""Small calls."""


class Wire:
    """Messages that come when the test says so, and are copied as gRPC does: in the step after they have come."""

    def __init__(self) -> None:
        """Nothing has come."""
        self.copying = Copying()
        self.round = 0
        self.copied: list[tuple[int, bytes]] = []
        """Each message, with the round of the loop in which it was copied."""
        self.failed: list[BaseException] = []
        self._come: list[asyncio.Future[bytes]] = []

    @property
    def in_a_round(self) -> list[int]:
        """How many messages were copied in each round in which one was, in order."""
        return list(Counter(number for number, _ in self.copied).values())

    def read(self, connection: str = "") -> "asyncio.Task[bytes]":
        """Begins to read a message."""
        come: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._come.append(come)

        async def reading() -> bytes:
            try:
                message = await come
            except BaseException as error:
                self.failed.append(error)
                raise
            self.copied.append((self.round, message))
            return message

        return asyncio.create_task(self.copying.read(reading(), connection))

    def come(self, *messages: bytes | Exception) -> None:
        """Lets the next messages come in the same moment; an exception lets the read fail."""
        for message in messages:
            come = self._come.pop(0)
            if isinstance(message, Exception):
                come.set_exception(message)
            else:
                come.set_result(message)


@asynccontextmanager
async def counted() -> AsyncIterator[Wire]:
    """Has a wire on a loop whose rounds are counted."""
    wire = Wire()

    async def count() -> None:
        while True:
            wire.round += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        yield wire
    finally:
        counting.cancel()


async def rounds(number: int = 5) -> None:
    """Lets the loop go round."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_large_messages_that_come_together_are_copied_in_rounds_of_their_own() -> None:
    """In the order in which they came, however many they are; the first one is not known to be large."""
    async with counted() as wire:
        calls = [wire.read() for _ in range(10)]
        await rounds()
        messages = [LARGE + bytes([number]) for number in range(10)]
        wire.come(*messages)
        assert await asyncio.gather(*calls) == messages
        assert (wire.in_a_round, [message for _, message in wire.copied]) == ([2, *[1] * 8], messages)


async def test_small_messages_are_copied_together() -> None:
    """In the round in which they have come: they wait for nothing."""
    async with counted() as wire:
        calls = [wire.read() for _ in range(AT_ONCE)]
        await rounds()
        wire.come(*[b"x"] * AT_ONCE)
        await asyncio.gather(*calls)
        assert wire.in_a_round == [AT_ONCE]


async def test_hundreds_of_calls_that_come_together_do_not_begin_together() -> None:
    """Each takes tenths of a millisecond, however small its request is."""
    async with counted() as wire:
        calls = [wire.read(f"connection {number}") for number in range(10 * AT_ONCE)]
        await rounds()
        wire.come(*[b"x"] * (10 * AT_ONCE))
        await asyncio.gather(*calls)
        assert max(wire.in_a_round) <= AT_ONCE


async def test_what_fits_into_a_round_is_copied_in_it() -> None:
    """The next one waits."""
    async with counted() as wire:
        calls = [wire.read(f"connection {number}") for number in range(6)]
        await rounds()
        wire.come(*[LARGE[: COPIED_BYTES // 2]] * 6)
        await asyncio.gather(*calls)
        assert wire.in_a_round[0] == 2


async def test_what_comes_later_overtakes_nobody() -> None:
    """Also when it is small."""
    async with counted() as wire:
        calls = [wire.read(f"connection {number}") for number in range(4)]
        await rounds()
        wire.come(LARGE, LARGE)
        await rounds(2)
        wire.come(b"first", b"last")
        await asyncio.gather(*calls)
        assert [message for _, message in wire.copied] == [LARGE, LARGE, b"first", b"last"]


async def test_small_requests_of_others_do_not_wait_for_large_ones() -> None:
    """A connection that has sent a large one waits behind them."""
    async with counted() as wire:
        first = wire.read("large")
        await rounds()
        wire.come(LARGE)
        await first
        calls = [wire.read("large") for _ in range(5)] + [wire.read("small") for _ in range(5)]
        while not wire.copying._others.has_room():  # the first one was not known to be large
            await rounds()
        wire.copied.clear()
        wire.come(*[LARGE] * 5, *[b"x"] * 5)
        await asyncio.gather(*calls)
        assert [len(message) for _, message in wire.copied][-4:] == [len(LARGE)] * 4


async def test_answers_share_the_rounds_with_large_requests() -> None:
    """Both are copied by gRPC."""
    async with counted() as wire:
        first = wire.read()
        await rounds()
        wire.come(LARGE)
        await first
        wire.copied.clear()
        call = wire.read()
        await rounds()
        await wire.copying.pace(len(LARGE))
        given = wire.round
        wire.come(LARGE)
        await call
        [(copied, _)] = wire.copied
        assert copied > given


async def test_a_read_that_fails_tells_why() -> None:
    """Also when it has to wait, and those behind it go on."""
    async with counted() as wire:
        calls = [wire.read(f"connection {number}") for number in range(3)]
        await rounds()
        wire.come(LARGE, KeyError("gone"), b"x")
        assert await calls[0] == LARGE
        with pytest.raises(KeyError, match="gone"):
            await calls[1]
        assert await calls[2] == b"x"


async def test_a_read_may_go_on_after_what_fails() -> None:
    """Where a request is too large gRPC fails within a read, which then returns that there is none."""
    wire, come = Wire(), asyncio.get_running_loop().create_future()

    async def reading() -> bytes | None:
        try:
            return bytes(await come)
        except KeyError:
            return None

    call = asyncio.create_task(wire.copying.read(reading()))
    await settled()
    come.set_exception(KeyError("too large"))
    assert await call is None


async def test_a_message_that_comes_after_its_read_was_cancelled_is_copied() -> None:
    """Nothing else makes gRPC forget it. The read has ended at once."""
    wire = Wire()
    call = wire.read()
    await settled()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (wire.copied, wire.failed, wire.copying.late) == ([], [], 0)
    wire.come(LARGE)
    await asyncio.sleep(0)
    assert wire.copying.late == 1
    await settled()
    assert ([message for _, message in wire.copied], wire.copying.late) == ([LARGE], 0)


async def test_messages_that_come_late_are_copied_one_after_the_other() -> None:
    """They are of many calls that were ended together."""
    async with counted() as wire:
        calls = [wire.read(f"connection {number}") for number in range(4)]
        await rounds()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        wire.come(*[LARGE] * 4)
        while wire.copying.late or not wire.copied:
            await rounds()
        assert wire.in_a_round == [1] * 4


async def test_a_read_that_fails_after_it_was_cancelled_is_closed() -> None:
    """No message comes with the end of a connection."""
    copying, come, closed = Copying(), asyncio.get_running_loop().create_future(), asyncio.Event()

    async def reading() -> None:
        try:
            await come
        finally:
            closed.set()

    call = asyncio.create_task(copying.read(reading()))
    await settled()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert not closed.is_set()
    come.set_exception(KeyError("gone"))
    await settled()
    assert closed.is_set()


async def test_who_is_found_to_send_large_messages_while_it_waits_holds_up_nobody() -> None:
    """What waits behind it among the small ones has its turn after it, as it would have had."""
    async with counted() as wire:
        calls = [wire.read(connection) for connection in ("other", "large", "large", "small", "small")]
        await rounds()
        messages = [LARGE, LARGE, LARGE, b"x", b"y"]
        wire.come(*messages)
        async with asyncio.timeout(5):
            assert await asyncio.gather(*calls) == messages


@pytest.mark.parametrize("times", [1, 2])
async def test_a_message_that_is_there_is_copied_also_when_its_read_is_cancelled(times: int) -> None:
    """Nothing else makes gRPC forget it; the read ends as cancelled, and those behind it go on."""
    async with counted() as wire:
        calls = [wire.read(f"connection {number}") for number in range(3)]
        await rounds()
        wire.come(LARGE, LARGE, b"x")
        await calls[0]
        for _ in range(times):
            calls[1].cancel()
            await rounds(2)
        with pytest.raises(asyncio.CancelledError):
            await calls[1]
        assert await calls[2] == b"x"
        assert (sorted(len(message) for _, message in wire.copied), wire.failed) == ([1, len(LARGE), len(LARGE)], [])


async def test_a_message_that_has_just_come_is_copied_also_when_its_read_is_cancelled() -> None:
    """A client can send a request and end its call at once."""
    wire = Wire()
    call = wire.read()
    await settled()
    wire.come(LARGE)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [message for _, message in wire.copied] == [LARGE]


async def test_a_read_that_is_cancelled_is_so_also_when_it_fails_then() -> None:
    """The caller knows that the call has ended, which is why gRPC fails after it has copied."""
    copying, come = Copying(), asyncio.get_running_loop().create_future()

    async def reading() -> None:
        await come
        raise KeyError("gone")

    call = asyncio.create_task(copying.read(reading()))
    await settled()
    come.set_result(None)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_an_answer_that_is_cancelled_while_it_waits_holds_up_nobody() -> None:
    """Before its turn, and when it was just given one."""
    copying = Copying()
    await copying.pace(COPIED_BYTES)
    waiting = [asyncio.create_task(copying.pace(1)) for _ in range(3)]
    await settled()
    waiting[0].cancel()
    copying._large._go_on()
    waiting[1].cancel()
    await waiting[2]
    assert not copying._large._waiting
