"""Turns an open HTTP answer into the items of a step. Common to all APIs."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from itertools import groupby
from typing import Protocol, TypeGuard

from turnwire.domain.conversation.messages import FinishReason
from turnwire.domain.errors import ProviderAnswerOverLimit, ProviderError, ProviderStreamCut, ProviderStreamFailed
from turnwire.ports.provider import (
    PartEnded,
    ProviderContentReceived,
    ProviderOrigin,
    ReasoningDelta,
    RefusalDelta,
    ResponseStarted,
    StepFinished,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwire.providers.answer import json_text
from turnwire.providers.answer.failures.errors import from_exception, from_stream
from turnwire.providers.answer.sse import SseDecoder
from turnwire.providers.http.transport import is_stream

DRAIN_SECONDS = 0.2
"""Maximum time to wait for the end of the body after the API's end marker or an error. Reading a body to its end keeps
the connection usable, but a server that keeps it open must not delay the turn."""

MAX_PIECE_BYTES = 16 * 1024
"""Maximum size of what is read of an answer before other tasks run. An unpacked read may have 1 MiB in events of nine
bytes. A piece still has some sixty ordinary events, which are joined."""

_Delta = TextDelta | ReasoningDelta | RefusalDelta


class AnswerReader(Protocol):
    """Reads the events of one answer. Free of I/O; used once."""

    ended: bool
    """Whether the API's end marker was read. Becomes False again when another answer follows: some gateways send all
    steps of a conversation in one body."""

    @property
    def provider_reason(self) -> str:
        """The reason that the provider gives for the end of the answer; "" until it arrives."""
        ...

    def read(self, event: bytes, data: bytes, items: list[StreamItem]) -> None:
        """Appends the items of an event to `items`.

        Raises:
            ProviderError: the event reports an error. Items that were appended before stay valid.
            ValueError: the event cannot be read.
        """
        ...

    def end_of_body(self, items: list[StreamItem]) -> None:
        """Ends the input. Call it once, last.

        Appends the ends of open parts and `StepFinished`. Appends nothing and leaves `ended` False when the end marker
        is missing and the API requires it.
        """
        ...


class OpenAnswer(Protocol):
    """The part of the SDKs' raw streaming responses that is used."""

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers."""
        ...

    def iter_bytes(self) -> AsyncIterator[bytes]:
        """The decompressed body as it arrives."""
        ...

    async def read(self) -> bytes:
        """Returns the complete body, or the beginning of one that is not a stream."""
        ...


async def read_answer(
    request: Callable[[], AbstractAsyncContextManager[OpenAnswer]],
    reader: AnswerReader,
    origin: ProviderOrigin,
    secrets: tuple[str, ...],
    max_bytes: int,
) -> AsyncGenerator[StreamItem, None]:
    """Sends the request and yields the items that the reader finds in its answer.

    Closing the generator, or cancelling the task that iterates it, closes the connection at once. Other tasks run after
    each read, and after each `MAX_PIECE_BYTES` of a long one.

    Args:
        request: Makes a context that sends on entering and closes the answer on leaving; called for the first item.
        reader: A new reader of the API's events.
        origin: Named in errors.
        secrets: Texts that must not appear in errors.
        max_bytes: Maximum size of the answer, unpacked: `limits.max_answer_received_bytes`.

    Raises:
        ProviderError: the call failed, the stream reported an error, or it ended too early.
    """
    failure: ProviderError | ValueError | None = None
    try:
        async with request() as answer:
            await _refuse_unstreamed(answer, secrets)
            decoder = SseDecoder()
            items: list[StreamItem] = []
            received = 0
            async with aclosing(_body(answer, lambda: reader.ended or failure is not None)) as body:
                async for chunk in body:
                    found = _read_events(decoder.feed(chunk), reader, items)
                    failure = failure or found
                    for item in joined(items):
                        yield _checked(item)
                    items.clear()
                    if isinstance(failure, ValueError):
                        raise failure
                    received += len(chunk)
                    if received > max_bytes:
                        raise ProviderAnswerOverLimit.of("is too large", "max_answer_received_bytes", max_bytes)
                    # other tasks run, even if the next bytes have already arrived
                    await asyncio.sleep(0)
        found = _read_events(decoder.finish(), reader, items)
        failure = failure or found
        if isinstance(failure, ValueError):
            # A last event that cannot be read was truncated.
            failure = None
        if failure is None:
            reader.end_of_body(items)
        for item in items:
            yield _checked(item)
        if failure is not None:
            raise failure
        if not reader.ended:
            raise stream_cut()
    except Exception as error:
        if reader.provider_reason and (failure is not None or not reader.ended):
            yield StepFinished(FinishReason.ERROR, reader.provider_reason)
        translated = from_exception(error, secrets)
        origin.name_in(translated)
        if translated is error:
            raise
        raise translated from error


def stream_cut() -> ProviderStreamCut:
    """Returns the error for an answer without its end marker."""
    return ProviderStreamCut("the answer of the provider ended without its end marker")


def _checked(item: StreamItem) -> StreamItem:
    """Checks that the texts of an item are texts, and returns it.

    Raises:
        ValueError: the provider sent a value of another type in place of a text.
    """
    match item:
        case TextDelta(text=str()) | ReasoningDelta(text=str()) | RefusalDelta(text=str()):
            pass
        case ToolCallDelta(name=str(), call_id=str(), arguments=str()):
            pass
        case PartEnded(provider_state=str() | None, text=str() | None):
            pass
        case ProviderContentReceived(kind=str(), state=str()):
            pass
        case ResponseStarted(model_served=str(), response_id=str()) | StepFinished(provider_reason=str()):
            pass
        case UsageReported():
            pass
        case _:
            raise ValueError("a value is not text")
    return item


def _read_events(
    events: list[tuple[bytes, bytes]], reader: AnswerReader, items: list[StreamItem]
) -> ProviderError | ValueError | None:
    """Returns the first error before the end marker. Does not raise it, because earlier items must be yielded first."""
    failure: ProviderError | None = None
    for event, data in events:
        ended = reader.ended
        try:
            reader.read(event, data, items)
        except ProviderError as error:
            # Events after an error may still report usage and reason.
            failure = failure or (None if ended else error)
        except Exception as error:  # a foreign value of any form, depth and range
            if not ended:
                return failure or ValueError(f"an event cannot be decoded: {type(error).__name__}")
    return failure


async def _refuse_unstreamed(answer: OpenAnswer, secrets: tuple[str, ...]) -> None:
    # Some servers answer 200 with a JSON error, others ignore that a stream was requested.
    if is_stream(200, answer.headers.get("content-type", "")):
        return
    try:
        body = json_text.decode(await answer.read())
    except ValueError:
        body = None
    if isinstance(body, dict) and (body.get("error") or "message" in body):
        raise from_stream(body, secrets)
    raise ProviderStreamFailed("the provider did not answer with a stream")


async def _body(answer: OpenAnswer, is_over: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
    """Yields the body in pieces of at most `MAX_PIECE_BYTES`. Once the answer is over, yields only what arrives within
    `DRAIN_SECONDS`, and raises no error.
    """
    chunks = answer.iter_bytes()
    deadline: float | None = None
    while True:
        if not is_over():
            deadline = None
        elif deadline is None:
            deadline = asyncio.get_running_loop().time() + DRAIN_SECONDS
        try:
            if deadline is None:
                chunk = await anext(chunks, None)
            else:
                async with asyncio.timeout_at(deadline):
                    chunk = await anext(chunks, None)
        except Exception:
            if is_over():
                return
            raise
        if chunk is None:
            return
        for start in range(0, len(chunk), MAX_PIECE_BYTES):
            yield chunk[start : start + MAX_PIECE_BYTES]


def joined(items: Iterable[StreamItem]) -> Iterator[StreamItem]:
    """Yields the items in their order, with adjacent texts of one part joined, so that later stages handle one item."""
    for place, run in groupby(items, key=_place):
        if place is None:
            yield from run
            continue
        first, *others = filter(_is_delta, run)
        yield type(first)(first.key, "".join((first.text, *(one.text for one in others)))) if others else first


def _place(item: StreamItem) -> tuple[object, ...] | None:
    return (type(item), item.key) if _is_delta(item) else None


def _is_delta(item: StreamItem) -> TypeGuard[_Delta]:
    return isinstance(item, _Delta)
