"""Exceptions of the client.

TurnwireError
├── InvalidArgumentError        a field is wrong: `violations` names each
├── UnauthenticatedError        the token is missing or not valid
├── PermissionDeniedError       the caller's role does not allow it
├── NotFoundError               no such session, message, turn …
├── FailedPreconditionError     it cannot be done now: `reason` says why
├── AbortedError                somebody else changed it meanwhile
├── OutOfRangeError             a place that is not there, or no longer
├── ResourceExhaustedError      a limit or a quota: `retry_after` when waiting helps
├── UnavailableError            no server answers, or it is about to stop
├── DeadlineExceededError       it took longer than the time that it was given
├── DataLossError, InternalError, UnimplementedError, UnknownError
└── TurnFailedError             a turn ended with a failure: the message is stored, its answer is not complete
ClientClosedError               a call of a client that is closed
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from opencode.message.content_pb2 import Failure
from opencode.turn.turn_pb2 import Turn

_DETAILS_KEY = "grpc-status-details-bin"
"""Where gRPC puts a google.rpc.Status with the details of an error."""

_MAX_DETAILS = 32
"""Details that are read of one error; servers send a handful."""


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that is wrong."""

    field: str
    """Its path, such as `parts[0].file.url`."""
    description: str
    """Explanation for people."""
    reason: str = ""
    """A stable word; "" when there is none."""


class TurnwireError(Exception):
    """A call or a turn that failed."""

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        violations: tuple[FieldViolation, ...] = (),
        retry_after: timedelta | None = None,
        server_request_id: str = "",
    ) -> None:
        """Takes what the attributes of these names mean."""
        super().__init__(message)
        self.message = message
        """A sentence for people. It may change; compare `reason`."""
        self.code = code
        """The status of gRPC."""
        self.reason = reason
        """A stable upper-case word, the name of an `opencode.error.ErrorReason`; "" for errors of gRPC itself."""
        self.metadata = dict(metadata or {})
        """Facts for programs, by lowerCamelCase key."""
        self.violations = violations
        """Every field that is wrong."""
        self.retry_after = retry_after
        """Time to wait before another try; None when the server does not say so."""
        self.server_request_id = server_request_id
        """The id under which the server's log has more; "" for none."""

    def __str__(self) -> str:
        """Returns one line: the reason or the status, and the message."""
        return f"{self.reason or self.code.name}: {self.message}"


class InvalidArgumentError(TurnwireError):
    """A field of the request is wrong."""


class UnauthenticatedError(TurnwireError):
    """The credentials are missing or not valid."""


class PermissionDeniedError(TurnwireError):
    """The caller's role does not allow the call."""


class NotFoundError(TurnwireError):
    """There is no such thing, or the caller may not know of it."""


class FailedPreconditionError(TurnwireError):
    """It cannot be done now."""


class AbortedError(TurnwireError):
    """Somebody else changed it meanwhile."""


class OutOfRangeError(TurnwireError):
    """A place that is not there, or no longer."""


class ResourceExhaustedError(TurnwireError):
    """A limit or a quota is reached."""


class UnavailableError(TurnwireError):
    """No server answers, or it is about to stop."""


class DeadlineExceededError(TurnwireError):
    """The call took longer than the time that it was given."""


class DataLossError(TurnwireError):
    """Stored data is damaged."""


class InternalError(TurnwireError):
    """The server failed."""


class UnimplementedError(TurnwireError):
    """The server does not have the method: it is older than the client."""


class UnknownError(TurnwireError):
    """A status that has no class here."""


class TurnFailedError(TurnwireError):
    """A turn ended with a failure. The message is stored; what came of the answer is kept."""

    def __init__(self, turn: Turn) -> None:
        """Takes a turn that has ended with a failure."""
        failure = turn.failure
        super().__init__(
            failure.message, reason=failure.reason, metadata=failure.metadata, retry_after=_retry_after(failure)
        )
        self.turn = turn
        """The turn: why it ended and what it used."""


class ClientClosedError(RuntimeError):
    """A call of a client that is closed, or that was never opened."""


_CLASSES: Mapping[grpc.StatusCode, type[TurnwireError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.OUT_OF_RANGE: OutOfRangeError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.DATA_LOSS: DataLossError,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.UNIMPLEMENTED: UnimplementedError,
}


def error_of(error: grpc.aio.AioRpcError) -> TurnwireError:
    """Returns the exception for a call that failed. Details that cannot be read are left out."""
    code = error.code()
    facts: dict[str, Any] = {}
    for detail in _details(error):
        match detail:
            case error_details_pb2.ErrorInfo():
                facts |= {"reason": detail.reason, "metadata": dict(detail.metadata)}
            case error_details_pb2.BadRequest():
                facts["violations"] = tuple(
                    FieldViolation(wrong.field, wrong.description, wrong.reason) for wrong in detail.field_violations
                )
            case error_details_pb2.RetryInfo():
                facts["retry_after"] = detail.retry_delay.ToTimedelta()
            case error_details_pb2.RequestInfo():
                facts["server_request_id"] = detail.request_id
    return _CLASSES.get(code, UnknownError)(error.details() or code.name, code=code, **facts)


def _details(error: grpc.aio.AioRpcError) -> list[Any]:
    """Returns the details of an error that are of a known kind."""
    found: list[Any] = []
    metadata: Any = error.trailing_metadata()
    for key, value in metadata or ():
        if key != _DETAILS_KEY or not isinstance(value, bytes):
            continue
        try:
            status = status_pb2.Status.FromString(value)
            for packed in status.details[:_MAX_DETAILS]:
                kind = getattr(error_details_pb2, packed.type_url.rpartition(".")[2], None)
                if isinstance(kind, type):
                    detail = kind()
                    packed.Unpack(detail)
                    found.append(detail)
        except DecodeError:
            continue
    return found


def _retry_after(failure: Failure) -> timedelta | None:
    return failure.retry_after.ToTimedelta() if failure.HasField("retry_after") else None
