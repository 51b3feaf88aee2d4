"""What is kept of sessions, and for how long."""

import asyncio

import pytest

from turnwire.core import keeping
from turnwire.core.keeping import KeptSessions


class Notes:
    """Something that is kept."""

    def __init__(self) -> None:
        """Starts empty."""
        self.size_bytes = 0


async def grow(sessions: KeptSessions, session_id: str, size_bytes: int) -> int:
    """Uses a session and gives it a size; returns the size that it had."""
    async with sessions.use(session_id) as kept:
        notes = kept.take(Notes)
        before, notes.size_bytes = notes.size_bytes, size_bytes
        kept.put(notes)
    return before


async def test_the_session_that_was_used_longest_ago_is_dropped() -> None:
    """When all together are too large."""
    sessions = KeptSessions(max_bytes=100)
    for session_id, size_bytes in (("a", 40), ("b", 40), ("a", 41), ("c", 30)):
        await grow(sessions, session_id, size_bytes)
    assert sessions.size_bytes == 71
    assert [await grow(sessions, session_id, 1) for session_id in "abc"] == [41, 0, 30]


async def test_a_session_that_is_too_large_alone_is_not_kept() -> None:
    """Its next request is made afresh."""
    sessions = KeptSessions(max_bytes=100)
    await grow(sessions, "a", 101)
    assert (sessions.size_bytes, await grow(sessions, "a", 1)) == (0, 0)


async def test_an_idle_session_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """When another one is used."""
    sessions = KeptSessions()
    await grow(sessions, "a", 5)
    monkeypatch.setattr(keeping, "IDLE_SECONDS", -1.0)
    await grow(sessions, "b", 1)
    assert sessions.size_bytes == 0


async def test_what_nobody_uses_is_dropped_at_once() -> None:
    """When memory is short; who uses something goes on."""
    sessions = KeptSessions()
    await grow(sessions, "a", 40)
    await grow(sessions, "b", 40)
    async with sessions.use("b"):
        sessions.clear()
        assert sessions.size_bytes == 40
    assert [await grow(sessions, session_id, 1) for session_id in "ab"] == [0, 40]


async def test_one_use_at_a_time() -> None:
    """The others wait, and what they wait for stays."""
    sessions = KeptSessions(max_bytes=0)
    async with sessions.use("a") as kept:
        notes = kept.take(Notes)
        notes.size_bytes = 7
        kept.put(notes)
        waiting = asyncio.create_task(grow(sessions, "a", 8))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        await grow(sessions, "b", 1)
    assert await waiting == 7
    assert sessions.size_bytes == 0


async def test_what_is_kept_of_a_removed_session_goes_with_it() -> None:
    """Unless somebody uses it at that moment; one of which nothing is kept is nothing to forget."""
    sessions = KeptSessions()
    await grow(sessions, "a", 5)
    await grow(sessions, "b", 7)
    sessions.forget("a")
    sessions.forget("never")
    assert (sessions.size_bytes, await grow(sessions, "a", 1)) == (7, 0)
    async with sessions.use("b") as kept:
        sessions.forget("b")
        kept.put(notes := kept.take(Notes))
        assert notes.size_bytes == 7
    assert await grow(sessions, "b", 1) == 7


async def test_what_is_not_put_back_is_forgotten() -> None:
    """Its user was cancelled, and may have left it half changed."""
    sessions = KeptSessions()
    await grow(sessions, "a", 5)
    async with sessions.use("a") as kept:
        kept.take(Notes)
    assert (sessions.size_bytes, await grow(sessions, "a", 1)) == (0, 0)
