"""What a stream costs grows with what it brings, not with what was there before."""

import json
import time
from collections.abc import Callable, Iterator

import pytest

from turnwire.ports.provider import StreamItem
from turnwire.providers.answer.sse import SseDecoder
from turnwire.providers.answer.stream import AnswerReader
from turnwire.providers.anthropic.stream import AnthropicReader
from turnwire.providers.openai_chat.stream import ChatReader
from turnwire.providers.openai_responses.stream import ResponsesReader

Event = Callable[[int], object]


def chat(**delta: object) -> object:
    """Returns a chunk."""
    return {"choices": [{"index": 0, "delta": delta}]}


def block(index: int, **delta: object) -> object:
    """Returns a delta of a block."""
    return {"type": "content_block_delta", "index": index, "delta": delta}


OPEN = {"type": "content_block_start", "index": 0, "content_block": {"type": "x", "text": ""}}
STREAMS: dict[str, tuple[Callable[[], AnswerReader], Event]] = {
    "a repeated tool name": (
        lambda: ChatReader({}, "m"),
        lambda _: chat(tool_calls=[{"function": {"name": "x", "arguments": "y" * 400}}]),
    ),
    "a reasoning detail that grows": (
        lambda: ChatReader({}, "m"),
        lambda _: chat(reasoning_details=[{"index": 0, "type": "t", "text": "y" * 400}]),
    ),
    "many reasoning details": (
        lambda: ChatReader({}, "m"),
        lambda n: chat(reasoning_details=[{"index": n, "type": "t", "text": "y"}]),
    ),
    "many kept entries": (lambda: ChatReader({}, "m"), lambda n: chat(images=[{"index": n, "x": "y"}])),
    "citations": (lambda: AnthropicReader({}, "m"), lambda n: block(0, type="citations_delta", citation={"n": n})),
    "a growing text of an unknown block": (
        lambda: AnthropicReader({}, "m"),
        lambda _: block(0, type="x_delta", text="y" * 400),
    ),
    "items without a number": (
        lambda: ResponsesReader({}, "m"),
        lambda n: {"type": "response.output_text.delta", "item_id": f"i{n}", "delta": "x"},
    ),
}


def seconds(work: Callable[[], object]) -> float:
    """Returns the least processor time of three runs."""

    def each() -> Iterator[float]:
        for _ in range(3):
            begun = time.process_time()
            work()
            yield time.process_time() - begun

    return min(each())


@pytest.mark.matrix
@pytest.mark.parametrize("name", STREAMS)
def test_sixteen_times_as_much_costs_no_more_than_forty_times(name: str) -> None:
    """It would be 256 times if each event looked at those before it."""
    make, event = STREAMS[name]

    def read(events: int) -> None:
        reader, items = make(), list[StreamItem]()
        reader.read(b"", json.dumps(OPEN).encode(), items)
        for data in told[:events]:
            reader.read(b"", data, items)

    told = [json.dumps(event(n)).encode() for n in range(16 * 500)]
    assert seconds(lambda: read(16 * 500)) < 40 * seconds(lambda: read(500))


def test_lines_of_one_event_are_counted_once() -> None:
    """However often the rest of them comes."""

    def feed(reads: int) -> None:
        decoder = SseDecoder()
        for _ in range(reads):
            decoder.feed(b"data:\n" * 100)

    assert seconds(lambda: feed(16 * 50)) < 40 * seconds(lambda: feed(50))
