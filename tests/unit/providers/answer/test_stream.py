"""Items of an answer take turns with what else the event loop has to do."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from turnwire.domain.limits import Limits
from turnwire.ports.provider import Origin, StepFinished, StreamItem, ToolCallDelta
from turnwire.providers.answer.bounds import AnswerBounds, AnswersMemory
from turnwire.providers.answer.loop_share import LoopShare
from turnwire.providers.answer.stream import ITEMS_AT_ONCE, OpenAnswer, read_answer
from turnwire.providers.openai_chat.stream import ChatReader


class _Answer:
    """An answer that comes at once."""

    def __init__(self, *events: object) -> None:
        self.headers = {"content-type": "text/event-stream"}
        self._data = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events) + b"data: [DONE]\n\n"

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        """Yields the body."""
        yield self._data

    async def read(self) -> bytes:
        """Returns the body."""
        return self._data


async def _turns(*events: object) -> list[int]:
    """Returns how many calls were yielded in each turn of the loop that had some."""
    turn, found = 0, Counter[int]()

    def count() -> None:
        nonlocal turn, handle
        turn += 1
        handle = asyncio.get_running_loop().call_soon(count)

    @asynccontextmanager
    async def request() -> AsyncIterator[OpenAnswer]:
        yield _Answer(*events)

    handle = asyncio.get_running_loop().call_soon(count)
    items = list[StreamItem]()
    bounds, reader = AnswerBounds(Limits(), AnswersMemory()), ChatReader({}, "m")
    async for item in read_answer(request, reader, Origin("p", "a"), (), share=LoopShare(), bounds=bounds):
        items.append(item)
        found[turn] += isinstance(item, ToolCallDelta)
    handle.cancel()
    assert isinstance(items[-1], StepFinished)
    return [count for _, count in sorted(found.items()) if count]


def _event(calls: int, first: int = 0) -> object:
    made = [
        {"index": number, "id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for number in range(first, first + calls)
    ]
    return {"choices": [{"index": 0, "delta": {"tool_calls": made}}]}


@pytest.mark.parametrize(
    ("calls", "turns"),
    [
        (1, [1]),
        (ITEMS_AT_ONCE, [ITEMS_AT_ONCE]),
        (ITEMS_AT_ONCE + 1, [ITEMS_AT_ONCE, 1]),
        (2 * ITEMS_AT_ONCE + 1, [ITEMS_AT_ONCE, ITEMS_AT_ONCE, 1]),
    ],
)
async def test_an_event_with_thousands_of_calls_does_not_hold_the_loop(calls: int, turns: list[int]) -> None:
    """So many are worked on at once, from the first one on; then others have their turn."""
    assert await _turns(_event(calls)) == turns


async def test_short_events_that_come_together_need_one_turn() -> None:
    """Each on its own would cost a pass of the loop."""
    assert await _turns(*(_event(1, number) for number in range(5))) == [5]
