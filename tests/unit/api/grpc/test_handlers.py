"""Work of a call's handler around the service."""

import gc
import weakref
from collections.abc import AsyncGenerator

import grpc
import pytest

from opencode.session.session_pb2 import GetSessionRequest
from tests.support.fakes.identity import KnownCallers, some_load
from turnwire.api.gate import Gate, StreamingMethod
from turnwire.api.grpc.handlers import stream_behavior
from turnwire.domain.principal import Role
from turnwire.identity.everybody import Everybody


class GoneClient:
    """A call whose client has gone without gRPC saying so yet."""

    def __init__(self) -> None:
        self.aborted = False

    def invocation_metadata(self) -> tuple[()]:
        """Nothing."""
        return ()

    def peer(self) -> str:
        """The address."""
        return "ipv4:192.0.2.1:5000"

    async def read(self) -> bytes:
        """The request, which came before it left."""
        return b""

    async def write(self, answer: bytes) -> None:
        """Fails as the pending write of a broken connection does."""
        raise grpc.aio.InternalError("execute_batch")

    def cancelled(self) -> bool:
        """Not known yet."""
        return False

    def done(self) -> bool:
        """Not known yet."""
        return False

    def set_code(self, code: object) -> None:
        """Remembers that the call failed."""
        self.aborted = True


async def test_a_client_that_leaves_in_mid_write_is_no_error_of_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    """The call counts as cancelled, without a traceback; the service's generator is closed."""
    closed = []

    async def answers(*_: object) -> AsyncGenerator[bytes]:
        try:
            yield b"1"
        finally:
            closed.append(True)

    client = GoneClient()
    method = StreamingMethod("Watch", Role.READER, bytes, answers)
    await stream_behavior(method, Gate(Everybody(), some_load()))(b"", client)  # type: ignore[arg-type]
    assert (client.aborted, closed) == (False, [True])
    assert "rpc_failed" not in capsys.readouterr().out


class RefusedCall:
    """A call with a token that is unknown."""

    def __init__(self) -> None:
        self.code: object = None

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """The token."""
        return (("authorization", "Bearer unknown"),)

    def peer(self) -> str:
        """The address."""
        return "ipv4:192.0.2.1:5000"

    def set_code(self, code: object) -> None:
        """Keeps it."""
        self.code = code

    def set_details(self, details: str) -> None:
        """Forgets it."""

    def set_trailing_metadata(self, metadata: object) -> None:
        """Forgets it."""


async def test_a_refused_call_leaves_nothing_for_the_garbage_collector() -> None:
    """A flood of them would make it stop the event loop."""

    async def answers(*_: object) -> AsyncGenerator[bytes]:
        yield b""

    method, call = StreamingMethod("Watch", Role.READER, GetSessionRequest.FromString, answers), RefusedCall()
    handle = stream_behavior(method, Gate(KnownCallers({}), some_load()))
    gone = weakref.ref(call)
    gc.disable()
    try:
        await handle(b"", call)  # type: ignore[arg-type]
        assert call.code is grpc.StatusCode.UNAUTHENTICATED
        del call
        assert gone() is None
    finally:
        gc.enable()
