"""One decision after the other, on what is stored; a commit that fails leaves everything as it was."""

import asyncio
import random
from dataclasses import dataclass, field
from datetime import datetime

import pytest
from msgspec import Struct

from tests.support.fakes.domain_values import NOW, make_message
from tests.support.fakes.loop import settled
from turnwire.core.actor import Actor, Decision, Done, Now
from turnwire.domain.conversation.events import SessionStatusChanged
from turnwire.domain.errors import DomainError, OutcomeUnknown, StorageBusy, StorageFull
from turnwire.domain.principal import BUILT_IN
from turnwire.ports.commit import Committed, NewEvent, PutMessage, RecordRequest, RemoveMessage, Work, joined_work

CHANGE = Work((), (NewEvent(SessionStatusChanged(True)),))

Numbers = tuple[int, ...]


class Add(Struct, frozen=True):
    """Adds a number that is not there yet."""

    number: int
    further: Work = CHANGE

    def decide(self, state: Numbers, now: Now) -> Decision[Numbers]:
        """Returns the numbers with this one; refuses negative ones, and fails for 13."""
        assert now.at == NOW
        if self.number < 0:
            raise ValueError(str(self.number))
        if self.number == 13:
            raise ZeroDivisionError
        if self.number in state:
            return Decision(state)
        return Decision((*state, self.number), self.further)


@dataclass
class Disk:
    """A store whose commits end when the test says so."""

    commits: list[Work] = field(default_factory=list)
    futures: list["asyncio.Future[Committed]"] = field(default_factory=list)

    def store(self, work: Work, at: datetime) -> "asyncio.Future[Committed]":
        """Begins a commit."""
        assert at == NOW
        assert all(future.done() for future in self.futures), "two commits are on their way"
        self.commits.append(work)
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def succeed(self) -> None:
        """Ends the newest commit."""
        self.futures[-1].set_result(Committed(0, len(self.futures)))

    def fail(self, error: DomainError) -> None:
        """Lets the newest commit fail."""
        self.futures[-1].set_exception(error)


def _begun(changes: list[tuple[Numbers, Numbers]] | None = None) -> tuple[Disk, Actor[Numbers]]:
    noted, disk = [] if changes is None else changes, Disk()
    return disk, Actor((), disk.store, lambda: NOW, lambda before, after: noted.append((before, after)))


async def test_a_change_is_seen_when_it_is_durable() -> None:
    """In the very moment in which its commit is done, before any callback; the reply tells what the command left."""
    changes = list[tuple[Numbers, Numbers]]()
    disk, actor = _begun(changes)
    asked = actor.ask(Add(1))
    assert (actor.state, changes, asked.done()) == ((), [], False)
    disk.succeed()
    assert (actor.state, changes) == ((1,), [((), (1,))])
    assert await asked == Done((1,), has_changed=True, committed=Committed(0, 1))


async def test_those_that_wait_share_a_commit() -> None:
    """They are decided in their order, each on what the ones before it left; a refused one leaves nothing."""
    disk, actor = _begun()
    first = actor.ask(Add(1))
    refused, same, second, broken = actor.ask(Add(-1)), actor.ask(Add(1)), actor.ask(Add(2)), actor.ask(Add(13))
    disk.succeed()
    await first
    assert [len(work.events) for work in disk.commits] == [1, 1]
    assert (same.done(), actor.state) == (False, (1,))
    disk.succeed()
    assert await same == Done((1,), has_changed=False, committed=Committed(0, 2))
    assert (await second).state == (1, 2)
    with pytest.raises(ValueError, match="-1"):
        await refused
    with pytest.raises(ZeroDivisionError):
        await broken


async def test_a_commit_that_fails_changes_nothing() -> None:
    """Its caller learns why; the next command is decided on the state as it was."""
    disk, actor = _begun()
    lost = actor.ask(Add(1))
    disk.fail(StorageFull("full"))
    assert actor.state == ()
    with pytest.raises(StorageFull):
        await lost
    again = actor.ask(Add(1))
    disk.succeed()
    assert (await again).state == (1,)


async def test_commands_that_fail_together_are_tried_each_by_itself() -> None:
    """One that cannot be stored does not fail the others, and they keep their order."""
    disk, actor = _begun()
    first, large, small = (actor.ask(Add(number)) for number in (1, 2, 3))
    later = actor.ask(Add(4))
    disk.succeed()  # 1
    await first
    disk.fail(StorageFull("full"))  # 2, 3 and 4 together
    await settled()
    disk.fail(StorageFull("full"))  # 2
    with pytest.raises(StorageFull):
        await large
    disk.succeed()  # 3
    assert (await small).state == (1, 3)
    disk.succeed()  # 4
    assert (await later).state == (1, 3, 4)


async def test_commands_that_may_be_stored_are_not_tried_again() -> None:
    """All callers of a commit whose outcome is unknown hear that; what came later is decided without it."""
    disk, actor = _begun()
    replies = [actor.ask(Add(number)) for number in (1, 2, 3)]
    disk.succeed()  # 1
    await replies[0]
    disk.fail(OutcomeUnknown())  # 2 and 3 together
    for reply in replies[1:]:
        with pytest.raises(OutcomeUnknown):
            await reply
    await settled()
    assert (len(disk.commits), actor.state, actor.is_at_rest) == (2, (1,), True)


async def test_a_command_may_have_a_commit_of_its_own() -> None:
    """Neither those before it nor those behind it are in it."""
    disk, actor = _begun()
    replies = [actor.ask(Add(number), alone=number == 3) for number in range(1, 6)]
    for _ in range(4):
        disk.succeed()
        await settled()
    assert [len(work.events) for work in disk.commits] == [1, 1, 1, 2]
    assert [(await reply).committed for reply in replies] == [Committed(0, number) for number in (1, 2, 3, 4, 4)]


async def test_a_command_outlives_its_caller() -> None:
    """It is carried out, and nobody hears of it."""
    disk, actor = _begun()
    actor.ask(Add(1)).cancel()
    disk.succeed()
    await actor.idle()
    assert actor.state == (1,)


async def test_what_changes_nothing_is_answered_at_once() -> None:
    """With the commit that stored it, so that its caller may read what is behind it."""
    disk, actor = _begun()
    actor.ask(Add(1))
    disk.succeed()
    assert await actor.ask(Add(1)) == Done((1,), has_changed=False, committed=Committed(0, 1))
    assert len(disk.commits) == 1


async def test_who_waits_for_a_change_sees_the_next_one() -> None:
    """And nobody waits for a commit that there is not."""
    disk, actor = _begun()
    waiting = asyncio.create_task(actor.changed())
    await actor.idle()
    actor.ask(Add(1))
    await settled()
    assert not waiting.done()
    disk.succeed()
    await waiting


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(20))
async def test_replies_and_state_agree_with_what_was_stored(seed: int) -> None:
    """Whatever fails, and whoever leaves: the state is what the commits that succeeded have made, in their order."""
    chance, (disk, actor) = random.Random(seed), _begun()
    replies: list[tuple[int, asyncio.Future[Done[Numbers]]]] = []
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            number = chance.randrange(-2, 30)
            replies.append((number, actor.ask(Add(number))))
            if not chance.randrange(6):
                replies[-1][1].cancel()
        if disk.futures and not disk.futures[-1].done():
            disk.succeed() if chance.randrange(4) else disk.fail(StorageBusy("busy"))
        if chance.randrange(2):
            await settled()
    while disk.futures and not disk.futures[-1].done():
        disk.succeed()
        await settled()
    await actor.idle()
    told = [(number, reply) for number, reply in replies if not reply.cancelled()]
    assert all(reply.done() for _, reply in told)
    stored = {number for number, reply in told if reply.exception() is None}
    assert stored <= set(actor.state)
    assert len(actor.state) == len(set(actor.state))
    changed = [number for number, reply in told if reply.exception() is None and reply.result().has_changed]
    assert [number for number in actor.state if number in changed] == changed


def test_a_message_that_several_change_is_written_once() -> None:
    """As the last one has it; unless it was removed between."""
    old, new = make_message("msg_1"), make_message("msg_1", request_id="later")
    other = make_message("msg_2")
    units = [Work((PutMessage(old, at_end=True),)), Work((PutMessage(other),)), Work((PutMessage(new),))]
    assert joined_work(units).changes == (PutMessage(new, at_end=True), PutMessage(other))
    removed = Work((RemoveMessage("msg_1"), PutMessage(new)))
    assert joined_work([units[0], removed]).changes == (PutMessage(old, at_end=True), *removed.changes)


async def test_nothing_is_refused_because_of_what_is_not_stored() -> None:
    """The earlier command may fail yet; then the later one is decided as if it had never come."""

    class Claim(Add, frozen=True):
        def decide(self, state: Numbers, now: Now) -> Decision[Numbers]:
            if state[1:]:
                raise ValueError(str(state))
            return super().decide(state, now)

    disk, actor = _begun()
    await_first = actor.ask(Add(1))
    won, lost, later = actor.ask(Claim(2)), actor.ask(Claim(3)), actor.ask(Add(4))
    disk.succeed()
    await await_first
    await settled()
    assert not lost.done()
    disk.fail(StorageFull("full"))
    with pytest.raises(StorageFull):
        await won
    disk.succeed()
    assert [(await one).state for one in (lost, later)] == [(1, 3), (1, 3, 4)]


def test_what_is_remembered_of_a_request_knows_the_events_before_it() -> None:
    """So a retry gets the sequence of the first answer, also when several commands were stored in one commit."""
    record = RecordRequest(BUILT_IN, "r1", "f", "{}")
    event = NewEvent(SessionStatusChanged(True))
    units = [Work((), (event, event)), Work((record,), (event,)), Work((record,))]
    changes = joined_work(units).changes
    assert [change.events_before for change in changes if isinstance(change, RecordRequest)] == [2, 3]
