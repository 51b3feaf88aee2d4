"""The current span, and what runs when tracing is off."""

import asyncio

import pytest

from turnwire.domain.errors import StorageFull
from turnwire.ports.telemetry.tracing import NO_SPAN, NO_TRACER, TracedSpan, current_span, error_type, leave_trace


class NotedSpan(TracedSpan):
    """Remembers what was done with it."""

    def __init__(self) -> None:
        self.done: list[object] = []

    def set(self, attributes: object) -> None:
        """Notes it."""
        self.done.append(attributes)

    def fail(self, error_type: str) -> None:
        """Notes it."""
        self.done.append(error_type)

    def end(self) -> None:
        """Notes it."""
        self.done.append("end")


def test_without_tracing_nothing_is_current() -> None:
    """A span that records nothing leaves the current one alone, and knows no place."""
    outer = NotedSpan()
    with outer, NO_TRACER.start("work", {"a": 1}) as span:
        assert current_span() is outer
        assert (span.is_recording, span.traceparent, span.trace_id, span.span_id) == (False, "", "", "")
        span.set({"a": 2})
        span.fail("X")
        span.end()
    assert (current_span(), span, NO_TRACER.records_content) == (NO_SPAN, NO_SPAN, False)


async def test_a_span_is_current_in_its_task_and_in_those_that_start_meanwhile() -> None:
    """Until it is left."""

    async def found() -> object:
        await asyncio.sleep(0)
        return current_span()

    async def found_outside() -> object:
        leave_trace()
        return await found()

    with NotedSpan() as outer:
        with NotedSpan() as inner:
            assert current_span() is inner
            inside, outside = asyncio.create_task(found()), asyncio.create_task(found_outside())
        assert current_span() is outer
    assert (await inside, await outside, await found()) == (inner, NO_SPAN, NO_SPAN)


@pytest.mark.parametrize(
    ("error", "noted"),
    [
        (KeyError("the secret plan"), ["KeyError", "end"]),
        (StorageFull("the secret plan"), ["STORAGE_FULL", "end"]),
        (asyncio.CancelledError(), [{"turnwire.cancelled": True}, "end"]),
    ],
)
def test_an_error_is_noted_by_a_word(error: BaseException, noted: list[object]) -> None:
    """Its message may quote a prompt. Whoever cancels has made no mistake."""
    span = NotedSpan()
    with pytest.raises(type(error)), span:
        raise error
    assert (span.done, current_span()) == (noted, NO_SPAN)


def test_the_word_of_an_error_is_its_reason() -> None:
    """Else the name of its class."""
    assert (error_type(StorageFull("x")), error_type(ValueError("x"))) == ("STORAGE_FULL", "ValueError")
