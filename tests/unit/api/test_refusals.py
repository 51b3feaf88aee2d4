"""Refused callers: few lines in the log, and no more answers than one address can wait for."""

import asyncio
import contextlib
from datetime import timedelta

from structlog.testing import capture_logs

from tests.support.fakes.loop import elapse, settled
from turnwire.api.refusals import HELD_PER_SECOND, HOLD_SECONDS, MAX_HELD, PROMPT_PER_SECOND, Refusals
from turnwire.api.web.http import HEAD_SECONDS
from turnwire.ports.telemetry.line_limit import LINES_A_SECOND

ATTACKER, OTHER = "192.0.2.1", "192.0.2.2"


def test_a_flood_of_refused_callers_writes_few_lines() -> None:
    """Ten in a second; the next line has the number of those without one."""
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    with capture_logs() as lines:
        for number in range(2_000):
            now[0] = number / 1_000
            refusals.log("S.One", "UNAUTHENTICATED", "not known", "192.0.2.1")
        now[0] = 5
        refusals.log("S.One", "UNAUTHENTICATED", "not known", "192.0.2.1")
    assert len(lines) == 2 * LINES_A_SECOND + 1
    assert sum(line["refused_since_last_line"] for line in lines) + len(lines) == 2_001


def _refused(refusals: Refusals, count: int, address: str = ATTACKER) -> list[asyncio.Task[None]]:
    return [
        asyncio.create_task(refusals.note("S.One", "UNAUTHENTICATED", "not known", address, of=address))
        for _ in range(count)
    ]


def _answered(calls: list[asyncio.Task[None]]) -> int:
    return sum(call.done() for call in calls)


async def test_the_first_refusals_of_an_address_come_at_once() -> None:
    """Further ones wait, each for its own time; another address is not slowed down."""
    refusals = Refusals(lambda: 0.0)
    with capture_logs():
        calls = _refused(refusals, PROMPT_PER_SECOND + 100)
        others = _refused(refusals, PROMPT_PER_SECOND, OTHER)
        await settled()
        assert (_answered(calls), _answered(others)) == (PROMPT_PER_SECOND, PROMPT_PER_SECOND)
        await elapse(timedelta(seconds=HOLD_SECONDS))
        assert PROMPT_PER_SECOND < _answered(calls) < PROMPT_PER_SECOND + 100
        await elapse(timedelta(seconds=HOLD_SECONDS))
        assert _answered(calls) == PROMPT_PER_SECOND + 100


async def test_each_second_begins_anew() -> None:
    """A caller with some wrong calls is not slowed down for long."""
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    with capture_logs():
        held = _refused(refusals, PROMPT_PER_SECOND + 1)
        await settled()
        now[0] = 1.0
        calls = _refused(refusals, PROMPT_PER_SECOND)
        await settled()
        assert (_answered(held), _answered(calls)) == (PROMPT_PER_SECOND, PROMPT_PER_SECOND)
        await elapse(timedelta(seconds=2 * HOLD_SECONDS))


async def test_the_more_wait_the_longer_each_does() -> None:
    """So that a second has about the same number of answers, however many callers there are."""
    refusals = Refusals(lambda: 0.0)
    with capture_logs():
        calls = _refused(refusals, PROMPT_PER_SECOND + 5 * HELD_PER_SECOND)
        await settled()
        for _ in range(4):
            before = _answered(calls)
            await elapse(timedelta(seconds=1))
            assert _answered(calls) - before < 3 * HELD_PER_SECOND
        await elapse(timedelta(seconds=8))
        assert _answered(calls) == len(calls)


async def test_none_waits_for_longer_than_a_silent_connection_may() -> None:
    """A web connection whose client has left meanwhile is not noticed, and counts as one that says nothing."""
    refusals = Refusals(lambda: 0.0)
    with capture_logs():
        calls = _refused(refusals, PROMPT_PER_SECOND + 4_000)
        await settled()
        await elapse(timedelta(seconds=HEAD_SECONDS))
        assert _answered(calls) == len(calls)


async def test_a_bounded_number_waits() -> None:
    """Also when callers are gone while they wait: their places are free again."""
    refusals = Refusals(lambda: 0.0)
    with capture_logs():
        calls = _refused(refusals, PROMPT_PER_SECOND + MAX_HELD + 50)
        await settled()
        assert _answered(calls) == PROMPT_PER_SECOND + 50
        for call in calls:
            call.cancel()
        for call in calls:
            with contextlib.suppress(asyncio.CancelledError):
                await call
        again = _refused(refusals, 10)
        await settled()
        assert _answered(again) == 0
        await elapse(timedelta(seconds=2 * HOLD_SECONDS))
