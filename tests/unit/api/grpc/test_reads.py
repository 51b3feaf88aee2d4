"""Reads of requests."""

import asyncio
from typing import Any

import pytest

from turnwire.api.grpc import handlers
from turnwire.api.grpc.handlers import read_request
from turnwire.domain.errors import InvalidRequest


class Call:
    """A call with a request."""

    def __init__(self, request: object) -> None:
        self._request = request

    async def read(self) -> Any:
        """Returns the request."""
        await asyncio.sleep(0)
        return self._request


async def test_the_request_of_a_call_is_read() -> None:
    """By a task of its own, which nobody needs to wait for."""
    reading = read_request(Call(b"x"))  # type: ignore[arg-type]
    while not reading.done():
        await asyncio.sleep(0)
    assert reading.result() == b"x"


async def test_a_call_without_a_request_has_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where gRPC has not told meanwhile that its client has left."""
    monkeypatch.setattr(handlers, "GONE_SECONDS", 0.0)
    with pytest.raises(InvalidRequest):
        await read_request(Call(object()))  # type: ignore[arg-type]
