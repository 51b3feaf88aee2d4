"""Reads of requests from gRPC.

gRPC frees a message only when it is read (https://github.com/grpc/grpc, `aio/grpc_aio.pyx.pxi`, 1.85). So each read is
a task, which continues when it is no longer awaited.
"""

import asyncio
from typing import Any

from turnwire.api.grpc.caller import Context
from turnwire.domain.errors import InvalidRequest

GONE_SECONDS = 0.2
"""Time within which gRPC tells that a call whose request did not come was ended by its client, or was too large."""


def read_request(context: Context) -> "asyncio.Task[bytes]":
    """Reads the request of a call; further ones are ignored. The task raises InvalidRequest: it is missing."""
    return asyncio.create_task(_request(context))


async def _request(context: Context) -> bytes:
    data: Any = await context.read()
    if isinstance(data, bytes):
        return data
    # also when the client has gone or gRPC has refused the request; both end the call
    await asyncio.sleep(GONE_SECONDS)
    raise InvalidRequest.of("request", "is missing")
