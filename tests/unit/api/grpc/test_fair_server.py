"""Calls in turns rely on parts of gRPC that it does not promise to keep; calls that never begin."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from grpc._cython import cygrpc
from structlog.testing import capture_logs

from turnwire.api.grpc import fair_server
from turnwire.api.grpc.fair_server import AT_ONCE, FairServer, fair_servers, missing_names
from turnwire.api.refusals import Refusals


def test_grpc_has_all_that_is_needed() -> None:
    """When this fails, a newer version has other names: without them calls begin in the order in which they came."""
    assert missing_names(cygrpc) == []


def test_without_a_name_grpc_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own server takes the calls, and the log says so."""
    servers = SimpleNamespace(AioServer=SimpleNamespace(is_running=None), _ServicerContext=None)
    monkeypatch.setattr(fair_server, "cygrpc", servers)
    before = servers.AioServer
    with capture_logs() as lines, fair_servers(10, Refusals()):
        assert servers.AioServer is before
    assert [line["event"] for line in lines] == ["calls_without_fair_queue"]
    assert "AioServer._request_call" in lines[0]["missing"]
    assert "AioServer.is_running" not in lines[0]["missing"]


MANY = 1_000
"""Calls of one connection that wait to begin."""


class CountingServer(FairServer):
    """A server on which calls wait that are only counted; gRPC has not started it."""

    def __init__(self) -> None:
        super().__init__(MANY, Refusals(), asyncio.get_running_loop(), None, (), (), (), None)
        self.gone = 0
        """Calls that were refused."""
        for number in range(MANY):
            self._pending.add("a" if number % 2 else "b", Call(self))

    def count_one(self) -> None:
        """Counts a call."""
        self.gone += 1

    def _refuse(self, call: Any, status: object) -> None:
        del call

    async def stop(self) -> None:
        """Ends as it does when gRPC stops."""

        async def request_call() -> None:
            raise RuntimeError

        await self._take(request_call)


class Call:
    """Tells when nobody refers to it any more."""

    def __init__(self, server: CountingServer) -> None:
        self._count = server.count_one

    def __del__(self) -> None:
        """Is counted."""
        self._count()


async def most_in_a_round(server: CountingServer, begin: Callable[[], object]) -> int:
    """Returns how many calls are gone at most between two rounds of the loop, in which all go."""
    begun = begin()
    most = before = 0
    for _ in range(MANY):
        await asyncio.sleep(0)
        most, before = max(most, server.gone - before), server.gone
    del begun
    assert server.gone == MANY
    return most


async def test_calls_that_wait_at_the_end_are_refused_a_few_at_a_time() -> None:
    """Whatever still runs has its turns between them. All that ask gRPC for calls learn of the end."""
    server = CountingServer()

    def stop() -> list[asyncio.Task[None]]:
        return [asyncio.create_task(server.stop()) for _ in range(AT_ONCE)]

    assert await most_in_a_round(server, stop) <= MANY // 10


async def test_a_call_that_cannot_wait_ends_nothing_else() -> None:
    """The task that asks gRPC for calls goes on."""
    server = CountingServer()
    calls = iter([Call(server), Call(server)])
    noted = list[Any]()

    async def request_call() -> Any:
        for call in calls:
            return call
        raise RuntimeError

    def note(call: Any) -> None:
        noted.append(call)
        raise ValueError("a bug")

    server._note = note  # type: ignore[method-assign]
    with capture_logs() as lines:
        await server._take(request_call)
    assert len(noted) == 2
    assert [line["event"] for line in lines] == ["call_not_started"] * 2
