"""Bytes from browsers and proxies: bodies in envelopes, compressed or not."""

import asyncio
import gzip
from collections.abc import Iterable, MutableMapping
from typing import Any

from structlog.testing import capture_logs

from opencode.event.event_pb2 import DESCRIPTOR as EVENTS
from opencode.message.message_pb2 import DESCRIPTOR, SendMessageRequest
from tests.support.fakes.identity import KnownCallers, some_load
from tests.support.fuzzing.targets import Target
from tests.support.fuzzing.targets.running import run
from turnwire.api.gate import Gate
from turnwire.api.registry import Service
from turnwire.api.web.app import WebApplication
from turnwire.api.web.console import Console
from turnwire.api.web.encoding.codecs import routes_of
from turnwire.api.web.encoding.envelopes import envelope
from turnwire.api.web.exchange import Scope
from turnwire.api.web.origins import Origins

MAX_MESSAGE_BYTES = 20_000

_TYPES = (
    *("application/proto", "application/json", "application/connect+proto", "application/connect+json"),
    *("application/grpc-web+proto", "application/grpc-web-text", "application/grpc-web+json", "text/plain"),
)
_ENCODINGS = ("", "gzip", "identity", "br")
_PATHS = (
    *("/opencode.message.MessageService/SendMessage", "/opencode.message.MessageService/GetMessages"),
    *("/opencode.message.MessageService/StreamMessage", "/opencode.event.EventService/WatchEvents", "/", "/a.b/c"),
)


class _Anything:
    """Carries out all methods of a service."""

    def __getattr__(self, name: str) -> object:
        return self._stream if name in ("StreamMessage", "WatchEvents", "SubscribeGlobalEvents") else self._answer

    async def _answer(self, _principal: object, request: Any) -> bytes:
        return bytes(request.SerializeToString())[:0]

    async def _stream(self, _principal: object, _request: Any) -> Any:
        yield b""


def _application() -> WebApplication:
    application = WebApplication(Origins((), checks_host=True), Console(), MAX_MESSAGE_BYTES)
    services = [
        Service(DESCRIPTOR.services_by_name["MessageService"], _Anything()),
        Service(EVENTS.services_by_name["EventService"], _Anything()),
    ]
    application.open(routes_of(services), Gate(KnownCallers({}), some_load()))
    return application


def check_body(data: bytes) -> None:
    """The first four bytes choose method, type, compression and verb; every body is answered once, and not with 500."""
    head, body = data[:4].ljust(4, b"\0"), data[4:]
    with capture_logs() as logs:
        statuses = run(_answered(head, body))
    assert len(statuses) == 1 and statuses[0] != 500, (statuses, [line.get("exc_info", line) for line in logs])


async def _answered(head: bytes, body: bytes) -> list[int]:
    headers = [(b"host", b"localhost"), (b"content-type", _TYPES[head[1] % len(_TYPES)].encode())]
    if encoding := _ENCODINGS[head[2] % len(_ENCODINGS)]:
        headers += [(name, encoding.encode()) for name in (b"content-encoding", b"connect-content-encoding")]
        headers.append((b"grpc-encoding", encoding.encode()))
    if head[2] & 64:
        headers += [(b"connect-timeout-ms", body[:12]), (b"grpc-timeout", body[:9]), (b"accept-encoding", body[:20])]
    verb = "GET" if head[3] & 1 else "POST"
    scope: Scope = {
        "type": "http",
        "method": verb,
        "path": _PATHS[head[0] % len(_PATHS)],
        "query_string": body if verb == "GET" else b"",
        "headers": headers,
        "client": ("192.0.2.1", 1),
        "state": {},
    }
    events = [{"type": "http.request", "body": body, "more_body": False}]
    statuses: list[int] = []

    async def receive() -> MutableMapping[str, Any]:
        if events:
            return events.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            statuses.append(event["status"])

    await _application()(scope, receive, send)
    return statuses


def _bodies() -> Iterable[bytes]:
    message = SendMessageRequest(session_id="ses_1").SerializeToString()
    yield bytes((0, 0, 0, 0)) + message
    yield bytes((0, 1, 0, 0)) + b'{"sessionId":"ses_1","parts":[{"text":{"text":"hi"}}]}'
    yield bytes((0, 0, 1, 0)) + gzip.compress(message, mtime=0)
    yield bytes((2, 2, 1, 0)) + envelope(1, gzip.compress(message, mtime=0))
    yield bytes((3, 4, 0, 0)) + envelope(0, b"")
    yield bytes((0, 5, 0, 0)) + b"AAAAAAcKBXNlc18x"
    yield bytes((1, 0, 0, 1)) + b"connect=v1&encoding=json&message=%7B%7D&base64=0"
    yield bytes((1, 0, 64, 0)) + b"100"


TARGETS = {"web_body": Target(check_body, _bodies)}
