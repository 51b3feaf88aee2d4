"""The server that `connectconformance` tests: the conformance service, served by the web listener of Turnwire.

The suite writes what to serve to standard input and reads the address from standard output, both as protobuf with a
length before it. The stubs of the suite's protos are on PYTHONPATH (`run.sh` makes them). One process serves one
configuration, until standard input ends.
"""

import asyncio
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from connectrpc.conformance.v1 import server_compat_pb2, service_pb2
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, status_pb2

from turnwire.api.admission.responses import WhenSent
from turnwire.api.gate import CallFailed, Outlet, Receive, StreamingMethod, UnaryMethod
from turnwire.api.registry import Service
from turnwire.api.request_sizes import SIZES
from turnwire.api.rights import LEAST_ROLE
from turnwire.api.web.caller import WebCaller
from turnwire.api.web.certificates import WebCertificates
from turnwire.api.web.encoding.deadlines import connect_timeout, grpc_timeout
from turnwire.api.web.server import WebServer, WebSettings
from turnwire.domain.errors import DomainError
from turnwire.domain.principal import ANONYMOUS, Role

SERVICE = service_pb2.DESCRIPTOR.services_by_name["ConformanceService"]


class ConformanceService:
    """Answers what a request tells it to answer. `caller` is set by the gate below."""

    caller: WebCaller

    async def Unary(self, _principal: object, request: Any) -> Message:
        """One answer or error."""
        return self._one(request, service_pb2.UnaryResponse())

    async def IdempotentUnary(self, _principal: object, request: Any) -> Message:
        """The same, also by GET."""
        return self._one(request, service_pb2.IdempotentUnaryResponse())

    async def Unimplemented(self, _principal: object, _request: Any) -> Message:
        """No answer."""
        raise CallFailed(status_pb2.Status(code=code_pb2.UNIMPLEMENTED, message="not implemented"))

    ClientStream = Unimplemented

    async def BidiStream(self, _principal: object, _request: Any) -> AsyncGenerator[Message]:
        """No answer: Turnwire's contract has no streams of requests."""
        raise CallFailed(status_pb2.Status(code=code_pb2.UNIMPLEMENTED, message="not implemented"))
        yield

    async def ServerStream(self, _principal: object, request: Any) -> AsyncGenerator[Message]:
        """All answers, then the error if there is one."""
        caller, definition = self.caller, request.response_definition
        _set_metadata(caller, definition)
        for index, data in enumerate(definition.response_data):
            await asyncio.sleep(definition.response_delay_ms / 1000)
            answer = service_pb2.ServerStreamResponse()
            answer.payload.data = data
            if index == 0:
                answer.payload.request_info.CopyFrom(_info(caller, request))
            yield answer
        if definition.HasField("error"):
            info = None if definition.response_data else _info(caller, request)
            raise CallFailed(_status(definition.error, info))

    def _one(self, request: Any, answer: Any) -> Message:
        caller, definition = self.caller, request.response_definition
        _set_metadata(caller, definition)
        if definition.WhichOneof("response") == "error":
            raise CallFailed(_status(definition.error, _info(caller, request)))
        answer.payload.data = definition.response_data
        answer.payload.request_info.CopyFrom(_info(caller, request))
        return answer


class ConformanceGate:
    """Stands in for the gate: lets everybody in, and tells the service who calls."""

    async def unary(
        self, method: UnaryMethod, receive: Receive, caller: WebCaller, when_sent: WhenSent | None = None
    ) -> Message | bytes:
        """Carries out a call."""
        request = _parsed(method, await receive())
        delay = getattr(request, "response_definition", None)
        await asyncio.sleep(getattr(delay, "response_delay_ms", 0) / 1000)
        service = ConformanceService()
        service.caller = caller
        return await getattr(service, method.name.rpartition(".")[2])(ANONYMOUS, request)

    async def stream(self, method: StreamingMethod, receive: Receive, caller: WebCaller, outlet: Outlet) -> None:
        """Carries out a call with a stream of answers."""
        request = _parsed(method, await receive())
        service = ConformanceService()
        service.caller = caller
        async for answer in getattr(service, method.name.rpartition(".")[2])(ANONYMOUS, request):
            await outlet.send(answer)

    def refused(self, code: str, cause: str, address: str) -> None:
        """Nobody reads it."""


def _parsed(method: UnaryMethod | StreamingMethod, data: bytes) -> Any:
    try:
        return method.parse(data)
    except (DecodeError, DomainError) as error:
        raise CallFailed(status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=str(error))) from None


def _set_metadata(caller: WebCaller, definition: Any) -> None:
    caller.answer_headers = [(h.name.lower(), v) for h in definition.response_headers for v in h.value]
    caller.answer_trailers = [(h.name.lower(), v) for h in definition.response_trailers for v in h.value]


def _info(caller: WebCaller, request: Message) -> Any:
    info = service_pb2.ConformancePayload.RequestInfo()
    exchange = caller.exchange
    values: dict[str, list[str]] = {}
    for name, value in exchange.scope["headers"]:
        values.setdefault(name.decode(), []).append(value.decode("latin-1"))
    for name, found in values.items():
        info.request_headers.add(name=name, value=found)
    seconds = connect_timeout(exchange.header("connect-timeout-ms"))
    if seconds is None:
        seconds = grpc_timeout(exchange.header("grpc-timeout"))
    if seconds is not None:
        info.timeout_ms = round(seconds * 1000)
    packed = any_pb2.Any()
    packed.Pack(request)
    info.requests.append(packed)
    if exchange.method == "GET":
        for name, value in parse_qsl(exchange.scope["query_string"].decode("latin-1"), keep_blank_values=True):
            info.connect_get_info.query_params.add(name=name, value=[value])
    return info


def _status(error: Any, info: Any) -> status_pb2.Status:
    details = list(error.details)
    if info is not None:
        details.append(any_pb2.Any())
        details[-1].Pack(info)
    return status_pb2.Status(code=error.code, message=error.message, details=details)


def _services() -> Iterable[Service]:
    for method in SERVICE.methods:
        LEAST_ROLE[method.full_name] = Role.WRITER  # type: ignore[index] # a table of this process alone
        SIZES[method.full_name] = None
    return (Service(SERVICE, ConformanceService()),)


def _certificates(folder: Path) -> WebCertificates:
    """Makes a certificate for this machine, with the tool that the step requires."""
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run([*command, "-days", "2", *names, *files], check=True, capture_output=True)
    return WebCertificates(folder / "cert.pem", folder / "key.pem")


async def _serve() -> None:
    length = struct.unpack(">I", sys.stdin.buffer.read(4))[0]
    asked = server_compat_pb2.ServerCompatRequest.FromString(sys.stdin.buffer.read(length))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        certificates = _certificates(folder) if asked.use_tls else None
        limit = asked.message_receive_limit or 64 * 2**20
        web = WebServer(WebSettings(limit, 1000), certificates)
        url = web.bind("127.0.0.1", 0)
        await web.start(_services(), ConformanceGate())
        answer = server_compat_pb2.ServerCompatResponse(host="127.0.0.1", port=int(url.rpartition(":")[2]))
        if asked.use_tls:
            answer.pem_cert = (folder / "cert.pem").read_bytes()
        data = answer.SerializeToString()
        sys.stdout.buffer.write(struct.pack(">I", len(data)) + data)
        sys.stdout.buffer.flush()
        await asyncio.Event().wait()  # the suite ends this process


if __name__ == "__main__":
    asyncio.run(_serve())
