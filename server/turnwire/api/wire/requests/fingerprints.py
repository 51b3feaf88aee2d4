"""Digests of named requests."""

import hashlib

from google.protobuf.message import Message


def fingerprint(method: str, request: Message) -> str:
    """Digests the content of a named request, its name left out: equal requests have equal digests, on every run."""
    if not request.request_id:  # type: ignore[attr-defined]
        return ""
    content = type(request)()
    content.CopyFrom(request)
    content.ClearField("request_id")
    return hashlib.sha256(method.encode() + b"\0" + content.SerializeToString(deterministic=True)).hexdigest()
