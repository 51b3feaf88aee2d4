"""Room for large messages that are read again."""

import asyncio

import pytest

from tests.support.fakes.core import FakeStore
from tests.support.fakes.domain_values import make_message
from tests.support.fakes.loop import settled
from turnwire.core import reads
from turnwire.core.reads import MAX_READ_BYTES, ReadBudget
from turnwire.domain.errors import TooManyTurns
from turnwire.domain.text import WIDEST_BYTES


async def _read(room: ReadBudget, store: FakeStore, read: list[str], name: str, go: asyncio.Event) -> None:
    async with room.for_question(store, "default", "ses_1", f"msg_{name}"):
        read.append(name)
        await go.wait()


async def test_questions_that_are_large_together_are_read_one_after_the_other() -> None:
    """Small ones need not wait, and one that is larger than the room is read alone."""
    half = MAX_READ_BYTES // WIDEST_BYTES // 2  # nobody knows beforehand how wide their characters are
    sizes = {"a": half, "b": 1000, "c": half, "d": 2 * half + 1}
    store = FakeStore(conversation=tuple(make_message(f"msg_{name}", "x" * size) for name, size in sizes.items()))
    room, read, go = ReadBudget(), list[str](), {name: asyncio.Event() for name in sizes}
    reading = []
    for name in sizes:
        reading.append(asyncio.create_task(_read(room, store, read, name, go[name])))
        await settled()
    assert read == ["a", "b"]
    go["a"].set()
    await settled()
    assert read == ["a", "b", "c"]
    for name in ("b", "c"):
        go[name].set()
        await settled()
    assert read == ["a", "b", "c", "d"]
    go["d"].set()
    await asyncio.gather(*reading)
    assert room.in_use == 0


async def test_a_request_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused with the limit, and what it was to have is free."""
    monkeypatch.setattr(reads, "PATIENCE_SECONDS", 0.0)
    room = ReadBudget()
    await room.acquire("other", MAX_READ_BYTES)
    with pytest.raises(TooManyTurns) as refused:
        await room.acquire_soon("default", 1)
    assert refused.value.metadata["limit"] == "MAX_READ_BYTES"
    assert refused.value.metadata["limitValue"] == str(MAX_READ_BYTES)
    room.release("other", MAX_READ_BYTES)
    await room.acquire_soon("default", MAX_READ_BYTES)
    assert room.in_use == MAX_READ_BYTES


async def test_what_reads_nothing_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as results of no call, and a message that is not there, while others wait for room."""
    monkeypatch.setattr(reads, "PATIENCE_SECONDS", 0.0)
    room, is_read = ReadBudget(), list[str]()
    await room.acquire("other", MAX_READ_BYTES)
    waiting = asyncio.create_task(room.acquire("other", 1))
    await settled()
    go = asyncio.Event()
    go.set()
    await _read(room, FakeStore(), is_read, "gone", go)
    assert is_read == ["gone"]
    room.release("other", MAX_READ_BYTES)
    await waiting
    assert room.in_use == 1
