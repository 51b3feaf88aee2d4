"""Reads of requests from gRPC."""

import asyncio
from typing import Any

from turnwire.api.admission.requests import COUNTED_BYTES
from turnwire.api.grpc.caller import Context
from turnwire.domain.errors import InvalidRequest
from turnwire.event_loop.owner import as_nobody, for_all

GONE_SECONDS = 0.2
"""How soon gRPC tells that a call whose request did not come was ended by its client, or was too large."""


class Reads:
    """Reads requests, and counts those that may take much memory: they have not come, or are large and not taken."""

    def __init__(self) -> None:
        """None is read."""
        self.count = 0

    async def one(self, context: Context) -> bytes:
        """Returns the request of a call; further ones are not looked at. Raises InvalidRequest: there is none."""
        data = await self.next(context)
        if isinstance(data, bytes):
            return data
        # also when the client has gone or gRPC has refused the request; both cancel this
        await asyncio.sleep(GONE_SECONDS)
        raise InvalidRequest.of("request", "there is none")

    async def next(self, context: Context) -> Any:
        """Returns the next message of a call, or what gRPC returns when there is none. Safe to cancel.

        gRPC frees a message only when it is read (https://github.com/grpc/grpc, `aio/grpc_aio.pyx.pxi`, 1.85), so a
        read goes on when nobody waits for it any more.
        """
        is_counted = True

        def end() -> None:
            nonlocal is_counted
            self.count -= is_counted
            is_counted = False

        def come(reading: "asyncio.Future[Any]") -> None:
            # the error of a read for which nobody waits is retrieved, so that asyncio does not log it
            if reading.cancelled() or reading.exception() is not None:
                return
            data = reading.result()
            if not isinstance(data, bytes) or len(data) < COUNTED_BYTES:
                end()

        self.count += 1
        with as_nobody():  # or it would count for as long as its connection has other work
            reading = asyncio.ensure_future(context.read())
        reading.add_done_callback(come, context=for_all())
        try:
            return await asyncio.shield(reading)
        finally:
            end()
