"""A held event loop says where it is held."""

import asyncio
import threading
import time
from collections.abc import Callable

from structlog.testing import capture_logs

from turnwire.telemetry.watches.loop_watch import MAX_FRAMES, LoopWatch, where

STUCK_SECONDS = 0.02
PATIENCE_SECONDS = 200.0


def _hold_until(true: Callable[[], bool]) -> None:
    """Holds the loop until another thread has done something: a callback that does not return."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < give_up_at


def _stuck(lines: list[dict[str, object]]) -> list[dict[str, object]]:  # type: ignore[type-arg]
    return [line for line in list(lines) if line["event"] == "event_loop_stuck"]


async def test_a_held_loop_is_logged_with_the_place_that_holds_it() -> None:
    """While it is held, by another thread; the delay is measured when it is free again."""
    delays: list[float] = []
    ticked = asyncio.Event()
    watch = LoopWatch(STUCK_SECONDS, lambda delay: (delays.append(delay), ticked.set())[0], log_interval_seconds=0)
    with capture_logs() as lines:
        watch.start()
        try:
            while not (here := [line for line in _stuck(lines) if "_hold_until" in line["where"]]):
                told, until = len(_stuck(lines)), time.monotonic() + 1
                # not for ever: a busy machine may have held the loop elsewhere, and that is told once
                _hold_until(lambda told=told, until=until: len(_stuck(lines)) > told or time.monotonic() >= until)
                ticked.clear()
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await ticked.wait()
        finally:
            watch.stop()
    line = here[0]
    assert "telemetry/watches/test_loop_watch.py:" in line["where"]
    assert line["milliseconds"] >= STUCK_SECONDS * 1000
    assert max(delays) >= STUCK_SECONDS


async def test_lines_keep_their_distance_and_have_the_longest_delay() -> None:
    """A slow function that runs again and again does not fill the log; how often it did is told, and its worst."""
    ticks = 0

    def note_tick(_: float) -> None:
        nonlocal ticks
        ticks += 1

    watch = LoopWatch(STUCK_SECONDS, note_tick, log_interval_seconds=3600)
    with capture_logs() as lines:
        watch.start()
        try:
            _hold_until(lambda: bool(_stuck(lines)))
            for seconds in (2 * STUCK_SECONDS, 10 * STUCK_SECONDS, 2 * STUCK_SECONDS):
                before, until = ticks, time.monotonic() + seconds
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while ticks == before:
                        await asyncio.sleep(0)
                _hold_until(lambda until=until: time.monotonic() >= until)  # type: ignore[misc]
            before = ticks
            async with asyncio.timeout(PATIENCE_SECONDS):
                while ticks == before:
                    await asyncio.sleep(0)
        finally:
            watch.stop()
    _, last = _stuck(lines)
    assert last["times"] >= 3 and last["milliseconds"] >= 9 * STUCK_SECONDS * 1000
    assert last["cpu_milliseconds"] > 0
    assert last["where"]  # here, unless a busy machine held the loop even longer elsewhere


async def test_a_function_that_keeps_the_interpreter_is_told_when_it_is_over() -> None:
    """No other thread can look where it is meanwhile, but the delay is measured."""
    import hashlib
    import sys

    before, ticked = sys.getswitchinterval(), asyncio.Event()
    watch = LoopWatch(STUCK_SECONDS, lambda _: ticked.set())
    sys.setswitchinterval(PATIENCE_SECONDS)  # the other thread gets no turn until this one waits
    try:
        with capture_logs() as lines:
            watch.start()
            await asyncio.sleep(0)
            until = time.monotonic() + 3 * STUCK_SECONDS
            _hold_until(lambda: bool(hashlib.sha256(b"x").digest()) and time.monotonic() >= until)
            ticked.clear()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await ticked.wait()
            watch.stop()
    finally:
        sys.setswitchinterval(before)
        watch.stop()
    assert max(line["milliseconds"] for line in _stuck(lines)) >= 2 * STUCK_SECONDS * 1000


async def test_without_a_limit_only_delays_are_measured() -> None:
    """No thread is started."""
    ticked = asyncio.Event()
    before = threading.active_count()
    watch = LoopWatch(0, lambda _: ticked.set())
    watch.start()
    try:
        assert threading.active_count() == before
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ticked.wait()
    finally:
        watch.stop()
        watch.stop()


async def test_a_watch_that_was_stopped_leaves_no_thread() -> None:
    """A server that stops waits for it."""
    before = threading.active_count()
    watch = LoopWatch(STUCK_SECONDS)
    watch.start()
    assert threading.active_count() == before + 1
    watch.stop()
    assert threading.active_count() == before


def test_a_place_is_bounded() -> None:
    """The innermost frames, the last of them innermost; no values."""

    def deep(levels: int, secret: str) -> str:
        import sys

        return deep(levels - 1, secret) if levels else where(sys._getframe())

    text = deep(100, "a prompt")
    assert text.count(" > ") == MAX_FRAMES - 1
    assert text.endswith(" deep") and "prompt" not in text
    assert where(None) == ""


async def test_a_loop_that_waits_does_not_work() -> None:
    """The time of the processor tells a busy machine from a slow function."""
    ticked = asyncio.Event()
    watch = LoopWatch(STUCK_SECONDS, lambda _: ticked.set(), log_interval_seconds=0)
    with capture_logs() as lines:
        watch.start()
        threading.Event().wait(20 * STUCK_SECONDS)  # holds the loop, and nothing ends it sooner
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not any(line["milliseconds"] >= 15 * STUCK_SECONDS * 1000 for line in _stuck(lines)):
                ticked.clear()
                await ticked.wait()
        watch.stop()
    assert all(line["cpu_milliseconds"] < 10 * STUCK_SECONDS * 1000 for line in _stuck(lines))
