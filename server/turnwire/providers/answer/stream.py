"""Turns an open HTTP answer into the items of a step: what all APIs have in common."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Protocol

from turnwire.domain.conversation.messages import FinishReason
from turnwire.domain.errors import ProviderError, ProviderStreamCut, ProviderStreamFailed
from turnwire.ports.provider import Origin, StepFinished, StreamItem
from turnwire.providers.answer import json_text
from turnwire.providers.answer.bounds import AnswerBounds, too_large_event
from turnwire.providers.answer.failures.errors import from_exception, from_stream
from turnwire.providers.answer.loop_share import EVENTS_AT_ONCE, EVENTS_PER_TURN, LoopShare
from turnwire.providers.answer.sse import SseDecoder, SseEventTooLarge
from turnwire.providers.answer.text_runs import joined
from turnwire.providers.http.body import is_stream

PIECE_BYTES = 16 * 1024
"""Most bytes of a body that are decoded at once. A body that was compressed arrives in larger pieces."""

_FREE_BYTES = 2048
"""As much text without an event costs what an event costs: comments, or a part of a long event."""

_FREE_LINES = 64
"""As many lines without an event do, too."""

ITEMS_AT_ONCE = 64
"""What an event carries is worked on so far at once: it may be a thousand tool calls."""

DRAIN_SECONDS = 0.2
"""How long to wait for the end of the body after the API's end marker or an error: a body read to its end lets the
connection be used again, and a server that keeps it open must not hold up the turn."""


class AnswerReader(Protocol):
    """Reads the events of one answer. Free of I/O; used once."""

    ended: bool
    """The API's end marker was read. Becomes False again when another answer follows: some gateways send all steps of a
    conversation in one body."""

    @property
    def kept_bytes(self) -> int:
        """About how much it keeps of what it has read, to pass it on with the end of a part or of the answer."""
        ...

    @property
    def provider_reason(self) -> str:
        """The provider's word for why the answer ended; "" until it arrives."""
        ...

    def read(self, event: bytes, data: bytes, items: list[StreamItem]) -> None:
        """Appends the items that the event carries to `items`.

        Raises:
            ProviderError: the event reports an error. What was appended before stays valid.
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
        """The whole body; of one that is no stream its beginning."""
        ...


async def read_answer(
    request: Callable[[], AbstractAsyncContextManager[OpenAnswer]],
    reader: AnswerReader,
    origin: Origin,
    secrets: tuple[str, ...],
    *,
    share: LoopShare,
    bounds: AnswerBounds,
) -> AsyncGenerator[StreamItem, None]:
    """Sends the request and yields the items that the reader finds in its answer.

    Closing the generator, or cancelling the task that iterates it, closes the connection at once. What the caller does
    with an item counts as work of the stream: it waits for its share of the event loop between a few events.

    Args:
        request: Makes a context that sends on entering and closes the answer on leaving; called for the first item.
        reader: A fresh reader of the API's events.
        origin: Named in errors.
        secrets: Texts that must not appear in errors.
        share: Of the event loop, among all streams.
        bounds: Fresh ones.

    Raises:
        ProviderError: the call failed, the stream reported an error, or it ended too early.
    """
    failure: ProviderError | ValueError | None = None
    try:
        with bounds:
            async with request() as answer:
                await _refuse_unstreamed(answer, secrets)
                decoder = SseDecoder(bounds.max_event_bytes)
                items: list[StreamItem] = []
                body = _body(answer, lambda: reader.ended or failure is not None)
                async with aclosing(body), aclosing(_shared(body, decoder, share)) as groups:
                    async for events in groups:
                        found = _read_events(events, reader, items)
                        failure = failure or found
                        for number, item in _noted(joined(items), bounds):
                            yield item
                            await _pause_after(number)
                        items.clear()
                        if isinstance(failure, ValueError):
                            raise failure
                        bounds.check(len(events), kept_bytes=reader.kept_bytes, pending_bytes=decoder.pending_bytes)
            found = _read_events(decoder.finish(), reader, items)
            failure = failure or found
            if isinstance(failure, ValueError):
                # A last event that cannot be read was cut off.
                failure = None
            if failure is None:
                reader.end_of_body(items)
            for number, item in _noted(items, bounds):
                yield item
                await _pause_after(number)
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
    return ProviderStreamCut("the answer of the provider ended before its end marker")


def _noted(items: Iterable[StreamItem], bounds: AnswerBounds) -> Iterator[tuple[int, StreamItem]]:
    """Yields the items with their numbers, from 1 on, once the bounds know of them."""
    for number, item in enumerate(items, 1):
        bounds.note_item(item)
        yield number, item


async def _pause_after(number: int) -> None:
    """Lets others work after so many items of one event."""
    if not number % ITEMS_AT_ONCE:
        await asyncio.sleep(0)


async def _shared(
    body: AsyncGenerator[bytes], decoder: SseDecoder, share: LoopShare
) -> AsyncGenerator[list[tuple[bytes, bytes]]]:
    """Yields the events of the body, a few at a time, each time when the stream has its share of the loop."""
    with share.stream():
        async for chunk in body:
            for start in range(0, len(chunk), PIECE_BYTES):
                piece = chunk[start : start + PIECE_BYTES]
                try:
                    events = decoder.feed(piece)
                except SseEventTooLarge as error:
                    raise too_large_event(decoder.max_event_bytes) from error
                for first in range(0, len(events) or 1, EVENTS_AT_ONCE):
                    few = events[first : first + EVENTS_AT_ONCE]
                    cost = _cost(few, piece)
                    if not share.take(cost):
                        await share.wait(cost)
                    if cost == EVENTS_PER_TURN:
                        await asyncio.sleep(0)  # a large event: putting it together was work enough for one turn
                    yield few
            await share.rest()


def _cost(events: list[tuple[bytes, bytes]], piece: bytes) -> int:
    """Returns how many events' work a few events are, or a piece of a body that has none."""
    if events:
        return min(EVENTS_PER_TURN, max(len(events), len(events[0][1]) // _FREE_BYTES))
    return min(EVENTS_PER_TURN, 1 + len(piece) // _FREE_BYTES + piece.count(b"\n") // _FREE_LINES)


def _read_events(
    events: list[tuple[bytes, bytes]], reader: AnswerReader, items: list[StreamItem]
) -> ProviderError | ValueError | None:
    """Returns the first error before the end marker; it is not raised here, because earlier items must go out first."""
    failure: ProviderError | None = None
    for event, data in events:
        ended = reader.ended
        try:
            reader.read(event, data, items)
        except ProviderError as error:
            # Events after an error may still carry usage and reason.
            failure = failure or (None if ended else error)
        except Exception as error:  # a foreign value of any form, any depth and any range
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
    """Yields the body. Once the answer is over, yields only what arrives within `DRAIN_SECONDS` and raises no error."""
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
        yield chunk
