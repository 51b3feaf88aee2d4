"""Room for large messages that are read again."""

import asyncio

import pytest

from tests.support.fakes.core import FakeStore
from tests.support.fakes.domain_values import make_message
from tests.support.fakes.loop import settled
from turnwire.core.rooms import beginnings
from turnwire.core.rooms.beginnings import MAX_BEGINNING_BYTES, Beginnings
from turnwire.domain.errors import TooManyTurns
from turnwire.domain.text import WIDEST_BYTES


async def _read(room: Beginnings, store: FakeStore, read: list[str], name: str, go: asyncio.Event) -> None:
    async with room.for_question(store, "default", "ses_1", f"msg_{name}"):
        read.append(name)
        await go.wait()


async def test_questions_that_are_large_together_are_read_one_after_the_other() -> None:
    """Small ones need not wait, and one that is larger than the room is read alone."""
    half = MAX_BEGINNING_BYTES // WIDEST_BYTES // 2  # nobody knows beforehand how wide their characters are
    sizes = {"a": half, "b": 1000, "c": half, "d": 2 * half + 1}
    store = FakeStore(conversation=tuple(make_message(f"msg_{name}", "x" * size) for name, size in sizes.items()))
    room, read, go = Beginnings(), list[str](), {name: asyncio.Event() for name in sizes}
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
    assert room.held_bytes == 0


async def test_a_request_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused with the limit, and what it was to have is free."""
    monkeypatch.setattr(beginnings, "PATIENCE_SECONDS", 0.0)
    room = Beginnings()
    await room.take("other", MAX_BEGINNING_BYTES)
    with pytest.raises(TooManyTurns) as refused:
        await room.take_soon("default", 1)
    assert refused.value.metadata["limit"] == "MAX_BEGINNING_BYTES"
    assert refused.value.metadata["limitValue"] == str(MAX_BEGINNING_BYTES)
    room.change(-MAX_BEGINNING_BYTES)
    await room.take_soon("default", MAX_BEGINNING_BYTES)
    assert room.held_bytes == MAX_BEGINNING_BYTES


async def test_what_reads_nothing_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as results of no call, and a message that is not there, while others wait for room."""
    monkeypatch.setattr(beginnings, "PATIENCE_SECONDS", 0.0)
    room, is_read = Beginnings(), list[str]()
    await room.take("other", MAX_BEGINNING_BYTES)
    waiting = asyncio.create_task(room.take("other", 1))
    await settled()
    go = asyncio.Event()
    go.set()
    await _read(room, FakeStore(), is_read, "gone", go)
    assert is_read == ["gone"]
    room.change(-MAX_BEGINNING_BYTES)
    await waiting
    assert room.held_bytes == 1
