"""Digests of named requests."""

import hashlib

from google.protobuf.message import Message


def fingerprint(method: str, request: Message) -> str:
    """Digests the content of a named request, its name left out: equal requests have equal digests, on every run."""
    request_id = request.request_id  # type: ignore[attr-defined]
    if not request_id:
        return ""
    digest = hashlib.sha256(method.encode() + b"\0")
    request.ClearField("request_id")  # instead of copying a request with large files
    try:
        digest.update(request.SerializeToString(deterministic=True))
    finally:
        request.request_id = request_id  # type: ignore[attr-defined]
    return digest.hexdigest()
