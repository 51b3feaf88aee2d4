"""Standard services beside the contract's: reflection and health."""

from pathlib import Path

from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from opencode.message import message_pb2
from tests.support.servers.running import Client, connect, running_server

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
