"""Standard services beside the contract's: reflection and health."""

import asyncio
from pathlib import Path

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from grpc_status import rpc_status
from structlog.testing import capture_logs

from bench.attacks.wire import END_HEADERS, HEADERS, call, data_frames, frame, message, wire
from opencode.message import message_pb2
from tests.support.servers.running import Client, connect, running_server
from turnwire.api.admission.sending import SMALL_BYTES
from turnwire.telemetry import memory_monitor

REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
LONG_ANSWER = reflection_pb2.ServerReflectionRequest(file_containing_symbol="opencode.message.MessageService")
NO_WINDOW = (4).to_bytes(2, "big") + bytes(4)
"""Settings of HTTP/2: the server may send nothing on a stream."""

SERVICES = {
    "opencode.agent.AgentService",
    "opencode.event.EventService",
    "opencode.file.FileService",
    "opencode.file.UploadService",
    "opencode.message.MessageService",
    "opencode.provider.ProviderService",
    "opencode.question.QuestionService",
    "opencode.search.SearchService",
    "opencode.server.ServerService",
    "opencode.session.SessionService",
    "opencode.tool.PermissionService",
    "opencode.tool.ToolService",
    "opencode.transfer.TransferService",
    "opencode.turn.TurnService",
    "opencode.usage.UsageService",
}


async def test_reflection_lists_the_services(client: Client) -> None:
    """All of the contract, and the two standard ones."""
    stub = ServerReflectionStub(client.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = [a async for a in stub.ServerReflectionInfo(iter([request]))]
    names = {service.name for service in answer.list_services_response.service}
    assert names == SERVICES | {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


async def test_reflection_describes_a_service(client: Client) -> None:
    """The descriptor of MessageService's file comes as it was compiled."""
    stub = ServerReflectionStub(client.channel)
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol="opencode.message.MessageService")
    (answer,) = [a async for a in stub.ServerReflectionInfo(iter([request]))]
    assert message_pb2.DESCRIPTOR.serialized_pb in answer.file_descriptor_response.file_descriptor_proto


async def test_reflection_answers_each_request_of_a_stream(client: Client) -> None:
    """In order; one that is answered with an error does not end the stream."""
    asked = ("opencode.message.MessageService", "no.such.Service", "opencode.turn.TurnService")
    requests = [reflection_pb2.ServerReflectionRequest(file_containing_symbol=name) for name in asked]
    stub = ServerReflectionStub(client.channel)
    answers = [answer async for answer in stub.ServerReflectionInfo(iter(requests))]
    assert [answer.original_request for answer in answers] == requests
    assert [answer.WhichOneof("message_response") for answer in answers] == [
        "file_descriptor_response",
        "error_response",
        "file_descriptor_response",
    ]


@pytest.mark.parametrize("data", [b"\x22\x50cut", b"\x22\xd8\x08" + b"x" * 1112], ids=["broken", "long"])
@pytest.mark.parametrize("before", [0, 1])
async def test_reflection_refuses_what_is_no_request(client: Client, data: bytes, before: int) -> None:
    """With the details that other methods give, and one line in the log; also behind a request that is one."""
    asking = client.channel.stream_stream(REFLECTION, None, None)()
    with capture_logs() as lines:
        for _ in range(before):
            await asking.write(LONG_ANSWER.SerializeToString())
            await asking.read()
        await asking.write(data)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            assert not await asking.read()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    status = rpc_status.from_call(refused.value)
    assert status is not None and any(detail.Is(BadRequest.DESCRIPTOR) for detail in status.details)
    [line] = [line for line in lines if line["event"].startswith("rpc")]
    assert (line["event"], line["code"], line["reason"]) == ("rpc", "INVALID_ARGUMENT", "INVALID_REQUEST")


async def test_reflection_counts_as_a_call(tmp_path: Path) -> None:
    """Its open streams have the bound of all calls, and leave room when they end."""
    async with running_server(tmp_path, "[limits]\nmax_calls = 1\n") as server, connect(server.address) as client:
        stub = ServerReflectionStub(client.channel)
        asking = stub.ServerReflectionInfo()
        await asking.write(LONG_ANSWER)
        await asking.read()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            [answer async for answer in stub.ServerReflectionInfo(iter([LONG_ANSWER]))]
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await asking.done_writing()
        assert await asking.read() is grpc.aio.EOF
        while server.overload.calls:
            await asyncio.sleep(0.01)
        assert [answer async for answer in stub.ServerReflectionInfo(iter([LONG_ANSWER]))]


@pytest.mark.slow
@pytest.mark.parametrize("before", [0, 1])
async def test_reflection_receives_requests_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """One that does not come makes room for others, and ends when memory is short."""
    monkeypatch.setattr(memory_monitor, "CHECK_SECONDS", 3600.0)
    async with running_server(tmp_path) as server, connect(server.address) as client:
        asking = client.channel.stream_stream(REFLECTION, None, None)()
        await asking.wait_for_connection()
        for _ in range(before):
            await asking.write(LONG_ANSWER.SerializeToString())
            await asking.read()
        while server.overload.reads.count != 1:
            await asyncio.sleep(0.01)
        server.overload.note_memory(0, is_critical=True)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            assert not await asking.read()
        assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_reflection_has_a_bound_of_unread_answers(tmp_path: Path) -> None:
    """They have a place among all large answers, and give it back when their client is gone."""
    async with running_server(tmp_path) as server:
        host, _, port = server.address.rpartition(":")
        async with wire((host, int(port)), NO_WINDOW) as one:
            for stream in (1, 3):
                await one.send(frame(HEADERS, END_HEADERS, stream, call(REFLECTION)))
                await one.send(data_frames(stream, message(LONG_ANSWER.SerializeToString())))
            while server.overload.sending.bytes < 2 * SMALL_BYTES:
                await asyncio.sleep(0.01)
        while server.overload.sending.bytes:
            await asyncio.sleep(0.01)


async def test_health_is_serving(client: Client) -> None:
    """For the server as a whole and for each service."""
    stub = HealthStub(client.channel)
    for name in ("", *SERVICES):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_health_tells_that_the_server_stops(tmp_path: Path) -> None:
    """A watcher of the health service reads NOT_SERVING before the connection ends."""
    async with running_server(tmp_path) as server:
        connecting = connect(server.address)
        client = await connecting.__aenter__()
        call = HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest(service=""))
        assert (await call.read()).status == health_pb2.HealthCheckResponse.SERVING
    assert (await call.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    call.cancel()
    await connecting.__aexit__(None, None, None)
