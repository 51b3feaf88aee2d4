"""A watch goes on over lost connections."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import grpc
import pytest

from opencode.event.event_pb2 import WatchEventsRequest, WatchEventsResponse
from opencode.event.session_event_pb2 import SessionEvent
from tests.support.fakes.loop import settled
from turnwire.cli.chat.watch import Lost, follow


def failure(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    """Returns what a broken call raises."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="gone")


def batch(sequence: int, token: str = "") -> WatchEventsResponse:
    """Returns a batch of one event."""
    return WatchEventsResponse(events=[SessionEvent(sequence=sequence)], resume_token=token)


class Events:
    """Answers each watch with the next script: batches, and errors to raise."""

    def __init__(self, *scripts: Iterable[WatchEventsResponse | Exception]) -> None:
        """Takes the scripts."""
        self._scripts = list(scripts)
        self.asked: list[WatchEventsRequest] = []

    async def WatchEvents(self, request: WatchEventsRequest) -> AsyncIterator[WatchEventsResponse]:
        """Performs a script."""
        self.asked.append(request)
        for step in self._scripts.pop(0):
            if isinstance(step, Exception):
                raise step
            yield step


async def followed(events: Events) -> list[int | str]:
    """Returns the sequences of what is followed, and the problem of each loss."""
    found: list[int | str] = []
    async for step in follow(events, "s", "t0", pause_seconds=0):  # type: ignore[arg-type]
        found += [step.problem] if isinstance(step, Lost) else [event.sequence for event in step]
    return found


async def test_a_lost_watch_goes_on_behind_the_last_token() -> None:
    """Batches of deltas have none: the last one counts. A loss is told once, however many attempts fail."""
    gone = failure(grpc.StatusCode.UNAVAILABLE)
    events = Events(
        [batch(1, "t1"), batch(2, "t2"), batch(0), gone], [gone], [gone], [batch(3, "t3"), gone], [batch(4)]
    )
    assert await followed(events) == [1, 2, 0, "UNAVAILABLE: gone", 3, "UNAVAILABLE: gone", 4]
    assert [request.resume_token for request in events.asked] == ["t0", "t2", "t2", "t2", "t3"]
    assert {request.session_id for request in events.asked} == {"s"}


async def test_a_refused_watch_is_not_tried_again() -> None:
    """As of a session that is not there, or for a token that was revoked."""
    events = Events([batch(1, "t1"), failure(grpc.StatusCode.UNAUTHENTICATED)])
    with pytest.raises(grpc.aio.AioRpcError):
        await followed(events)
    assert len(events.asked) == 1


async def test_a_watch_without_a_place_begins_with_a_snapshot() -> None:
    """No start is set then."""
    events = Events([])
    assert [step async for step in follow(events, "s", "")] == []  # type: ignore[arg-type]
    assert events.asked[0].WhichOneof("start") is None


@pytest.mark.parametrize("steps", range(8))
async def test_a_watch_that_is_left_while_a_batch_comes_ends(steps: int) -> None:
    """At whatever step of the loop: what waits for its end would wait for ever."""
    comes = asyncio.Event()

    class OneBatch:
        async def WatchEvents(self, _: WatchEventsRequest) -> AsyncIterator[WatchEventsResponse]:
            await comes.wait()
            yield batch(1)
            await asyncio.Event().wait()

    async def read() -> None:
        async for _ in follow(OneBatch(), "s", ""):  # type: ignore[arg-type]
            pass

    reading = asyncio.create_task(read())
    await settled()
    comes.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    reading.cancel()
    await settled()
    assert reading.cancelled()
