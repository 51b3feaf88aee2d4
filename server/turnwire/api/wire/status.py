"""Domain errors as statuses: a canonical code, a message and details (AIP-193). Knows no transport."""

from datetime import timedelta

from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, status_pb2
from google.rpc import error_details_pb2 as details

from turnwire.api.wire.answers.times import duration
from turnwire.domain import errors as e

ERROR_DOMAIN = "turnwire"
"""`ErrorInfo.domain` of every error of this server."""

STATUS_CODES: dict[type[e.DomainError], int] = {
    e.Unauthenticated: code_pb2.UNAUTHENTICATED,
    e.PermissionDenied: code_pb2.PERMISSION_DENIED,
    e.InvalidRequest: code_pb2.INVALID_ARGUMENT,
    e.NotFound: code_pb2.NOT_FOUND,
    e.WrongState: code_pb2.FAILED_PRECONDITION,
    e.PositionUnavailable: code_pb2.OUT_OF_RANGE,
    e.UploadOffsetOutOfRange: code_pb2.OUT_OF_RANGE,
    e.StaleVersion: code_pb2.ABORTED,
    e.LimitReached: code_pb2.RESOURCE_EXHAUSTED,
    e.QuotaExceeded: code_pb2.RESOURCE_EXHAUSTED,
    e.SearchTooCostly: code_pb2.RESOURCE_EXHAUSTED,
    e.AnswerTooLarge: code_pb2.RESOURCE_EXHAUSTED,
    e.ProviderError: code_pb2.UNAVAILABLE,
    e.ProviderRateLimited: code_pb2.RESOURCE_EXHAUSTED,
    e.ProviderCredentialsRejected: code_pb2.FAILED_PRECONDITION,
    e.ProviderRefusedRequest: code_pb2.FAILED_PRECONDITION,
    e.ProviderContextFull: code_pb2.FAILED_PRECONDITION,
    e.StorageError: code_pb2.INTERNAL,
    e.StorageBusy: code_pb2.UNAVAILABLE,
    e.StorageFull: code_pb2.RESOURCE_EXHAUSTED,
    e.StorageCorrupt: code_pb2.DATA_LOSS,
    e.StorageSchemaTooNew: code_pb2.FAILED_PRECONDITION,
    e.ShuttingDown: code_pb2.UNAVAILABLE,
    e.SessionMoving: code_pb2.UNAVAILABLE,
    e.OutcomeUnknown: code_pb2.UNAVAILABLE,
}
"""Numbers of `google.rpc.Code`. A class that is not listed has the code of its nearest listed base."""

MAX_VIOLATIONS = 20
"""Wrong fields that one error names."""
MAX_TEXT = 200
"""Bytes of one value in an error. An error travels in the trailer, of which clients take 8 KiB as base64."""

MAX_DETAIL_BYTES = 3_000
"""Maximum size of the invalid fields of one error."""

RETRY_WHEN_UNKNOWN = timedelta(seconds=1)
"""Retry delay sent to callers where waiting helps for an unknown time."""


def status_code(error: e.DomainError) -> int:
    """Returns the status code of a domain error."""
    for base in type(error).__mro__:
        if base in STATUS_CODES:
            return STATUS_CODES[base]
    return int(code_pb2.INTERNAL)


def code_name(code: int) -> str:
    """Returns the name of a status code, such as NOT_FOUND."""
    return str(code_pb2.Code.Name(code))


def status_of(error: e.DomainError) -> status_pb2.Status:
    """Returns the whole status of a domain error: code, message, one ErrorInfo, and details by kind."""
    metadata = {key: _short(value) for key, value in error.metadata.items()}
    info = _info(error.reason, metadata)
    return _status(status_code(error), _short(error.message, 3 * MAX_TEXT), [info, *_details(error)])


def internal_status(request_id: str) -> status_pb2.Status:
    """Returns the status for an unexpected error: it contains only the id under which the error was logged."""
    info = _info("INTERNAL", {})
    request = details.RequestInfo(request_id=request_id)
    return _status(code_pb2.INTERNAL, "internal error; the server's log has more", [info, request])


def reason_of(status: status_pb2.Status) -> str:
    """Returns the reason of an error of this server or of another node; "" for an error that has none."""
    info = details.ErrorInfo()
    return next((info.reason for packed in status.details if packed.Unpack(info)), "")


def _info(reason: str, metadata: dict[str, str]) -> details.ErrorInfo:
    return details.ErrorInfo(reason=reason, domain=ERROR_DOMAIN, metadata=metadata)


def _status(code: int, message: str, parts: list[Message]) -> status_pb2.Status:
    packed = []
    for part in parts:
        packed.append(any_pb2.Any())
        packed[-1].Pack(part)
    return status_pb2.Status(code=code, message=message, details=packed)


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
            if error.retry_after is not None:
                found.append(details.RetryInfo(retry_delay=duration(error.retry_after)))
        case e.LimitReached():
            quota = details.QuotaFailure.Violation(subject=error.subject, description=_short(error.message))
            found.append(details.QuotaFailure(violations=[quota]))
        case e.QuotaExceeded():
            quota = details.QuotaFailure.Violation(
                subject=f"tenant:{_short(error.tenant)}", description=_short(error.message)
            )
            found.append(details.QuotaFailure(violations=[quota]))
            if error.retry_after is not None:
                found.append(details.RetryInfo(retry_delay=duration(error.retry_after)))
    if status_code(error) == code_pb2.UNAVAILABLE or isinstance(error, e.LimitReached | e.ProviderRateLimited):
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
