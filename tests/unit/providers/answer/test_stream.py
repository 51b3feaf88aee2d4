"""Reading of an answer, beside what the adapters' own tests show."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from turnwire.domain.errors import ProviderAnswerOverLimit
from turnwire.ports.provider import ProviderOrigin, StreamItem, TextDelta
from turnwire.providers.answer.stream import MAX_PIECE_BYTES, OpenAnswer, read_answer
from turnwire.providers.openai_chat.stream import ChatReader


class _Answer:
    """An answer that is there at once, in several reads."""

    def __init__(self, *reads: bytes) -> None:
        self.headers = {"content-type": "text/event-stream"}
        self._reads = reads

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        """Yields the body."""
        for data in self._reads:
            yield data

    async def read(self) -> bytes:
        """Returns the body."""
        return b"".join(self._reads)


def _event(content: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": content}}]}).encode() + b"\n\n"


async def _items(*reads: bytes, max_bytes: int = 1_000_000) -> AsyncIterator[StreamItem]:
    @asynccontextmanager
    async def request() -> AsyncIterator[OpenAnswer]:
        yield _Answer(*reads)

    async for item in read_answer(request, ChatReader({}, "m"), ProviderOrigin("p", "a"), (), max_bytes):
        yield item


async def _texts_and_turns(*reads: bytes) -> tuple[list[str], int]:
    """Returns the texts of an answer, and how often another task ran meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    texts = [item.text async for item in _items(*reads, b"data: [DONE]\n\n") if isinstance(item, TextDelta)]
    counting.cancel()
    return texts, turns


async def test_others_have_their_turn_after_each_read() -> None:
    """An answer that is there already does not hold the event loop; what comes in one read is one item."""
    texts, turns = await _texts_and_turns(*[_event("a") * 5] * 100)
    assert texts == ["aaaaa"] * 100
    assert turns >= 100


async def test_others_have_their_turn_within_a_long_read() -> None:
    """An unpacked read may have a hundred thousand events."""
    texts, turns = await _texts_and_turns(b"data:{}\n\n" * MAX_PIECE_BYTES + _event("a"))
    assert texts == ["a"]
    assert turns >= 9


async def test_an_answer_has_a_size() -> None:
    """The items before the one that is too large are given first."""
    found = list[StreamItem]()
    with pytest.raises(ProviderAnswerOverLimit) as caught:
        async for item in _items(*[_event("a")] * 100, max_bytes=200):
            found.append(item)
    assert 0 < len(found) < 10
    assert caught.value.metadata["limit"] == "limits.max_answer_received_bytes"
