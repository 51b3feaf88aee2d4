"""Reads of requests."""

import asyncio
from typing import Any

import grpc
import pytest

from turnwire.api.grpc.reads import read_next


class Call:
    """A call whose request comes when the test says so."""

    def __init__(self) -> None:
        self.request = asyncio.get_running_loop().create_future()
        self.was_read = False

    async def read(self) -> Any:
        """Returns the request."""
        request = await asyncio.shield(self.request)
        self.was_read = True
        return request


async def test_a_read_goes_on_when_its_call_has_ended() -> None:
    """GRPC frees a message only when it is read."""
    call = Call()
    reading = asyncio.create_task(read_next(call))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not call.was_read
    call.request.set_result(b"")
    while not call.was_read:
        await asyncio.sleep(0)


async def test_the_error_of_a_read_reaches_its_call() -> None:
    """And nobody when its call has ended: asyncio logs none."""
    call, told = Call(), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    left, reading = (asyncio.create_task(read_next(call)) for _ in range(2))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait((left,))
    call.request.set_exception(grpc.aio.InternalError("its call has ended"))
    with pytest.raises(grpc.aio.InternalError):
        await reading
    await asyncio.sleep(0)
    del left, reading
    assert told == []
