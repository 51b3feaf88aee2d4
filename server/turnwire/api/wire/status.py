"""Domain errors as gRPC status codes with details (AIP-193)."""

from datetime import timedelta

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as details  # type: ignore[import-untyped]
from google.rpc import status_pb2
from grpc_status import rpc_status

from turnwire.api.wire.to_proto import duration
from turnwire.domain import errors as e

ERROR_DOMAIN = "turnwire"
"""`ErrorInfo.domain` of every error of this server."""

STATUS_CODES: dict[type[e.DomainError], grpc.StatusCode] = {
    e.InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    e.NotFound: grpc.StatusCode.NOT_FOUND,
    e.WrongState: grpc.StatusCode.FAILED_PRECONDITION,
    e.PositionUnavailable: grpc.StatusCode.OUT_OF_RANGE,
    e.StaleVersion: grpc.StatusCode.ABORTED,
    e.LimitReached: grpc.StatusCode.RESOURCE_EXHAUSTED,
    e.ProviderError: grpc.StatusCode.UNAVAILABLE,
    e.ProviderRateLimited: grpc.StatusCode.RESOURCE_EXHAUSTED,
    e.ProviderCredentialsRejected: grpc.StatusCode.FAILED_PRECONDITION,
    e.ProviderRefusedRequest: grpc.StatusCode.FAILED_PRECONDITION,
    e.ProviderContextFull: grpc.StatusCode.FAILED_PRECONDITION,
    e.StorageError: grpc.StatusCode.INTERNAL,
    e.StorageBusy: grpc.StatusCode.UNAVAILABLE,
    e.StorageFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    e.StorageCorrupt: grpc.StatusCode.DATA_LOSS,
    e.StorageSchemaTooNew: grpc.StatusCode.FAILED_PRECONDITION,
    e.ShuttingDown: grpc.StatusCode.UNAVAILABLE,
}
"""A class that is not listed has the code of its nearest listed base."""

MAX_VIOLATIONS = 20
MAX_TEXT = 200
"""Bytes of one value in an error. An error travels in the trailer, of which clients take 8 KiB as base64."""

MAX_DETAIL_BYTES = 3_000

RETRY_WHEN_UNKNOWN = timedelta(seconds=1)
"""Told to callers where waiting helps and nobody knows how long."""


def status_code(error: e.DomainError) -> grpc.StatusCode:
    """Returns the status code of a domain error."""
    for base in type(error).__mro__:
        if base in STATUS_CODES:
            return STATUS_CODES[base]
    return grpc.StatusCode.INTERNAL


def status_of(error: e.DomainError) -> grpc.Status:
    """Returns the whole status of a domain error: code, message, one ErrorInfo, and details by kind."""
    metadata = {key: _short(value) for key, value in error.metadata.items()}
    info = details.ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN, metadata=metadata)
    return _status(status_code(error), _short(error.message, 3 * MAX_TEXT), [info, *_details(error)])


def internal_status(request_id: str) -> grpc.Status:
    """Returns the status for an error that nobody foresaw: tells nothing but the id under which it was logged."""
    info = details.ErrorInfo(reason="INTERNAL", domain=ERROR_DOMAIN)
    request = details.RequestInfo(request_id=request_id)
    return _status(grpc.StatusCode.INTERNAL, "internal error; the server's log has more", [info, request])


def _status(code: grpc.StatusCode, message: str, parts: list[Message]) -> grpc.Status:
    packed = []
    for part in parts:
        packed.append(any_pb2.Any())
        packed[-1].Pack(part)
    status: grpc.Status = rpc_status.to_status(status_pb2.Status(code=code.value[0], message=message, details=packed))
    return status


def _details(error: e.DomainError) -> list[Message]:
    found: list[Message] = []
    match error:
        case e.InvalidRequest():
            found.append(_bad_request(error))
        case e.NotFound():
            found.append(
                details.ResourceInfo(resource_type=error.resource_type, resource_name=_short(error.resource_id))
            )
        case e.WrongState():
            violation = details.PreconditionFailure.Violation(
                type=error.reason, subject=_short(error.subject), description=_short(error.message)
            )
            found.append(details.PreconditionFailure(violations=[violation]))
        case e.LimitReached():
            quota = details.QuotaFailure.Violation(subject=error.subject, description=_short(error.message))
            found.append(details.QuotaFailure(violations=[quota]))
    if status_code(error) is grpc.StatusCode.UNAVAILABLE or isinstance(error, e.LimitReached | e.ProviderRateLimited):
        wait = error.retry_after or RETRY_WHEN_UNKNOWN
        found.append(details.RetryInfo(retry_delay=duration(wait)))
    return found


def _bad_request(error: e.InvalidRequest) -> details.BadRequest:
    """Returns as many violations as fit into a trailer, at least one."""
    request = details.BadRequest()
    for v in error.violations[:MAX_VIOLATIONS]:
        request.field_violations.add(field=_short(v.field), description=_short(v.description), reason=v.reason)
        if request.ByteSize() > MAX_DETAIL_BYTES:
            break
    return request


def _short(text: str, limit: int = MAX_TEXT) -> str:
    data = text.encode()
    return text if len(data) <= limit else data[:limit].decode(errors="ignore") + "…"
