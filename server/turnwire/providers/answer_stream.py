"""From an open HTTP answer to the items of a step: what all APIs have in common."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Protocol

from turnwire.domain.errors import ProviderError, ProviderStreamCut, ProviderStreamFailed
from turnwire.ports.provider import StreamItem
from turnwire.providers import json_text
from turnwire.providers.errors import from_exception, from_stream
from turnwire.providers.sse import SseDecoder

DRAIN_SECONDS = 0.2
"""How long to wait for the end of the body after the API's end marker: a body read to its end lets the connection be
used again, and a server that keeps it open must not hold up the turn."""


class AnswerReader(Protocol):
    """Reads the events of one answer. Free of I/O; used once."""

    ended: bool
    """The API's end marker was read and `StepFinished` was given."""

    def read(self, event: bytes, data: bytes, items: list[StreamItem]) -> None:
        """Appends what the event says to `items`.

        Raises:
            ProviderError: the event reports an error. What was appended before stays valid.
            ValueError: the event cannot be read.
        """
        ...

    def end_of_body(self, items: list[StreamItem]) -> None:
        """Says that the body ended without the end marker.

        Appends `StepFinished` where the API lets the marker be left out, else leaves `ended` False.
        """
        ...


class OpenAnswer(Protocol):
    """What is used of the SDKs' raw streaming responses."""

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers."""
        ...

    def iter_bytes(self) -> AsyncIterator[bytes]:
        """The decompressed body as it arrives."""
        ...

    async def read(self) -> bytes:
        """The whole body."""
        ...


async def read_answer(
    request: Callable[[], AbstractAsyncContextManager[OpenAnswer]], reader: AnswerReader, secrets: tuple[str, ...]
) -> AsyncGenerator[StreamItem, None]:
    """Sends the request and yields what the reader makes of its answer.

    Closing the generator, or cancelling the task that iterates it, closes the connection at once.

    Args:
        request: Makes what sends on entering and closes the answer on leaving; called when the first item is asked for.
        reader: A fresh reader of the API's events.
        secrets: Texts that must not appear in errors.

    Raises:
        ProviderError: the call failed, the stream reported an error, or it ended too early.
    """
    try:
        async with request() as answer:
            await _refuse_unstreamed(answer, secrets)
            decoder = SseDecoder()
            items: list[StreamItem] = []
            async with aclosing(_closable(answer.iter_bytes())) as chunks:
                async for chunk in chunks:
                    failure = _read_events(decoder.feed(chunk), reader, items)
                    for item in items:
                        yield item
                    items.clear()
                    if failure is not None:
                        raise failure
                    if reader.ended:
                        await _drain(chunks)
                        return
            failure = _read_events(decoder.finish(), reader, items)
            if not reader.ended and not isinstance(failure, ProviderError):
                reader.end_of_body(items)
            for item in items:
                yield item
            if not reader.ended:
                # A last event that cannot be read is one that was cut.
                raise failure if isinstance(failure, ProviderError) else stream_cut()
    except Exception as error:
        translated = from_exception(error, secrets)
        if translated is error:
            raise
        raise translated from error


def stream_cut() -> ProviderStreamCut:
    """Returns the error for an answer without its end marker."""
    return ProviderStreamCut("the provider's answer ended before its end marker")


def _read_events(
    events: list[tuple[bytes, bytes]], reader: AnswerReader, items: list[StreamItem]
) -> ProviderError | ValueError | None:
    # The error is returned, not raised: what came before it in the same chunk must go out first.
    try:
        for event, data in events:
            reader.read(event, data, items)
            if reader.ended:
                break
    except (ProviderError, ValueError) as error:
        return error
    except (AttributeError, KeyError, TypeError) as error:
        return ValueError(f"an event has an unexpected shape: {type(error).__name__}")
    return None


async def _refuse_unstreamed(answer: OpenAnswer, secrets: tuple[str, ...]) -> None:
    # Some servers answer 200 with a JSON error, others ignore that a stream was asked for.
    if not answer.headers.get("content-type", "").startswith("application/json"):
        return
    try:
        body = json_text.decode(await answer.read())
    except ValueError:
        body = None
    if isinstance(body, dict) and (body.get("error") or "message" in body):
        raise from_stream(body, secrets)
    raise ProviderStreamFailed("the provider did not answer with a stream")


async def _closable(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async for chunk in chunks:
        yield chunk


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in chunks:
                pass
    except TimeoutError:
        pass
