"""What a call's handler does around the service."""

from collections.abc import AsyncGenerator

import grpc
import pytest

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

    async def write(self, answer: bytes) -> None:
        """Fails as the pending write of a broken connection does."""
        raise grpc.aio.InternalError("execute_batch")

    def cancelled(self) -> bool:
        """Not known yet."""
        return False

    def done(self) -> bool:
        """Not known yet."""
        return False

    async def abort_with_status(self, status: object) -> None:
        """Remembers it."""
        self.aborted = True


async def test_a_client_that_leaves_in_mid_write_is_no_error_of_the_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The call counts as cancelled, without a traceback; the service's generator is closed."""
    closed = []

    async def answers(*_: object) -> AsyncGenerator[bytes]:
        try:
            yield b"1"
        finally:
            closed.append(True)

    client = GoneClient()
    method = StreamingMethod("Watch", Role.READER, bytes, answers)
    await stream_behavior(method, Gate(Everybody()))(b"", client)  # type: ignore[arg-type]
    assert (client.aborted, closed) == (False, [True])
    assert "rpc_failed" not in capsys.readouterr().out
