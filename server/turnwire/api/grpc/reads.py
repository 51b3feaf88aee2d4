"""Reads of requests from gRPC."""

import asyncio
from typing import Any

from turnwire.api.grpc.caller import Context
from turnwire.domain.errors import InvalidRequest

GONE_SECONDS = 0.2
"""How soon gRPC tells that a call whose request did not come was ended by its client, or was too large."""


async def read_request(context: Context) -> bytes:
    """Returns the request of a call; further ones are not looked at. Raises InvalidRequest: there is none."""
    data = await read_next(context)
    if isinstance(data, bytes):
        return data
    # also when the client has gone or gRPC has refused the request; both cancel this
    await asyncio.sleep(GONE_SECONDS)
    raise InvalidRequest.of("request", "there is none")


async def read_next(context: Context) -> Any:
    """Returns the next message of a call, or what gRPC returns when there is none. Safe to cancel.

    gRPC frees a message only when it is read (https://github.com/grpc/grpc, `aio/grpc_aio.pyx.pxi`, 1.85), so a read
    goes on when nobody waits for it any more.
    """
    reading = asyncio.ensure_future(context.read())
    reading.add_done_callback(_retrieve)
    return await asyncio.shield(reading)


def _retrieve(reading: "asyncio.Future[Any]") -> None:
    """Takes the error of a read for which nobody waits any more, so that asyncio does not log it."""
    if not reading.cancelled():
        reading.exception()
