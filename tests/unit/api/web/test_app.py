"""The web application: the room that all bodies share."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

from google.protobuf.wrappers_pb2 import BytesValue
from google.rpc import code_pb2

from tests.support.fakes.loop import settled
from turnwire.api.gate import CallFailed, UnaryMethod
from turnwire.api.web import app
from turnwire.api.web.console import Console
from turnwire.api.web.encoding.codecs import Route
from turnwire.api.web.encoding.statuses import simple_status
from turnwire.api.web.origins import Origins
from turnwire.domain.errors import InvalidRequest, TooManyCalls
from turnwire.domain.principal import Role

REQUEST = BytesValue(value=b"x" * 90).SerializeToString()
"""The largest one."""

CLIENT = ("192.0.2.1", 1)


class _Echo:
    """Lets every call in, and answers the request itself."""

    async def unary(self, method: UnaryMethod, receive: Any, *_: object) -> object:
        """Carries out a call, or tells that there is no room for it."""
        try:
            return method.parse(await receive())
        except InvalidRequest as error:
            raise CallFailed(simple_status(code_pb2.INVALID_ARGUMENT, error.message)) from error
        except TooManyCalls as error:
            raise CallFailed(simple_status(code_pb2.RESOURCE_EXHAUSTED, error.message)) from error


async def _status(application: app.WebApplication, is_complete: asyncio.Event) -> int:
    """Sends the largest request, of which the end comes later, and returns the status of its answer."""
    statuses: list[int] = []
    pieces = [REQUEST[:-1], REQUEST[-1:]]

    async def receive() -> dict[str, Any]:
        if len(pieces) == 1:
            await is_complete.wait()
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            statuses.append(event["status"])

    headers = [(b"host", b"localhost"), (b"content-type", b"application/proto")]
    await application({"method": "POST", "path": "/S/One", "headers": headers, "client": CLIENT}, receive, send)
    return statuses[0]


async def _health(application: app.WebApplication, path: str, verb: str = "GET") -> tuple[int, bytes]:
    """Asks for the health as a load balancer does, by a name that the server does not know."""
    events: list[MutableMapping[str, Any]] = []

    async def send(event: MutableMapping[str, Any]) -> None:
        events.append(event)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"method": verb, "path": path, "headers": [(b"host", b"10-0-0-1.pods")], "client": CLIENT}
    await application(scope, receive, send)
    return events[0]["status"], events[1]["body"]


async def test_health_tells_the_truth() -> None:
    """The server is alive all the time; it is ready between its start and its stop, while it can carry out calls."""
    problems = [""]
    origins = Origins((), checks_host=True)
    application = app.WebApplication(origins, Console(), 1, lambda: problems[-1])
    found = [await _health(application, "/readyz")]
    gate: Any = _Echo()
    application.open({}, gate)
    found.append(await _health(application, "/readyz"))
    problems.append("the database cannot be written")
    found.append(await _health(application, "/readyz"))
    found.append(await _health(application, "/healthz"))
    application.close()
    found += [await _health(application, path) for path in ("/readyz", "/healthz")]
    assert found == [
        (503, b"starting\n"),
        (200, b"ok\n"),
        (503, b"the database cannot be written\n"),
        (200, b"ok\n"),
        (503, b"stopping\n"),
        (200, b"ok\n"),
    ]
    assert await _health(application, "/readyz", "HEAD") == (503, b"")
    assert await _health(application, "/healthz/") == (404, b"ask for /healthz\n")
    assert await _health(application, "/readyz/", "HEAD") == (404, b"")
    assert (await _health(application, "/readyz", "POST"))[0] == 405


async def test_a_request_of_a_connection_that_has_ended_is_no_call() -> None:
    """Whose it was is not known, so it would count for a network of its own."""
    application, unused = app.WebApplication(Origins((), checks_host=True), Console(), 1), Any
    await application({"method": "GET", "path": "/healthz", "headers": [], "client": None}, unused, unused)


async def test_no_more_is_received_than_the_method_takes() -> None:
    """However large other requests may be: whoever asks for the server's facts needs no credential."""
    application = app.WebApplication(Origins((), checks_host=False), Console(), 2**20)
    method = UnaryMethod("S.One", Role.READER, BytesValue.FromString, None, max_request_bytes=1000)  # type: ignore[arg-type]
    gate: Any = _Echo()
    application.open({"/S/One": Route(method, method, BytesValue, only_reads=True)}, gate)
    statuses, pieces = list[int](), [bytes(600), bytes(600)]

    async def receive() -> dict[str, Any]:
        if not pieces:  # nothing of the rest is needed for the answer
            await asyncio.Event().wait()
        return {"type": "http.request", "body": pieces.pop(), "more_body": True}

    async def send(event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            statuses.append(event["status"])

    headers = [(b"host", b"localhost"), (b"content-type", b"application/proto")]
    await application({"method": "POST", "path": "/S/One", "headers": headers, "client": CLIENT}, receive, send)
    assert statuses == [400]


async def test_two_of_the_largest_requests_have_room() -> None:
    """Even where one is larger than what all bodies have by default; the third one, the newest, is refused."""
    application = app.WebApplication(Origins((), checks_host=False), Console(), len(REQUEST), max_bodies_bytes=1)
    method = UnaryMethod("S.One", Role.READER, BytesValue.FromString, None)  # type: ignore[arg-type]
    gate: Any = _Echo()
    application.open({"/S/One": Route(method, method, BytesValue, only_reads=True)}, gate)
    is_complete = asyncio.Event()
    arriving = [asyncio.create_task(_status(application, is_complete)) for _ in range(2)]
    await settled()
    assert await _status(application, is_complete) == 429
    is_complete.set()
    assert await asyncio.gather(*arriving) == [200, 200]
