"""A held event loop says where it is held."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from turnwire.telemetry import loop_monitor
from turnwire.telemetry.loop_monitor import MAX_FRAMES, LoopMonitor, stack_of

STUCK_SECONDS = 0.02
PATIENCE_SECONDS = 200.0


def _hold_until(true: Callable[[], bool]) -> None:
    """Holds the loop until another thread has done something: a callback that does not return."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < give_up_at


def _stuck(lines: list[dict[str, object]]) -> list[dict[str, object]]:  # type: ignore[type-arg]
    return [line for line in list(lines) if line["event"] == "event_loop_stuck"]


async def test_a_held_loop_is_logged_with_the_place_that_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is held, by another thread; the delay is measured when it is free again."""
    monkeypatch.setattr(loop_monitor, "LOG_INTERVAL_SECONDS", 0.0)
    delays: list[float] = []
    ticked = asyncio.Event()
    monitor = LoopMonitor(STUCK_SECONDS, lambda delay: (delays.append(delay), ticked.set())[0])
    with capture_logs() as lines:
        monitor.start()
        try:
            while not (here := [line for line in _stuck(lines) if "_hold_until" in line["where"]]):
                told, until = len(_stuck(lines)), time.monotonic() + 1
                # not for ever: a busy machine may have held the loop elsewhere, and that is told once
                _hold_until(lambda told=told, until=until: len(_stuck(lines)) > told or time.monotonic() >= until)
                ticked.clear()
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await ticked.wait()
        finally:
            monitor.stop()
    line = here[0]
    assert "unit/telemetry/test_loop_monitor.py:" in line["where"]
    assert line["milliseconds"] >= STUCK_SECONDS * 1000
    assert max(delays) >= STUCK_SECONDS


async def test_lines_keep_their_distance_and_have_the_longest_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow function that runs again and again does not fill the log; how often it did is told, and its worst."""
    monkeypatch.setattr(loop_monitor, "LOG_INTERVAL_SECONDS", 3600.0)
    ticks = 0

    def note_tick(_: float) -> None:
        nonlocal ticks
        ticks += 1

    monitor = LoopMonitor(STUCK_SECONDS, note_tick)
    with capture_logs() as lines:
        monitor.start()
        try:
            for seconds in (2 * STUCK_SECONDS, 2 * STUCK_SECONDS, 10 * STUCK_SECONDS, 2 * STUCK_SECONDS):
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
            monitor.stop()
    _, last = _stuck(lines)
    assert last["times"] >= 3 and last["milliseconds"] >= 9 * STUCK_SECONDS * 1000
    assert last["cpu_milliseconds"] > 0
    assert last["where"]  # here, unless a busy machine held the loop even longer elsewhere


async def test_a_function_that_keeps_the_interpreter_is_told_when_it_is_over() -> None:
    """No other thread can look where it is meanwhile, but the delay is measured."""
    import hashlib
    import sys

    before, ticked = sys.getswitchinterval(), asyncio.Event()
    monitor = LoopMonitor(STUCK_SECONDS, lambda _: ticked.set())
    sys.setswitchinterval(PATIENCE_SECONDS)  # the other thread gets no turn until this one waits
    try:
        with capture_logs() as lines:
            monitor.start()
            await asyncio.sleep(0)
            until = time.monotonic() + 3 * STUCK_SECONDS
            _hold_until(lambda: bool(hashlib.sha256(b"x").digest()) and time.monotonic() >= until)
            ticked.clear()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await ticked.wait()
            monitor.stop()
    finally:
        sys.setswitchinterval(before)
        monitor.stop()
    assert max(line["milliseconds"] for line in _stuck(lines)) >= 2 * STUCK_SECONDS * 1000


async def test_without_a_limit_only_delays_are_measured() -> None:
    """No thread is started."""
    ticked = asyncio.Event()
    before = threading.active_count()
    monitor = LoopMonitor(0, lambda _: ticked.set())
    monitor.start()
    try:
        assert threading.active_count() == before
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ticked.wait()
    finally:
        monitor.stop()
        monitor.stop()


async def test_a_monitor_that_was_stopped_leaves_no_thread() -> None:
    """A server that stops waits for it."""
    before = threading.active_count()
    monitor = LoopMonitor(STUCK_SECONDS)
    monitor.start()
    assert threading.active_count() == before + 1
    monitor.stop()
    assert threading.active_count() == before


def test_a_place_is_bounded() -> None:
    """The innermost frames, the last of them innermost; no values."""

    def deep(levels: int, secret: str) -> str:
        return deep(levels - 1, secret) if levels else stack_of(threading.get_ident())

    text = deep(100, "a prompt")
    assert text.count(" > ") == MAX_FRAMES - 1
    assert text.endswith(" stack_of") and text.count(" deep > ") == MAX_FRAMES - 1 and "prompt" not in text
    assert stack_of(0) == ""


async def test_a_loop_that_waits_does_not_work() -> None:
    """The time of the processor tells a busy machine from a slow function."""
    ticked = asyncio.Event()
    monitor = LoopMonitor(STUCK_SECONDS, lambda _: ticked.set())
    with capture_logs() as lines:
        monitor.start()
        threading.Event().wait(20 * STUCK_SECONDS)  # holds the loop, and nothing ends it sooner
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ticked.wait()
        monitor.stop()
    assert max(line["milliseconds"] for line in _stuck(lines)) >= 15 * STUCK_SECONDS * 1000
    assert all(line.get("cpu_milliseconds", 0) < 10 * STUCK_SECONDS * 1000 for line in _stuck(lines))
