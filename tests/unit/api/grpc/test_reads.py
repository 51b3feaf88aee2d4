"""Reads of requests."""

import asyncio
from typing import Any

import grpc
import pytest

from turnwire.api.admission.requests import COUNTED_BYTES
from turnwire.api.grpc.reads import Reads


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
    """GRPC frees a message only when it is read. An error of such a read is told to nobody."""
    reads, call = Reads(), Call()
    reading = asyncio.create_task(reads.next(call))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert (reads.count, call.was_read) == (0, False)
    call.request.set_result(b"")
    while not call.was_read:
        await asyncio.sleep(0)


@pytest.mark.parametrize(("size", "counted"), [(0, 0), (COUNTED_BYTES - 1, 0), (COUNTED_BYTES, 1)])
async def test_what_may_be_large_counts(size: int, counted: int) -> None:
    """A small request until it has come, had its call a turn since or not; a large one until it is taken."""
    reads, call, seen = Reads(), Call(), list[int]()

    async def one() -> bytes:
        data: bytes = await reads.next(call)  # type: ignore[arg-type]
        return data

    reading = asyncio.create_task(one())
    await asyncio.sleep(0)
    assert reads.count == 1
    call.request.set_result(b"x" * size)
    while not reading.done():
        seen.append(reads.count)
        await asyncio.sleep(0)
    assert seen[-1] == counted
    assert (len(await reading), reads.count) == (size, 0)


async def test_a_read_that_fails_counts_no_longer() -> None:
    """Its error reaches its call."""
    reads, call = Reads(), Call()
    call.request.set_exception(grpc.aio.InternalError("its call has ended"))
    with pytest.raises(grpc.aio.InternalError):
        await reads.next(call)  # type: ignore[arg-type]
    assert reads.count == 0
