"""A real server inside the test's process, on a free port, with its own database."""

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import msgspec
from google.protobuf import descriptor_pool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from opencode.agent.agent_pb2_grpc import AgentServiceStub
from opencode.event.event_pb2_grpc import EventServiceStub
from opencode.file.file_pb2_grpc import FileServiceStub
from opencode.file.upload_pb2_grpc import UploadServiceStub
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.provider.provider_pb2_grpc import ProviderServiceStub
from opencode.question.question_pb2_grpc import QuestionServiceStub
from opencode.search.search_pb2_grpc import SearchServiceStub
from opencode.server.server_pb2_grpc import ServerServiceStub
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.tool.tool_pb2_grpc import PermissionServiceStub, ToolServiceStub
from opencode.transfer.transfer_pb2_grpc import TransferServiceStub
from opencode.turn.turn_service_pb2_grpc import TurnServiceStub
from opencode.usage.usage_pb2_grpc import UsageServiceStub
from tests.support.oracles.live_conversations import check_conversations
from turnwire.app import Server, create_server
from turnwire.config import load_config
from turnwire.domain.errors import StorageError


@functools.cache
def _requests_of(stub: type) -> dict[str, type[Message]]:
    """Returns the classes of the requests of a service, by method."""
    name = f"{stub.__module__.rpartition('.')[0]}.{stub.__name__.removesuffix('Stub')}"
    methods = descriptor_pool.Default().FindServiceByName(name).methods
    return {method.name: GetMessageClass(method.input_type) for method in methods}


class _Method:
    """A method that takes a request, or the fields of one."""

    def __init__(self, call: Callable[..., Any], request: type[Message]) -> None:
        self._call = call
        self._request = request

    def __call__(
        self, request: Message | None = None, /, *, timeout: float | None = None, metadata: Any = None, **fields: Any
    ) -> Any:
        return self._call(self._request(**fields) if request is None else request, timeout=timeout, metadata=metadata)


class Client:
    """All services over one channel: `client.sessions.GetSession(session_id="ses_1")`, or with a request."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        """Takes an open channel; its owner closes it."""
        self.channel = channel
        self.messages = MessageServiceStub(channel)
        self.files = FileServiceStub(channel)
        self.uploads = UploadServiceStub(channel)
        self.sessions = SessionServiceStub(channel)
        self.turns = TurnServiceStub(channel)
        self.usage = UsageServiceStub(channel)
        self.transfer = TransferServiceStub(channel)
        self.search = SearchServiceStub(channel)
        self.events = EventServiceStub(channel)
        self.tools = ToolServiceStub(channel)
        self.permissions = PermissionServiceStub(channel)
        self.questions = QuestionServiceStub(channel)
        self.providers = ProviderServiceStub(channel)
        self.agents = AgentServiceStub(channel)
        self.server = ServerServiceStub(channel)
        for stub in vars(self).values():
            if stub is not channel:
                for name, request in _requests_of(type(stub)).items():
                    setattr(stub, name, _Method(getattr(stub, name), request))


@contextlib.asynccontextmanager
async def connect(address: str) -> AsyncIterator[Client]:
    """Opens a channel that takes answers of any size."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield Client(channel)


@contextlib.asynccontextmanager
async def running_server(
    folder: Path, toml: str = "", environ: Mapping[str, str] | None = None
) -> AsyncIterator[Server]:
    """Runs a server that is started in a folder, with the database `turnwire.db` there.

    At the end, the conversations that it has in memory are compared with those that are stored.

    Args:
        folder: Where configuration and database live; an existing database is opened.
        toml: Configuration, without `server.listen` and `storage.path`.
        environ: What the server sees as its environment, such as keys of providers.
    """
    file = folder / "turnwire.toml"
    file.write_text(toml)
    options = {"--listen": "127.0.0.1:0", "--db": str(folder / "turnwire.db")}
    with contextlib.chdir(folder):
        config = load_config(file, environ or {}, options)
    if "stuck_loop_seconds" not in toml:  # a test holds the loop, which it shares with the server, as long as it likes
        config = msgspec.structs.replace(config, log=msgspec.structs.replace(config.log, stuck_loop_seconds=0))
    async with create_server(config, environ or {}) as server:
        yield server
        if server._environment is not None and server.failure is None:
            with contextlib.suppress(StorageError):  # where a test has made the disk fail
                await check_conversations(server._environment.conversations, server._environment.store)
