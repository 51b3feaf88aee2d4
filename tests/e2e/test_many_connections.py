"""Clients with thousands of calls: those of others begin beside them."""

import asyncio
import base64
import contextlib
import gc
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2
from google.rpc.error_details_pb2 import ErrorInfo
from hpack import Decoder
from structlog.testing import capture_logs

from bench.attacks.wire import (
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    call,
    data_frames,
    frame,
    message,
)
from tests.support.servers.running import running_server
from turnwire.api.admission.fair_queue import PendingCalls
from turnwire.api.grpc import server as grpc_server
from turnwire.api.grpc.fair_server import fair_servers
from turnwire.app import Server

pytestmark = pytest.mark.slow

AGENTS = "/opencode.agent.AgentService/ListAgents"
INFO = "/opencode.server.ServerService/GetServerInfo"
CALLS = 300


def sent(server: Server, path: str, count: int, *, is_empty: bool = False) -> socket.socket:
    """Sends calls on a new connection; returns it when gRPC has them. The event loop, which is held up, has none.

    Those that are empty end without a message.
    """
    host, _, port = server.address.rpartition(":")
    one = socket.create_connection((host, int(port)))
    head, body = call(path), message(b"")
    flags = END_HEADERS | END_STREAM if is_empty else END_HEADERS
    calls = (
        frame(HEADERS, flags, at, head) + (b"" if is_empty else data_frames(at, body, end=True))
        for at in range(1, 2 * count, 2)
    )
    one.sendall(PREFACE + frame(SETTINGS, 0, 0) + b"".join(calls) + frame(PING, 0, 0, b"are they"))
    came = b""
    while b"are they" not in came:
        came += one.recv(65_536)
    return one


async def until(true: Callable[[], bool]) -> None:
    """Waits for a state."""
    while not true():
        await asyncio.sleep(0.01)


class Held:
    """Calls that come and do not begin."""

    arrivals: PendingCalls[object] | None = None
    is_released = False

    def count(self) -> int:
        """Returns how many wait."""
        return self.arrivals.count if self.arrivals is not None else 0


async def test_a_call_begins_beside_those_that_came_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection has sent hundreds in one moment, and another one has sent a call after them."""
    connections, begun = dict[int, str](), list[str]()
    adds, begins = PendingCalls.add, PendingCalls.next

    def added(arrivals: PendingCalls[Any], connection: str, call: Any) -> object:
        connections[id(call)] = connection
        return adds(arrivals, connection, call)

    def noted(arrivals: PendingCalls[Any]) -> asyncio.Future[Any]:
        future = begins(arrivals)
        future.add_done_callback(note)
        return future

    def note(done: asyncio.Future[Any]) -> None:
        if not done.exception():
            begun.append(connections[id(done.result())])

    monkeypatch.setattr(PendingCalls, "add", added)
    monkeypatch.setattr(PendingCalls, "next", noted)
    async with running_server(tmp_path) as server:
        with capture_logs() as lines, sent(server, INFO, CALLS), sent(server, AGENTS, 1):
            await until(lambda: len([line for line in lines if line["event"] == "rpc"]) == CALLS + 1)
        [last] = {one for one in begun if begun.count(one) == 1}
        assert begun.index(last) < CALLS // 4


async def test_of_too_many_calls_those_of_who_has_most_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the limit and when to come back. The last call that came is another connection's, and is answered."""
    monkeypatch.setattr(grpc_server, "fair_servers", lambda _, *rest: fair_servers(20, *rest))
    async with running_server(tmp_path) as server:
        with capture_logs() as lines, sent(server, INFO, 60) as many, sent(server, AGENTS, 1):
            await until(lambda: "opencode.agent.AgentService.ListAgents" in [line.get("method") for line in lines])
            refused = [found for found in await asyncio.to_thread(trailers, many, 60) if found["grpc-status"] != "0"]
        assert {found["grpc-status"] for found in refused} == {str(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])}
        info = info_of(refused[0])
        assert (info.metadata["limit"], info.metadata["limitValue"]) == ("limits.max_pending_calls", "20")
        assert "caller_refused" in [line["event"] for line in lines]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Lets no call begin that comes before it is released."""
    held = Held()
    begins = PendingCalls.next

    async def later(arrivals: PendingCalls[object]) -> object:
        held.arrivals = arrivals
        await until(lambda: held.is_released or arrivals.has_ended)
        return await begins(arrivals)

    monkeypatch.setattr(PendingCalls, "next", lambda self: asyncio.ensure_future(later(self)))
    return held


async def test_a_server_that_stops_answers_the_calls_that_wait(tmp_path: Path, held: Held) -> None:
    """That they may try again elsewhere, for none of them has begun."""
    with contextlib.ExitStack() as closing:
        async with running_server(tmp_path) as server:
            many = closing.enter_context(sent(server, INFO, 100))
            await until(lambda: held.count() == 100)
        ended = await asyncio.to_thread(trailers, many, 100)
    assert {found["grpc-status"] for found in ended} == {str(grpc.StatusCode.UNAVAILABLE.value[0])}
    assert {info_of(found).reason for found in ended} == {"SERVER_SHUTTING_DOWN"}


async def test_calls_of_clients_that_left_keep_no_place(tmp_path: Path, held: Held) -> None:
    """They end in their turns, others are answered beside them, and the log has nothing to tell."""
    async with running_server(tmp_path) as server:
        with capture_logs() as lines, sent(server, AGENTS, 1) as one:
            sent(server, INFO, CALLS).close()
            await until(lambda: held.count() == CALLS + 1)
            held.is_released = True
            assert [found["grpc-status"] for found in await asyncio.to_thread(trailers, one, 1)] == ["0"]
            await until(lambda: held.count() == 0)
        assert not [line for line in lines if line["log_level"] in ("warning", "error")]


@pytest.mark.parametrize("is_empty", [False, True], ids=["", "empty"])
@pytest.mark.parametrize("path", [INFO, "/grpc.health.v1.Health/Check", "/no.such.Service/Method"])
async def test_calls_that_have_ended_are_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, is_empty: bool
) -> None:
    """All of them, those that were refused too, and without a look at all objects of the process."""
    monkeypatch.setattr(grpc_server, "fair_servers", lambda _, *rest: fair_servers(20, *rest))

    def calls() -> int:
        return sum(type(one).__name__ == "RPCState" for one in gc.get_objects())

    async with running_server(tmp_path) as server:
        with sent(server, AGENTS, 1) as one:
            await asyncio.to_thread(trailers, one, 1)
        gc.collect()
        gc.disable()
        try:
            before = calls()
            with sent(server, path, 150, is_empty=is_empty) as many:
                await asyncio.to_thread(trailers, many, 150)
            await until(lambda: calls() < before + 10)
        finally:
            gc.enable()


def info_of(trailer: dict[str, str]) -> ErrorInfo:
    """Returns the facts of an error."""
    info = ErrorInfo()
    details = status_pb2.Status.FromString(base64.b64decode(trailer["grpc-status-details-bin"] + "=="))
    assert details.details[0].Unpack(info)
    return info


def trailers(connection: socket.socket, count: int) -> list[dict[str, str]]:
    """Returns how so many calls of a connection have ended."""
    decoder, found, buffer = Decoder(), list[dict[str, str]](), b""
    while len(found) < count:
        came = connection.recv(65_536)
        assert came, "the connection was closed"
        buffer += came
        while len(buffer) >= 9 and len(buffer) >= (end := 9 + int.from_bytes(buffer[:3], "big")):
            if buffer[3] == HEADERS:
                fields = {str(name): str(value) for name, value in decoder.decode(buffer[9:end])}
                found += [fields] if "grpc-status" in fields else []
            buffer = buffer[end:]
    return found
