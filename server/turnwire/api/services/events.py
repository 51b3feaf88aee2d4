"""opencode.event.EventService."""

import contextlib
from collections.abc import AsyncGenerator

from opencode.event import event_pb2 as pb
from turnwire.api.services import STREAM_OPEN
from turnwire.api.wire.global_events import unmade_event
from turnwire.api.wire.requests.watches import watch_request
from turnwire.core.watches.conflated import ConflatedWatches
from turnwire.core.watches.watch import Batch, Watches
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.principal import Principal

MAX_SUBSCRIBED_SESSIONS = 1000
"""Sessions that one stream of events names."""


class EventService:
    """Method by method as the contract describes them."""

    def __init__(self, watches: Watches, conflated: ConflatedWatches) -> None:
        """Takes the two kinds of streams."""
        self._watches = watches
        self._conflated = conflated

    def WatchEvents(self, principal: Principal, request: pb.WatchEventsRequest) -> AsyncGenerator[Batch]:
        """Yields batches: joined frames are a WatchEventsResponse."""
        return self._watches.watch(principal, watch_request(request))

    async def SubscribeGlobalEvents(
        self, principal: Principal, request: pb.SubscribeGlobalEventsRequest
    ) -> AsyncGenerator[pb.GlobalEvent | Batch]:
        """Yields changes with accumulated text."""
        if len(request.session_ids) > MAX_SUBSCRIBED_SESSIONS:
            raise InvalidRequest.of(
                "session_ids",
                f"has more than {MAX_SUBSCRIBED_SESSIONS} sessions",
                "TOO_MANY",
                limitValue=str(MAX_SUBSCRIBED_SESSIONS),
            )
        async with contextlib.aclosing(self._conflated.watch(principal, frozenset(request.session_ids))) as changes:
            async for change in changes:
                event = STREAM_OPEN if change is None else unmade_event(change)
                if event is not None:
                    yield event
