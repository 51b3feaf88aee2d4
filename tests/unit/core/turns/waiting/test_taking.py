"""Messages that have waited are read as their turns begin, and few of them are in memory."""

import asyncio

import msgspec
import pytest

from tests.support.fakes.core import FakeStore
from tests.support.fakes.loop import settled
from tests.support.fakes.waiting import make_place
from turnwire.core.turns.waiting.places import Place
from turnwire.core.turns.waiting.queue import SessionQueue
from turnwire.core.turns.waiting.taking import WaitingPlaces
from turnwire.domain.fair_semaphore import FairSemaphore


class World:
    """Sessions with one waiting message each, which is stored."""

    def __init__(self, *messages: str) -> None:
        """Takes the texts of the messages, which are their names."""
        self.store = FakeStore()
        self.stopping = asyncio.Event()
        self.room = FairSemaphore(100)
        self.begun: list[str] = []
        self._go = dict[str, asyncio.Event]()
        wholes = [make_place(name) for name in messages]
        self.store.unfinished = tuple(whole.turn for whole in wholes)
        self.store.waiting = tuple(whole.message for whole in wholes)

    async def begin(self, place: Place) -> None:
        """Takes a place, and has all of it until `end`."""
        queue = SessionQueue()
        queue.append(place)
        waiting = WaitingPlaces(self.store, queue, self.stopping, self.room)
        taken = await waiting.take_first()
        assert taken is place
        assert not queue
        assert taken.is_outline
        async with waiting.whole(taken) as is_whole:
            assert is_whole
            assert not taken.is_outline
            name = taken.message.message_id.removeprefix("msg_")
            self.begun.append(name)
            await self._go.setdefault(name, asyncio.Event()).wait()

    def end(self, name: str) -> None:
        """Ends one that was begun, as if its beginning was stored."""
        self._go[name].set()


def _outline(name: str, *, of_this_process: bool = True) -> Place:
    place = make_place(name)
    if of_this_process:
        place.empty()
        return place
    return Place.waiting(place.turn, place.message.message_id)


@pytest.mark.parametrize("of_this_process", [True, False])
async def test_messages_that_are_large_together_are_read_one_after_the_other(of_this_process: bool) -> None:
    """Until it was read, one of an earlier process counts as half of the room; then as what it is."""
    names = ["a" * 60, "b" * 60, "c" * 30, "d" * 60]
    world = World(*names)
    beginning = [asyncio.create_task(world.begin(_outline(name, of_this_process=of_this_process))) for name in names]
    await settled()
    assert world.begun == ["a" * 60] if of_this_process else ["a" * 60, "b" * 60]
    for _ in names:
        await settled()
        for name in world.begun:
            world.end(name)
    await asyncio.gather(*beginning)
    assert world.begun == names
    assert world.room.in_use == 0


async def test_one_that_is_larger_than_the_room_begins_alone() -> None:
    """A limit of the operator may be above that of the room."""
    world = World("a" * 200, "b")
    beginning = [asyncio.create_task(world.begin(_outline(name))) for name in ("a" * 200, "b")]
    await settled()
    assert world.begun == ["a" * 200]
    world.end("a" * 200)
    await settled()
    assert world.begun == ["a" * 200, "b"]
    world.end("b")
    await asyncio.gather(*beginning)
    assert world.room.in_use == 0


async def test_tools_and_system_prompts_count() -> None:
    """They are held as long as the message, and may be larger."""
    world = World("a", "b")
    world.store.unfinished = tuple(msgspec.structs.replace(turn, system="x" * 60) for turn in world.store.unfinished)
    beginning = []
    for name in ("a", "b"):
        beginning.append(asyncio.create_task(world.begin(_outline(name, of_this_process=False))))
        await settled()
    assert world.begun == ["a"]
    world.end("a")
    await settled()
    world.end("b")
    await asyncio.gather(*beginning)
    assert world.room.in_use == 0
    whole = make_place("a")
    whole.turn = msgspec.structs.replace(whole.turn, system="x" * 1000)
    whole.empty()
    assert whole.size_bytes is not None
    assert whole.size_bytes > 1000


async def test_nothing_is_read_any_more_once_the_server_stops() -> None:
    """Who waited for room waits in the file."""
    world = World("a" * 60, "b" * 60)
    first, second = _outline("a" * 60), _outline("b" * 60)
    running = asyncio.create_task(world.begin(first))
    await settled()
    waiting = asyncio.create_task(world.begin(second))
    await settled()
    world.stopping.set()
    world.end("a" * 60)
    await running
    with pytest.raises(AssertionError):
        await waiting
    assert second.is_outline
    assert world.room.in_use == 0
