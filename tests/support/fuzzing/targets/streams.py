"""Bytes from model servers: server-sent events, and the streams of each API."""

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tests.support.fakes.domain_values import make_message
from tests.support.fuzzing.targets import Target
from tests.support.fuzzing.targets.running import pieces, run
from tests.support.models.scripts import Call, HostedCall, HostedResult, Piece, Refuse, Say, Think, answer
from turnwire.core.answer.message_stream import MessageStream
from turnwire.domain.conversation.events import PartDelta, PartStarted
from turnwire.domain.conversation.messages import Draft, MessageStatus, Part, PartStatus, Reasoning, Text, with_drafts
from turnwire.domain.errors import ProviderError
from turnwire.domain.limits import Limits
from turnwire.ports.provider import ProviderOrigin, StepFinished, StreamItem
from turnwire.providers.answer.sse import SseDecoder
from turnwire.providers.answer.stream import read_answer
from turnwire.providers.anthropic.stream import AnthropicReader
from turnwire.providers.openai_chat.stream import ChatReader
from turnwire.providers.openai_responses.stream import ResponsesReader

READERS = {"openai_chat": ChatReader, "openai_responses": ResponsesReader, "anthropic": AnthropicReader}

LIMITS = Limits()

MAX_BYTES = 1_000_000

SECRET = "sk-very-secret-key-1234567890"


def check_sse(data: bytes) -> None:
    """Events do not depend on where the network cuts the bytes."""
    whole, cut = _events([data[1:]]), _events(pieces(data))
    assert whole == cut, f"{whole} and in pieces {cut}"


def _events(chunks: list[bytes]) -> list[tuple[bytes, bytes]]:
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.finish()


class _Answer:
    """An HTTP answer with a body."""

    status_code = 200

    def __init__(self, chunks: list[bytes]) -> None:
        self.headers = {"content-type": "text/event-stream"}
        self._chunks = chunks

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        """Yields the body."""
        for chunk in self._chunks:
            yield chunk

    async def read(self) -> bytes:
        """Returns the body."""
        return b"".join(self._chunks)


def _check_stream(api: str, data: bytes) -> None:
    """The stream becomes a message whose parts grow and end once, or a failure that can be told."""
    items, failure = run(_read(api, pieces(data)))
    told, begun = _Told(), make_message("msg_1", status=MessageStatus.STREAMING)
    message = MessageStream(begun, told.take, lambda kind: kind, LIMITS)
    ended, drafts = list[int](), list[Draft]()
    for number, item in enumerate(items):
        check_item(item)
        assert not isinstance(item, StepFinished) or number == len(items) - 1, f"{items[number + 1]} after the end"
        message.apply(item)
        ended += message.take_ended()
        drafts.append(message.take_draft())
    message.end_answer()
    ended += message.take_ended()
    drafts.append(message.take_draft())
    assert with_drafts(begun, drafts) == message.snapshot()
    assert len(ended) == len(set(ended)), f"the parts {ended} have ended"
    told.check(message.snapshot().parts)
    if failure is None:
        assert items and isinstance(items[-1], StepFinished), items
    else:
        assert SECRET not in f"{failure.message}{failure.metadata}", failure.message
        assert len(failure.message) < 2000


class _Told:
    """A message as its watchers receive it."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []

    def take(self, event: object) -> None:
        """Folds an event."""
        if isinstance(event, PartStarted):
            assert event.part.index == len(self._texts)
            self._texts.append(b"")
        elif isinstance(event, PartDelta):
            assert event.offset == len(self._texts[event.part_index])
            self._texts[event.part_index] += event.text.encode()

    def check(self, parts: Sequence[Part]) -> None:
        """Checks that what was told of parts that still grow is what they have."""
        for part, text in zip(parts, self._texts, strict=True):
            if part.status is PartStatus.STREAMING and isinstance(part.content, Text | Reasoning):
                assert part.content.text.encode() == text


def check_item(item: StreamItem) -> None:
    """Checks that each field has the type that it says."""
    try:
        msgspec.convert(msgspec.to_builtins(item), type(item))
    except msgspec.ValidationError as error:
        raise AssertionError(f"{item!r:.300}: {error}") from None


async def _read(api: str, chunks: list[bytes]) -> tuple[list[StreamItem], ProviderError | None]:
    reader = READERS[api]({"look_1": "look.it"}, "m", (SECRET,))
    items: list[StreamItem] = []

    @asynccontextmanager
    async def request() -> AsyncIterator[Any]:
        yield _Answer(chunks)

    try:
        origin = ProviderOrigin("models", "model.example")
        async for item in read_answer(request, reader, origin, (SECRET,), MAX_BYTES):
            items.append(item)
    except ProviderError as error:
        return items, error
    return items, None


def _answers(api: str) -> Iterable[bytes]:
    several: list[tuple[Piece, ...]] = [
        (Say("Hello"), Say(" world")),
        (Think("hm"), Say("é🎈"), Call("look_1", '{"a":1}'), Call("look", "{}", "call_2")),
        (Refuse("No."),),
        (HostedCall("h1"), HostedResult("h1"), Say("done")),
        (),
    ]
    for pieces_ in several:
        yield bytes((40,)) + b"".join(bytes(chunk) for chunk in answer(api, *pieces_).chunks)  # type: ignore[arg-type]


def _events_of(*events: object, names: tuple[str, ...] = ()) -> bytes:
    lines = [f"event: {name}\n" for name in names] or [""] * len(events)
    return b"\xff" + "".join(f"{line}data: {json.dumps(e)}\n\n" for line, e in zip(lines, events, strict=True)).encode()


def _chat() -> Iterable[bytes]:
    yield from _answers("openai_chat")
    yield _events_of(
        {
            "id": "1",
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "delta": {
                        "reasoning": "r",
                        "reasoning_details": [
                            {"type": "reasoning.text", "index": 0, "text": "r"},
                            {"type": "reasoning.encrypted", "data": "x"},
                        ],
                    },
                }
            ],
        },
        {
            "choices": [
                {"index": 0, "delta": {"content": [{"type": "text", "text": "t"}, {"thinking": [{"text": "u"}]}]}}
            ]
        },
        {
            "choices": [
                {"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"name": "a", "arguments": "{"}}]}}
            ]
        },
        {
            "choices": [
                {
                    "index": 0,
                    "delta": {
                        "tool_calls": [{"function": {"name": "a", "arguments": "}"}}],
                        "images": [{"index": 0}],
                        "executed_tools": [{"index": 1}],
                    },
                    "finish_reason": "stop",
                }
            ]
        },
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 1,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
        },
    )
    yield _events_of({"error": {"code": 429, "message": f"rate limit {SECRET}"}})
    yield _events_of({"choices": [{"index": 0, "delta": {"function_call": {"name": "a", "arguments": "{}"}}}]})


def _responses() -> Iterable[bytes]:
    yield from _answers("openai_responses")
    yield _events_of(
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "r"}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "x"},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{"},
        {"type": "response.refusal.delta", "output_index": 1, "content_index": 0, "delta": "no"},
        {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
        {"type": "error", "message": "broken"},
    )


def _anthropic() -> Iterable[bytes]:
    yield from _answers("anthropic")
    yield _events_of(
        {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "redacted_thinking", "data": "x"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"a": 1}}},
        {"type": "content_block_stop", "index": 0},
        {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
    )


def _sse() -> Iterable[bytes]:
    yield b"\x02\xef\xbb\xbfdata: a\ndata: b\nevent: c\n\ndata\r\n\r\r: comment\ndata: d"
    yield b"\x00event: x\r\ndata:{}\r\n\r\n"


TARGETS = {
    "sse": Target(check_sse, _sse),
    "chat_stream": Target(lambda data: _check_stream("openai_chat", data), _chat),
    "responses_stream": Target(lambda data: _check_stream("openai_responses", data), _responses),
    "anthropic_stream": Target(lambda data: _check_stream("anthropic", data), _anthropic),
}
