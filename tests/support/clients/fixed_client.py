"""A client that knows nothing but the fixed contract, built when the tests run.

It is compiled from the contract's own file where that is at hand, and from `tests/contract/fixed/` otherwise (a
contract test says that they agree). Its messages live in a descriptor pool of their own, so that they never meet ours:
what they cannot parse, a client in the field could not parse either.
"""

import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

ROOT = Path(__file__).parents[3]
FIXED_SOURCES = ROOT / "tests" / "contract" / "fixed"
FIXED_IMAGE = ROOT / "tests" / "contract" / "fixed_contract.binpb"
_MESSAGE_FILE = "opencode/message/message.proto"

_QUALIFIED = {"ModelSelection": "opencode.model.ModelSelection", "ToolCallState": "opencode.tool.ToolCallState"}
_IMPORTS = {"session.proto": "opencode/model/selection.proto", "tool.proto": "opencode/tool/tool.proto"}


def seed_contract() -> Path | None:
    """Returns the contract's own file: TURNWIRE_SEED_CONTRACT, or where it lies beside the project; None without it."""
    path = Path(os.environ.get("TURNWIRE_SEED_CONTRACT") or ROOT.parent / "shared" / "seed-contract" / "message.proto")
    return path if path.is_file() else None


def compilable(seed: str) -> str:
    """Returns the text of the contract's own file with its imports and foreign types by their full names.

    Raises:
        ValueError: when the text no longer names what is to be replaced.
    """
    for short, full in _IMPORTS.items():
        seed, count = re.subn(rf'import "{re.escape(short)}"', f'import "{full}"', seed)
        if count != 1:
            raise ValueError(f"the contract imports {short} {count} times")
    for short, full in _QUALIFIED.items():
        seed, count = re.subn(rf"\b(optional|repeated) {short} ", rf"\1 {full} ", seed)
        if count != 1:
            raise ValueError(f"the contract uses {short} {count} times")
    return seed


def compile_sources(*folders: Path) -> descriptor_pb2.FileDescriptorSet:
    """Returns the descriptors of all files in the folders, imports included; an earlier folder wins."""
    names = sorted({str(path.relative_to(folder)) for folder in folders for path in folder.rglob("*.proto")})
    with tempfile.TemporaryDirectory() as work:
        image = Path(work) / "image.binpb"
        includes = [f"-I{folder}" for folder in folders]
        command = [sys.executable, "-m", "grpc_tools.protoc", *includes, "--include_imports"]
        # In a process of its own: a compiler that fails inside this one leaves no message.
        subprocess.run([*command, f"--descriptor_set_out={image}", *names], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes())


def compile_seed(seed: Path) -> descriptor_pb2.FileDescriptorSet:
    """Returns the descriptors of the contract's own file together with its fixed siblings."""
    with tempfile.TemporaryDirectory() as work:
        target = Path(work) / _MESSAGE_FILE
        target.parent.mkdir(parents=True)
        target.write_text(compilable(seed.read_text()))
        return compile_sources(Path(work), FIXED_SOURCES)


@cache
def fixed_pool() -> descriptor_pool.DescriptorPool:
    """Returns a pool that holds the fixed contract alone."""
    seed = seed_contract()
    files = compile_seed(seed) if seed else compile_sources(FIXED_SOURCES)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


class FixedClient:
    """Calls a server with the fixed contract's messages and nothing else.

    Requests are keyword arguments, answers are messages of the fixed contract. Closing the channel is the caller's
    business. Every call raises grpc.aio.AioRpcError with the server's status.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def SendMessage(self, session_id: str, *texts: str, **fields: Any) -> Message:
        """Sends the texts as parts to the offline provider's echo, unless `model` names another."""
        fields.setdefault("model", {"provider": {"id": "offline"}, "model_id": "echo"})
        fields.setdefault("parts", [{"text": {"text": text}} for text in texts])
        return await self._call("opencode.message.MessageService", "SendMessage", session_id=session_id, **fields)

    async def GetMessages(self, session_id: str) -> Message:
        """Returns the MessageList of a session."""
        return await self._call("opencode.message.MessageService", "GetMessages", session_id=session_id)

    async def AbortSession(self, session_id: str) -> Message:
        """Ends what runs in a session."""
        return await self._call("opencode.message.MessageService", "AbortSession", session_id=session_id)

    async def ListSessions(self) -> Message:
        """Returns the SessionList."""
        return await self._call("opencode.session.SessionService", "ListSessions")

    async def CreateSession(self, **fields: Any) -> Message:
        """Returns the SessionInfo of a new session; takes `title`."""
        return await self._call("opencode.session.SessionService", "CreateSession", **fields)

    async def DeleteSession(self, session_id: str) -> Message:
        """Deletes a session."""
        return await self._call("opencode.session.SessionService", "DeleteSession", session_id=session_id)

    async def UpdateSessionDirectory(self, session_id: str, directory: str) -> Message:
        """Returns the SessionInfo of the moved session."""
        return await self._call(
            "opencode.session.SessionService", "UpdateSessionDirectory", session_id=session_id, directory=directory
        )

    async def GetProviders(self) -> Message:
        """Returns the ProviderList."""
        return await self._call("opencode.provider.ProviderService", "GetProviders")

    async def ListAgents(self) -> Message:
        """Returns the AgentList."""
        return await self._call("opencode.agent.AgentService", "ListAgents")

    async def RespondToPermission(self, session_id: str, permission_id: str, response: str) -> Message:
        """Answers a permission request."""
        return await self._call(
            "opencode.tool.PermissionService",
            "RespondToPermission",
            session_id=session_id,
            permission_id=permission_id,
            response=response,
        )

    def SubscribeGlobalEvents(self) -> grpc.aio.UnaryStreamCall:
        """Returns the stream of GlobalEvents, which ends when it is cancelled or the server stops."""
        path, request, answer = self._method("opencode.event.EventService", "SubscribeGlobalEvents")
        stream = self._channel.unary_stream(
            path, request_serializer=request.SerializeToString, response_deserializer=answer.FromString
        )
        return stream(request())

    async def _call(self, service: str, method: str, **fields: Any) -> Message:
        path, request, answer = self._method(service, method)
        call = self._channel.unary_unary(
            path, request_serializer=request.SerializeToString, response_deserializer=answer.FromString
        )
        return await call(request(**fields))

    @staticmethod
    def _method(service: str, method: str) -> tuple[str, type[Message], type[Message]]:
        descriptor = fixed_pool().FindServiceByName(service).FindMethodByName(method)
        request, answer = (
            message_factory.GetMessageClass(kind) for kind in (descriptor.input_type, descriptor.output_type)
        )
        return f"/{service}/{method}", request, answer
