"""What every call shares, whichever listener received it: the principal, the log line, and errors as statuses.

Independent of transports. A listener parses the request, calls `Gate.unary` or `Gate.stream`, and writes answers or the
status of a `CallFailed` in its own form.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any, Protocol, TypeVar

import structlog
from google.protobuf.message import Message
from google.rpc import status_pb2

from turnwire.api.services.opening import STREAM_OPEN
from turnwire.api.wire.status import code_name, internal_status, status_of
from turnwire.domain.errors import DomainError
from turnwire.domain.ids import new_id
from turnwire.domain.principal import Principal

Answer = TypeVar("Answer", bound=Message | bytes)

log = structlog.get_logger()


class CallFailed(Exception):
    """A call ended with an error, which is already logged."""

    def __init__(self, status: status_pb2.Status) -> None:
        """Takes the status for the caller."""
        super().__init__(status.message)
        self.status = status


class CallerGone(Exception):
    """The caller of a stream is no longer reading."""


class Outlet(Protocol):
    """Receives the answers of one stream. `send` sets the pace of the stream."""

    async def open(self) -> None:
        """Confirms to the caller that the stream has begun. Raises CallerGone."""
        ...

    async def send(self, answer: Message | bytes) -> None:
        """Sends one answer and returns when there is room for the next. Raises CallerGone."""
        ...


class Gate:
    """Runs every call. All listeners share one gate; it keeps no state of a call."""

    def __init__(self, principal: Principal) -> None:
        """Takes the principal of every call: callers are not authenticated yet."""
        self._principal = principal

    async def unary(
        self, method: str, implementation: Callable[[Principal, Any], Awaitable[Answer]], request: Any
    ) -> Answer:
        """Carries out a call and returns its one answer. Cancelling this cancels the implementation.

        Args:
            method: Full name, such as `opencode.message.MessageService.SendMessage`.
            implementation: The service's method.
            request: The parsed request.

        Raises:
            CallFailed: the call failed for any reason.
        """
        call = _Call(method, request)
        with call.log_outcome():
            answer = await implementation(self._principal, request)
            call.note_session(answer)
        return answer

    async def stream(
        self,
        method: str,
        implementation: Callable[[Principal, Any], AsyncGenerator[Message | bytes]],
        request: Any,
        outlet: Outlet,
    ) -> None:
        """Carries out a call with a stream of answers; returns when the stream has ended or its caller is gone.

        Cancelling this cancels the implementation.

        Args:
            method: As in `unary`.
            implementation: The service's method; its generator is always closed.
            request: The parsed request.
            outlet: Receives the answers.

        Raises:
            CallFailed: the implementation or the outlet failed for any reason.
        """
        call = _Call(method, request)
        with call.log_outcome():
            async with contextlib.aclosing(implementation(self._principal, request)) as answers:
                async for answer in answers:
                    if answer is STREAM_OPEN:
                        await outlet.open()
                    else:
                        call.note_session(answer)
                        await outlet.send(answer)


class _Call:
    """One call, for its log line and its errors."""

    def __init__(self, method: str, request: Any) -> None:
        self._method = method
        self._session_id = ""
        self._started = time.perf_counter()
        self.note_session(request)

    def note_session(self, value: Any) -> None:
        """Takes the session from a request or an answer, unless an earlier one named it.

        The request of StreamMessage has it in `message`, the first answer in `accepted`.
        """
        if not self._session_id and not isinstance(value, bytes):
            places = (value, getattr(value, "message", None), getattr(value, "accepted", None))
            self._session_id = next(filter(None, (getattr(place, "session_id", "") for place in places)), "")

    @contextlib.contextmanager
    def log_outcome(self) -> Iterator[None]:
        """Writes one log line when the body ends in any way, and turns errors into CallFailed.

        A caller that is gone is not an error.
        """
        try:
            yield
        except CallerGone:
            self._log("CANCELLED")
        except DomainError as error:
            status = status_of(error)
            self._log(code_name(status.code), error.reason)
            raise CallFailed(status) from error
        except Exception as error:
            request_id = new_id("rpc")
            log.error("rpc_failed", method=self._method, request_id=request_id, exc_info=error)
            raise CallFailed(internal_status(request_id)) from error
        except BaseException:
            self._log("CANCELLED")
            raise
        else:
            self._log("OK")

    def _log(self, code: str, reason: str = "") -> None:
        """Writes the log line, without any content of the request."""
        log.info(
            "rpc",
            method=self._method,
            code=code,
            reason=reason,
            milliseconds=round((time.perf_counter() - self._started) * 1000, 1),
            # callers can send any text here
            session_id=self._session_id[:64] if self._session_id.isprintable() else "",
            request_id="",
        )
