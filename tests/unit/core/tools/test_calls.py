"""Leases of calls: one holder at a time, until its time is over, whatever the time of day does."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from tests.support.fakes.core import FakeStore, ManualClock, make_environment
from tests.support.fakes.domain_values import make_answer, make_turn
from tests.support.fakes.loop import elapse, settled
from tests.support.fakes.turns import make_calls
from turnwire.core.tools.client_calls import ClaimCall
from turnwire.core.tools.results import CallResult
from turnwire.domain.conversation.events import ToolCallUpdated
from turnwire.domain.conversation.limits import MAX_LOG_LINES
from turnwire.domain.conversation.messages import Lease, Message, ToolStatus, ToolUse
from turnwire.domain.errors import LeaseHeld, LeaseLost, ToolCallAlreadySettled
from turnwire.domain.limits import Limits
from turnwire.ports.commit import Work

READ = ToolUse(name="read", call_id="c1", input_json="{}")
MINUTE = timedelta(minutes=1)


class Claimed:
    """The calls of one message, which clients claim."""

    def __init__(
        self,
        *calls: ToolUse,
        store: FakeStore | None = None,
        clock: ManualClock | None = None,
        limit: timedelta = timedelta(hours=1),
        whole_limit: timedelta = timedelta(hours=9),
    ) -> None:
        """Takes the calls, all of the client's tool "read" unless they are named otherwise."""
        self.store, self.clock = store or FakeStore(), clock or ManualClock()
        limits = Limits(
            client_tool_timeout_seconds=limit.total_seconds(), leased_tool_timeout_seconds=whole_limit.total_seconds()
        )
        environment = make_environment(self.store, settings={"limits": limits}, clock=self.clock)
        self.calls = make_calls(environment, make_turn(), make_answer("msg_1", *calls), frozenset({"read"}))
        self.settling = asyncio.create_task(self.calls.settle())

    @property
    def message(self) -> Message:
        """The message with the calls as they are now."""
        return self.calls.message

    def call(self, index: int = 0) -> ToolUse:
        """Returns a call as it is now."""
        return self.message.tool_calls()[index][1]

    def lease(self, name: str, duration: timedelta = MINUTE) -> Lease:
        """Returns a lease that begins now."""
        return Lease(lease_id=f"lse_{name}", holder=name, expires_at=self.clock() + duration)

    async def claim(self, name: str, index: int = 0, duration: timedelta = MINUTE) -> None:
        """Claims a call; returns when that is stored."""
        await self.calls.ask(ClaimCall(index, f"lse_{name}", name, duration, Work()))

    async def renew(self, name: str, *lines: str, duration: timedelta = MINUTE) -> None:
        """Extends the lease of the first call."""
        await self.calls.renew(0, f"lse_{name}", duration, lines, Work())

    def told(self) -> list[ToolUse]:
        """Returns what events have said of the calls."""
        events = [event.kind for commit in self.store.commits for event in commit.events]
        return [kind.call for kind in events if isinstance(kind, ToolCallUpdated)]

    async def end(self) -> None:
        """Stops waiting for results."""
        self.settling.cancel()
        await asyncio.wait((self.settling,))


async def test_a_lease_that_nobody_renews_ends() -> None:
    """One commit says so for all that end then; the former holder has lost it, and anybody may claim or answer."""
    one = Claimed(READ, READ, READ)
    await one.claim("ann", 0)
    await one.claim("ann", 1)
    await elapse(MINUTE)
    assert [call.lease for call in one.told()[2:]] == [None, None]
    assert len(one.store.commits) == 3
    with pytest.raises(LeaseLost) as lost:
        await one.renew("ann")
    assert "holder" not in lost.value.metadata
    await one.claim("bob")
    await one.calls.submit(1, CallResult(output="anybody's"))
    assert one.call(1).status is ToolStatus.SUCCESS
    await one.end()


@pytest.mark.parametrize("jump", [timedelta(days=-1), timedelta(days=1)])
async def test_a_jump_of_the_clock_changes_no_lease(jump: timedelta) -> None:
    """Neither one that lasts nor the next one."""
    one = Claimed(READ)
    await one.claim("ann")
    one.clock.advance(jump.total_seconds())
    await elapse(timedelta(seconds=59))
    with pytest.raises(LeaseHeld):
        await one.claim("bob")
    await elapse(timedelta(seconds=1))
    await one.claim("bob")
    await elapse(timedelta(seconds=59))
    with pytest.raises(LeaseHeld):
        await one.claim("ann")
    await one.end()


@pytest.mark.parametrize(
    ("left", "seconds"), [(timedelta(seconds=30), 30), (timedelta(days=1), 3600), (timedelta(seconds=-5), 0)]
)
async def test_a_lease_survives_the_process(left: timedelta, seconds: int) -> None:
    """The time of day says what is left, an hour at most, so that a clock that was set back locks no call."""
    clock = ManualClock()
    lease = Lease(lease_id="lse_ann", holder="ann", expires_at=clock() + left)
    one = Claimed(msgspec.structs.replace(READ, lease=lease), clock=clock)
    await settled()
    if seconds:
        await elapse(timedelta(seconds=seconds - 1))
        with pytest.raises(LeaseHeld):
            await one.claim("bob")
        await elapse(timedelta(seconds=1))
    assert one.call().lease is None
    await one.claim("bob")
    await one.end()


async def test_the_time_limit_waits_for_a_lease() -> None:
    """It counts the time in which nobody holds the call, and begins again when a lease ends."""
    one = Claimed(READ, limit=timedelta(minutes=10))
    await elapse(timedelta(minutes=9))
    await one.claim("ann", duration=timedelta(minutes=30))
    await elapse(timedelta(minutes=30))
    assert (one.call().lease, one.call().status) == (None, ToolStatus.PENDING)
    await elapse(timedelta(minutes=9))
    assert one.call().status is ToolStatus.PENDING
    await elapse(timedelta(minutes=1))
    await one.settling
    assert one.call().error == "the client did not answer within 600 seconds"


async def test_leases_hold_a_call_up_for_a_bounded_time() -> None:
    """However often they are renewed; the lease ends with the call."""
    one = Claimed(READ, limit=MINUTE, whole_limit=timedelta(minutes=5))
    await one.claim("ann")
    for _ in range(5):
        await elapse(timedelta(seconds=50))
        await one.renew("ann")
    await elapse(timedelta(seconds=50))
    await one.settling
    assert one.call().error == "the client did not answer within 300 seconds"
    assert one.call().lease is None
    with pytest.raises(ToolCallAlreadySettled):
        await one.renew("ann")


async def test_a_lease_that_lasts_longer_ends_with_the_time_of_the_call() -> None:
    """Nothing else wakes the turn then."""
    one = Claimed(READ, limit=MINUTE, whole_limit=timedelta(minutes=5))
    await one.claim("ann", duration=timedelta(minutes=30))
    await elapse(timedelta(minutes=5))
    assert one.settling.done()
    assert (one.call().error, one.call().lease) == ("the client did not answer within 300 seconds", None)


async def test_a_log_is_bounded() -> None:
    """The last line that is kept says that more are not."""
    one = Claimed(READ)
    await one.claim("ann")
    for _ in range(3):
        await one.renew("ann", *["line"] * 100)
    assert len(one.call().logs) == MAX_LOG_LINES
    assert one.call().logs[-2:] == ("line", "further lines are not kept")
    await one.end()


async def test_lines_that_are_not_kept_take_no_memory() -> None:
    """A client that sends them with every renewal does not use up what the answers of all turns may take."""
    one = Claimed(READ)
    waiting = one.calls._environment.waiting_calls
    waiting.hold("default", "trn_1", one.message)
    await one.claim("ann")
    await one.renew("ann", *["x" * 400] * MAX_LOG_LINES)
    counted = waiting.bytes
    assert counted > 400 * MAX_LOG_LINES
    await one.renew("ann", *["x" * 400] * MAX_LOG_LINES)
    assert waiting.bytes == counted
    await one.end()
