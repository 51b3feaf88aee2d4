"""Changes of waiting messages: one after the other, and taken back when they cannot be stored."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import msgspec
import pytest

from tests.support.fakes.core import FakeStore, RecordingObserver, make_environment
from tests.support.fakes.loop import settled
from tests.support.fakes.waiting import make_place, names
from turnwire.core import reads
from turnwire.core.intake.contents import Contents
from turnwire.core.turns.waiting import changes
from turnwire.core.turns.waiting.changes import MessageEdit, QueueChanges
from turnwire.core.turns.waiting.places import Place
from turnwire.core.turns.waiting.queue import SessionQueue
from turnwire.core.work import Work
from turnwire.domain.conversation.events import QueueChanged, TurnEnded, TurnSteered
from turnwire.domain.conversation.messages import FinishReason, Message, Part, Text
from turnwire.domain.conversation.turns import BusyPolicy, ToolDefinition
from turnwire.domain.errors import MessageNotWaiting, MessageTooLarge, QuotaExceeded, StorageBusy, TooManyTurns
from turnwire.ports.commit import Committed, OrderQueue, PutMessage, PutTurn


class Held:
    """A reservation that a test can refuse."""

    def until(self, storing: "asyncio.Future[Any]") -> None:
        """Does nothing."""


class World:
    """A queue of messages with a store that waits to be told."""

    def __init__(self, *waiting: str) -> None:
        """Takes the names of the messages."""
        self.store = FakeStore(automatic=False)
        self.observer = RecordingObserver()
        self.queue = SessionQueue()
        self.interrupted: list[str] = []
        for name in waiting:
            self.wait(make_place(name))
        self.environment = make_environment(self.store, observer=self.observer)
        self.changes = QueueChanges(
            self.environment,
            "default",
            "ses_1",
            self.queue,
            lambda policy: "" if policy is BusyPolicy.QUEUE else "trn_1",
            interrupt=self._interrupt,
        )
        self.refusal: Exception | None = None

    def wait(self, whole: Place) -> None:
        """Adds a message that is stored: the queue has its outline."""
        self.store.unfinished += (whole.turn,)
        self.store.waiting += (whole.message,)
        self.queue.append(Place.waiting(whole.turn, whole.message.message_id))

    def _interrupt(self, place: Place) -> None:
        if place.turn.busy_policy is BusyPolicy.INTERRUPT:
            self.interrupted.append(place.message.message_id)

    @contextlib.contextmanager
    def reserve(self, _: Message) -> Iterator[Any]:
        """Reserves, or refuses."""
        if self.refusal is not None:
            raise self.refusal
        yield Held()

    def edit(self, name: str, words: str = "", policy: BusyPolicy | None = None) -> Coroutine[Any, Any, Any]:
        """Changes a message."""
        contents = Contents((Text(words),), ()) if words else None
        return self.changes.edit(MessageEdit(f"msg_{name}", contents, policy), self.reserve, Work())

    def fail(self) -> None:
        """Lets the newest commit fail."""
        self.store.futures[-1].set_exception(StorageBusy("held"))

    def succeed(self) -> None:
        """Lets the newest commit succeed."""
        self.store.futures[-1].set_result(Committed(0, 1, queue_revision=7))

    def state(self) -> list[tuple[object, ...]]:
        """Returns all that waits."""
        return [(place.turn, place.message) for place in self.queue]


CHANGES: list[Callable[[World], Coroutine[Any, Any, Any]]] = [
    lambda world: world.edit("q2", "new words"),
    lambda world: world.edit("q2", policy=BusyPolicy.INTERRUPT),
    lambda world: world.edit("q3", "new words", BusyPolicy.STEER),
    lambda world: world.changes.move("msg_q3", "msg_q1", Work()),
    lambda world: world.changes.move("msg_q1", "", Work()),
    lambda world: world.changes.remove("msg_q1", Work()),
    lambda world: world.changes.remove("msg_q3", Work()),
]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_that_is_not_stored_is_taken_back(change: Callable[[World], Coroutine[Any, Any, Any]]) -> None:
    """The queue is as it was; what came meanwhile stays where it came."""
    world = World("q1", "q2", "q3")
    before = world.state()
    changing = asyncio.create_task(change(world))
    await settled()
    assert world.state() != before
    world.queue.add(make_place("q4"))
    world.fail()
    with pytest.raises(StorageBusy):
        await changing
    assert world.state()[:3] == before
    assert names(world.queue) == "q1 q2 q3 q4"
    assert (world.interrupted, world.observer.turns) == ([], [])


async def test_an_edit_beyond_a_quota_changes_nothing() -> None:
    """It is refused before anything is stored."""
    world = World("q1", "q2")
    before = world.state()
    world.refusal = QuotaExceeded("full", "default", quota="stored_bytes", limit=1, used=1)
    with pytest.raises(QuotaExceeded):
        await world.edit("q2", "words", BusyPolicy.INTERRUPT)
    assert (world.state(), world.store.commits) == (before, [])


async def test_an_edit_that_is_too_large_changes_nothing() -> None:
    """What stays of the message counts too, which is known once it is read: it keeps its policy then."""
    world = World("q1", "q2")
    limit = world.environment.settings.limits.max_message_bytes
    world.store.waiting = tuple(msgspec.structs.replace(m, metadata_json='{"a":1}') for m in world.store.waiting)
    before = world.state()
    with pytest.raises(MessageTooLarge):
        await world.edit("q2", "x" * limit, BusyPolicy.STEER)
    assert (world.state(), world.store.commits) == (before, [])


async def test_changes_wait_for_each_other() -> None:
    """The second one sees what the first one left."""
    world = World("q1", "q2")
    first = asyncio.create_task(world.changes.remove("msg_q1", Work()))
    second = asyncio.create_task(world.changes.remove("msg_q1", Work()))
    await settled()
    assert len(world.store.commits) == 1
    world.succeed()
    assert await first == 7
    with pytest.raises(MessageNotWaiting):
        await second
    assert [(what, turn.finish_reason) for what, turn in world.observer.turns] == [("ended", FinishReason.ABORTED)]


LONG = "x" * 1_000_000
TOOLS = (ToolDefinition("look", LONG, ""),)


def make_large_place(name: str, **settings: object) -> Place:
    """Returns the place of a message of a megabyte with tools of another one."""
    place = make_place(name)
    parts = (Part(part_id=f"prt_{name}", index=0, content=Text(LONG)),)
    place.message = msgspec.structs.replace(place.message, parts=parts)
    place.turn = msgspec.structs.replace(place.turn, tools=TOOLS, system=LONG, **settings)
    return place


def held_bytes(queue: SessionQueue) -> int:
    """Returns what the places of a queue hold."""
    return sum(len(msgspec.json.encode((place.turn, place.message))) for place in queue)


@pytest.mark.parametrize(
    "change",
    [
        lambda world: world.edit("q2", "new words"),
        lambda world: world.edit("q2", policy=BusyPolicy.STEER),
        lambda world: world.changes.move("msg_q2", "msg_q1", Work()),
        lambda world: world.changes.remove("msg_q1", Work()),
    ],
)
async def test_a_change_holds_nothing_of_what_waits(change: Callable[[World], Coroutine[Any, Any, Any]]) -> None:
    """Neither when it is stored nor when it fails."""
    for ends in (World.succeed, World.fail):
        world = World()
        for name in ("q1", "q2"):
            world.wait(make_large_place(name))
        assert held_bytes(world.queue) < 2000
        changing = asyncio.create_task(change(world))
        await settled()
        ends(world)
        await asyncio.wait((changing,))
        assert held_bytes(world.queue) < 2000


async def test_a_change_loses_nothing_of_what_waits() -> None:
    """An edit of the words keeps the tools, one of the policy the words; a removal keeps what is stored of the turn."""
    world = World()
    for name in ("q1", "q2"):
        world.wait(make_large_place(name))
    world.store.automatic = True
    message, _ = await world.edit("q1", policy=BusyPolicy.STEER)
    assert message.parts[0].content == Text(LONG)
    await world.edit("q1", "new words")
    stored = await world.store.turn("ses_1", "trn_q1")
    assert (stored.tools, stored.system, stored.busy_policy) == (TOOLS, LONG, BusyPolicy.STEER)
    await world.changes.remove("msg_q2", Work())
    [dropped] = [change for change in world.store.commits[-1].changes if isinstance(change, PutTurn)]
    assert (dropped.keeps_settings, dropped.turn.tools) == (True, ())


async def test_a_late_message_goes_back_whole() -> None:
    """It is read for that."""
    world = World()
    world.wait(make_large_place("q1", is_late=True))
    world.store.automatic = True
    await world.changes.remove("msg_q1", Work())
    [back] = [change.message for change in world.store.commits[-1].changes if isinstance(change, PutMessage)]
    assert back.parts[0].content == Text(LONG)


async def test_large_messages_join_in_several_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order; no more of them are in memory than fit."""
    monkeypatch.setattr(changes, "MAX_JOINING_BYTES", 4_500_000)  # each has three with its tools and its system prompt
    world = World()
    for name in ("s1", "s2", "s3"):
        world.wait(make_large_place(name))
    world.store.automatic = True
    await world.changes.join("trn_1", lambda: True)
    joined = [
        [event.kind.user_message_id for event in commit.events if isinstance(event.kind, TurnSteered)]
        for commit in world.store.commits
    ]
    assert joined == [["msg_s1", "msg_s2"], ["msg_s3"]]
    assert len(world.queue) == 0


async def test_messages_that_cannot_be_read_hold_nothing_of_others() -> None:
    """Those that were read before them wait on as outlines."""
    world = World()
    for name in ("s1", "s2"):
        world.wait(make_large_place(name))
    world.store.waiting = world.store.waiting[:1]
    await world.changes.join("trn_1", lambda: True)
    assert (names(world.queue), world.environment.reads.in_use) == ("s1 s2", 0)
    assert held_bytes(world.queue) < 2000


async def test_a_policy_acts_once_it_is_stored() -> None:
    """Until then the turn runs on."""
    world = World("q1", "q2")
    changing = asyncio.create_task(world.edit("q2", policy=BusyPolicy.INTERRUPT))
    await settled()
    assert (names(world.queue), world.interrupted) == ("q2 q1", [])
    [commit] = world.store.commits
    assert OrderQueue(("msg_q2", "msg_q1")) in commit.changes
    world.succeed()
    await changing
    assert world.interrupted == ["msg_q2"]


async def test_messages_join_a_turn_together() -> None:
    """In one commit, each with the end of its own turn; the queue is told once."""
    world = World("s1", "q1", "s2")
    joining = asyncio.create_task(world.changes.join("trn_1", lambda: True))
    await settled()
    [commit] = world.store.commits
    kinds = [event.kind for event in commit.events]
    assert [kind for kind in kinds if isinstance(kind, TurnSteered)] == [
        TurnSteered("msg_s1", "trn_1"),
        TurnSteered("msg_s2", "trn_1"),
    ]
    ended = [kind.turn for kind in kinds if isinstance(kind, TurnEnded)]
    assert [(t.turn_id, t.finish_reason, t.merged_into_turn_id, t.steps) for t in ended] == [
        ("trn_s1", FinishReason.MERGED, "trn_1", 0),
        ("trn_s2", FinishReason.MERGED, "trn_1", 0),
    ]
    assert isinstance(kinds[-1], QueueChanged) and sum(isinstance(kind, QueueChanged) for kind in kinds) == 1
    world.succeed()
    await joining
    assert names(world.queue) == "q1"
    assert [turn.turn_id for _, turn in world.observer.turns] == ["trn_s1", "trn_s2"]


async def test_messages_that_cannot_join_wait_on() -> None:
    """In their order. The turn goes on without them."""
    world = World("s1", "q1", "s2", "s3")
    joining = asyncio.create_task(world.changes.join("trn_1", lambda: True))
    await settled()
    world.fail()
    await joining
    assert names(world.queue) == "s1 q1 s2 s3"
    assert world.observer.turns == []


async def test_nothing_joins_a_turn_that_is_to_end() -> None:
    """Also when it was stopped while another change was stored."""
    world = World("s1", "q1")
    is_open = True
    removing = asyncio.create_task(world.changes.remove("msg_q1", Work()))
    joining = asyncio.create_task(world.changes.join("trn_1", lambda: is_open))
    await settled()
    is_open = False
    world.succeed()
    await asyncio.gather(removing, joining)
    assert (names(world.queue), len(world.store.commits)) == ("s1", 1)


async def test_only_so_much_is_read_for_changes_of_all_sessions() -> None:
    """What is read for one holds up another one, and nothing is read before there is room."""
    changing: list[Callable[[World], Coroutine[Any, Any, Any]]] = [
        lambda world: world.edit("s1", policy=BusyPolicy.INTERRUPT),
        lambda world: world.changes.remove("msg_s1", Work()),
        lambda world: world.changes.join("trn_1", lambda: True),
    ]
    for change in changing:
        world = World()
        world.wait(make_large_place("s1", is_late=True))
        room = world.environment.reads
        await room.acquire("other", room.limit - 4_000_000)
        running = asyncio.create_task(change(world))
        await settled()
        assert held_bytes(world.queue) < 1000
        assert world.store.commits == []
        room.release("other", room.limit - 4_000_000)
        await settled()
        assert room.in_use > 3_000_000
        world.succeed()
        await running
        assert room.in_use == 0


async def test_a_change_does_not_wait_for_ever_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk those that have room may keep it."""
    monkeypatch.setattr(reads, "PATIENCE_SECONDS", 0.0)
    world = World("s1", "q2")
    room = world.environment.reads
    await room.acquire("other", room.limit)
    with pytest.raises(TooManyTurns) as refused:
        await world.edit("q2", "new words")
    assert refused.value.metadata["limit"] == "MAX_READ_BYTES"
    await world.changes.join("trn_1", lambda: True)
    assert (names(world.queue), world.store.commits, room.in_use) == ("s1 q2", [], room.limit)


async def test_messages_that_were_just_stored_join_whole() -> None:
    """The first one becomes an outline when its commit is noted, which may be while the second one is read."""
    world = World()
    first = make_large_place("s1")
    first.durable = asyncio.get_running_loop().create_future()
    world.queue.append(first)
    world.wait(make_large_place("s2"))
    world.store.automatic = True
    first.durable.add_done_callback(lambda _: first.empty_unless_held())
    first.durable.set_result(Committed(0, 1))
    await world.changes.join("trn_1", lambda: True)
    [commit] = world.store.commits
    joined = [change.message for change in commit.changes if isinstance(change, PutMessage)]
    assert [message.parts[0].content for message in joined] == [Text(LONG), Text(LONG)]


async def test_an_edit_of_a_message_that_was_just_stored_returns_all_of_it() -> None:
    """Its commit may be noted while the edit is stored."""
    world = World()
    place = make_large_place("q1")
    place.durable = asyncio.get_running_loop().create_future()
    world.queue.append(place)
    place.durable.set_result(Committed(0, 1))
    editing = asyncio.create_task(world.edit("q1", policy=BusyPolicy.STEER))
    await settled()
    place.empty_unless_held()
    world.succeed()
    message, _ = await editing
    assert message.parts[0].content == Text(LONG)
    assert held_bytes(world.queue) < 1000
