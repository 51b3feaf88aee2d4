"""Statuses as Connect and gRPC-Web write them. The details are those that gRPC sends."""

import base64
from typing import Any
from urllib.parse import quote

import msgspec
from google.protobuf import json_format
from google.rpc import code_pb2, status_pb2

_HTTP_STATUSES = {
    code_pb2.CANCELLED: 499,
    code_pb2.UNKNOWN: 500,
    code_pb2.INVALID_ARGUMENT: 400,
    code_pb2.DEADLINE_EXCEEDED: 504,
    code_pb2.NOT_FOUND: 404,
    code_pb2.ALREADY_EXISTS: 409,
    code_pb2.PERMISSION_DENIED: 403,
    code_pb2.RESOURCE_EXHAUSTED: 429,
    code_pb2.FAILED_PRECONDITION: 400,
    code_pb2.ABORTED: 409,
    code_pb2.OUT_OF_RANGE: 400,
    code_pb2.UNIMPLEMENTED: 501,
    code_pb2.INTERNAL: 500,
    code_pb2.UNAVAILABLE: 503,
    code_pb2.DATA_LOSS: 500,
    code_pb2.UNAUTHENTICATED: 401,
}
"""HTTP statuses of the Connect protocol for each code."""

CONNECT_CODES = {code: "canceled" if name == "CANCELLED" else name.lower() for name, code in code_pb2.Code.items()}
"""Names of the codes in Connect, which writes "canceled"."""

_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""Characters of a message that gRPC does not escape."""


def simple_status(code: int, message: str) -> status_pb2.Status:
    """Returns a status without details, as gRPC itself gives them for what never reaches a service."""
    return status_pb2.Status(code=code, message=message)


def http_status(code: int) -> int:
    """Returns the HTTP status of a failed Connect call with one answer."""
    return _HTTP_STATUSES.get(code, 500)


def connect_error(status: status_pb2.Status) -> dict[str, Any]:
    """Returns a status as the value that Connect writes as JSON."""
    error: dict[str, Any] = {"code": CONNECT_CODES.get(status.code, "unknown")}
    if status.message:
        error["message"] = status.message
    if status.details:
        error["details"] = [_detail(detail) for detail in status.details]
    return error


def connect_error_json(status: status_pb2.Status) -> bytes:
    """Returns the body of a failed Connect call with one answer."""
    return msgspec.json.encode(connect_error(status))


def grpc_trailers(status: status_pb2.Status | None) -> list[tuple[str, str]]:
    """Returns a status as trailers of gRPC; None is success."""
    if status is None:
        return [("grpc-status", "0")]
    trailers = [("grpc-status", str(status.code)), ("grpc-message", quote(status.message, safe=_PLAIN))]
    if status.details:
        details = base64.b64encode(status.SerializeToString()).rstrip(b"=").decode()
        trailers.append(("grpc-status-details-bin", details))
    return trailers


def _detail(detail: Any) -> dict[str, Any]:
    """Returns a detail with its bytes, and its fields for people who read it."""
    found = {
        "type": detail.TypeName(),
        "value": base64.b64encode(detail.value).rstrip(b"=").decode(),
    }
    try:
        debug = json_format.MessageToDict(detail)
    except (TypeError, ValueError):  # of a type that this process does not know
        return found
    debug.pop("@type", None)
    return {**found, "debug": debug}
