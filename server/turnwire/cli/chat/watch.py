"""Follows the events of a session over lost connections."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from opencode.event.event_pb2 import WatchEventsRequest
from opencode.event.session_event_pb2 import SessionEvent
from turnwire.cli.connection import describe

if TYPE_CHECKING:
    from opencode.event.event_pb2_grpc import EventServiceAsyncStub

SILENCE_SECONDS = 40.0
"""The server sends a heartbeat every 15 seconds: after two that did not come, the connection is dead."""

MAX_PAUSE_SECONDS = 5.0

_TRANSIENT = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)


@dataclass(frozen=True)
class Lost:
    """The connection was lost; the watch tries again."""

    problem: str


async def follow(
    events: "EventServiceAsyncStub", session_id: str, token: str, *, pause_seconds: float = 0.25
) -> AsyncIterator[Sequence[SessionEvent] | Lost]:
    """Yields the batches of a watch, once each, and `Lost` when the connection breaks, once for each time.

    Args:
        events: The service, on an asyncio channel.
        session_id: The session.
        token: The place behind which to begin, a resume token; "" for a snapshot and live events.
        pause_seconds: Before the first attempt to connect again; doubled up to `MAX_PAUSE_SECONDS`.

    Raises:
        grpc.aio.AioRpcError: the watch is refused, so that trying again is of no use.
    """
    pause, lost = pause_seconds, False
    while True:
        request = WatchEventsRequest(session_id=session_id)
        if token:
            request.resume_token = token
        batches = aiter(events.WatchEvents(request))
        try:
            while True:
                async with asyncio.timeout(SILENCE_SECONDS):
                    batch = await anext(batches, None)
                if batch is None:
                    return
                token = batch.resume_token or token
                pause, lost = pause_seconds, False
                yield batch.events
        except TimeoutError:
            problem = f"nothing came for {SILENCE_SECONDS:.0f} seconds"
        except grpc.aio.AioRpcError as error:
            if error.code() not in _TRANSIENT:
                raise
            problem = describe(error)
        if not lost:
            lost = True
            yield Lost(problem)
        await asyncio.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)
