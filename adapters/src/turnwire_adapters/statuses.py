"""Statuses of HTTP for errors of Turnwire, where an adapter's own system says nothing else."""

from grpc import StatusCode

from turnwire_client import TurnwireError

_STATUSES = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ALREADY_EXISTS: 409,
    StatusCode.FAILED_PRECONDITION: 409,
    StatusCode.ABORTED: 409,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}


def is_too_large(error: TurnwireError) -> bool:
    """Returns whether a request was larger than the server takes: gRPC says so with this status and no reason."""
    return error.code is StatusCode.RESOURCE_EXHAUSTED and not error.reason


def status_of(error: TurnwireError) -> int:
    """Returns the status for an error."""
    if is_too_large(error):
        return 413
    return _STATUSES.get(error.code, 500)


def retry_after(error: TurnwireError) -> dict[str, str]:
    """Returns the header that says when to try again; {} when the server does not say."""
    if error.retry_after is None:
        return {}
    return {"retry-after": str(max(1, round(error.retry_after.total_seconds())))}
