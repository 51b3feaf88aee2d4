"""Errors in the form of the OpenAI API."""

import grpc
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from turnwire_adapters.statuses import is_too_large
from turnwire_client import TurnwireError

_FORMS: dict[grpc.StatusCode, tuple[int, str]] = {
    grpc.StatusCode.INVALID_ARGUMENT: (400, "invalid_request_error"),
    grpc.StatusCode.UNAUTHENTICATED: (401, "authentication_error"),
    grpc.StatusCode.PERMISSION_DENIED: (403, "permission_error"),
    grpc.StatusCode.NOT_FOUND: (404, "invalid_request_error"),
    grpc.StatusCode.FAILED_PRECONDITION: (400, "invalid_request_error"),
    grpc.StatusCode.ABORTED: (409, "invalid_request_error"),
    grpc.StatusCode.OUT_OF_RANGE: (410, "invalid_request_error"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (429, "rate_limit_error"),
    grpc.StatusCode.UNAVAILABLE: (503, "server_error"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (503, "server_error"),
}
"""HTTP status and type of an error by the status of gRPC; all others are 500."""

_REASONS: dict[str, tuple[int, str]] = {
    "TURN_IN_PROGRESS": (409, "conversation_locked"),
    "MODEL_UNKNOWN": (400, "model_not_found"),
    "EVENTS_COMPACTED": (410, "events_compacted"),
    "QUOTA_EXCEEDED": (429, "insufficient_quota"),
}
"""HTTP status and code by the reason of Turnwire; other reasons are codes in lower case."""

_FIELDS = {
    "options.temperature": "temperature",
    "options.top_p": "top_p",
    "options.max_output_tokens": "max_output_tokens",
    "options.max_steps": "max_tool_calls",
    "options.reasoning_effort": "reasoning.effort",
    "options.tool_choice": "tool_choice",
    "options.tool_choice.tool_name": "tool_choice.name",
    "options.response_format": "text.format",
    "options.response_format.schema_json": "text.format.schema",
    "options.response_format.name": "text.format.name",
    "model.model_id": "model",
    "system": "instructions",
    "sender": "user",
    "request_id": "Idempotency-Key",
}
"""Parameters by the names of Turnwire's fields; other fields keep their names."""


class ApiError(Exception):
    """A request that is refused, or cannot be carried out."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        kind: str = "invalid_request_error",
        retry_after: float | None = None,
    ) -> None:
        """Takes what the error's fields of these names mean; `kind` is the field `type`."""
        super().__init__(message)
        self.status = status
        self.body = {"message": message, "type": kind, "param": param, "code": code}
        self.retry_after = retry_after


def not_found(what: str, named: str) -> ApiError:
    """Returns the error for something that is not there, or that the caller may not know of: the same words."""
    return ApiError(f"{what} with id '{named}' not found.", status=404, code="not_found")


def unsupported(param: str, why: str) -> ApiError:
    """Returns the error for a parameter that this server does not have."""
    return ApiError(f"Unsupported parameter: '{param}' {why}", param=param, code="unsupported_parameter")


def from_turnwire(error: TurnwireError) -> ApiError:
    """Returns the error of the API for one of Turnwire."""
    status, kind = _FORMS.get(error.code, (500, "server_error"))
    if is_too_large(error):
        status, kind = 413, "invalid_request_error"
    code: str | None = error.reason.lower() or None
    if error.reason in _REASONS:
        status, code = _REASONS[error.reason]
    message, param = error.message, None
    if error.violations:
        wrong = error.violations[0]
        field = wrong.field.removeprefix("settings.").replace(".input_schema_json", ".parameters")
        lists = {"labels": "metadata", "parts": "input"}
        param = lists.get(field.partition("[")[0]) or _FIELDS.get(field, field)
        message = f"{param}: {wrong.description}"
    after = None if error.retry_after is None else error.retry_after.total_seconds()
    if status in (429, 503) and after is None:
        after = 1.0
    return ApiError(message, status=status, param=param, code=code, kind=kind, retry_after=after)


async def answer_api_error(_: Request, error: Exception) -> JSONResponse:
    """Answers with an ApiError."""
    assert isinstance(error, ApiError)
    headers = {} if error.retry_after is None else {"retry-after": str(max(1, round(error.retry_after)))}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse({"error": error.body}, error.status, headers=headers)


async def answer_turnwire_error(request: Request, error: Exception) -> JSONResponse:
    """Answers with the form of an error of Turnwire."""
    assert isinstance(error, TurnwireError)
    return await answer_api_error(request, from_turnwire(error))


async def answer_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answers with the form of an error that Starlette or a shared function raised."""
    assert isinstance(error, HTTPException)
    message = error.detail
    if error.status_code in (404, 405):
        message = f"Turnwire does not have {request.method} {request.url.path} of the OpenAI API."
    kind = "authentication_error" if error.status_code == 401 else "invalid_request_error"
    return await answer_api_error(request, ApiError(message, status=error.status_code, kind=kind))


async def answer_failure(request: Request, _: Exception) -> JSONResponse:
    """Answers what nobody foresaw: the log has it under the id."""
    message = f"The server had an error. Request {request.state.request_id}"
    return await answer_api_error(request, ApiError(message, status=500, kind="server_error"))
