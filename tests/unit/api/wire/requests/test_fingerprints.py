"""Digests of named requests."""

import hashlib

from opencode.message.message_pb2 import FilePart, MessagePart, SendMessageRequest
from turnwire.api.wire.requests.fingerprints import fingerprint


def test_a_digest_is_of_everything_but_the_name() -> None:
    """It stays as it is from one version to the next: retries come after upgrades too."""
    request = SendMessageRequest(session_id="ses", parts=[MessagePart(file=FilePart(data=b"x" * 1000))])
    content = request.SerializeToString(deterministic=True)
    request.request_id = "name"
    assert fingerprint("send", request) == hashlib.sha256(b"send\0" + content).hexdigest()
    assert request.request_id == "name"


def test_a_request_without_a_name_has_none() -> None:
    """Nothing is hashed for it."""
    assert fingerprint("send", SendMessageRequest(session_id="ses")) == ""
