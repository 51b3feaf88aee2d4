"""The edge of all HTTP applications: access, limits, one log line for each request, and streams of events.

`Edge` stands before all applications; in them, `bearer_token` and `json_object` read requests, `event_stream` answers.
"""

import contextlib
import ipaddress
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

import structlog
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnwire_adapters.forms import WrongJson, an_object, read_json
from turnwire_adapters.upstream import Upstream
from turnwire_client import Client

PING_SECONDS = 15
"""Between comments in a stream in which nothing happens: proxies end silent connections after about a minute."""

REQUEST_ID = "x-request-id"
"""The header of each answer by which the log has its request. An application finds it in `request.state.request_id`."""

CLIENT_LEFT = 499
"""In the log, the status of a request whose client went before it had sent all."""

log = structlog.get_logger("turnwire_adapters")


class Edge:
    """An ASGI application before another one: refuses pages of elsewhere and bodies that are too large, and logs.

    A browser names the page that calls in `origin`. Pages of the listener's own origin may call, and so may those of
    `allowed_origins`. A page of elsewhere can have its own name resolve to this machine, so without TLS the name that
    was called (`host`) must be an address, `localhost`, or one of `allowed_hosts`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        allowed_origins: Collection[str] = (),
        allowed_hosts: Collection[str] = (),
        checks_host: bool = True,
        max_body_bytes: int = 24 << 20,
    ) -> None:
        """Args:
        app: What comes behind.
        allowed_origins: Such as https://app.example; "*" is all of them.
        allowed_hosts: Names of the listener, such as turnwire.example; "*" is all of them.
        checks_host: Whether the called name matters; with TLS the certificate has settled it.
        max_body_bytes: Of one request.
        """
        self._app = app
        self._origins = frozenset(origin.lower() for origin in allowed_origins)
        names = (*allowed_hosts, *(urlsplit(origin).hostname or "" for origin in allowed_origins))
        self._hosts = frozenset(name.lower() for name in names) - {""}
        self._checks_host = checks_host and not {"*"} & (self._hosts | self._origins)
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; passes what is no HTTP request through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, request, status = time.monotonic(), Request(scope), 0
        request_id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (REQUEST_ID.encode(), request_id.encode())]
            await send(message)

        try:
            if problem := self._problem(request):
                await JSONResponse({"error": {"message": problem, "code": "forbidden"}}, 403)(scope, receive, answer)
            else:
                await self._app(scope, self._bounded(request, receive), answer)
        except ClientDisconnect:
            status = status or CLIENT_LEFT
        except Exception:
            log.exception("request failed", request_id=request_id)  # the adapter has answered, in its own form
            if not status:
                raise
        finally:
            log.info(
                "request",
                method=request.method,
                path=request.url.path,
                status=status,
                milliseconds=round((time.monotonic() - began) * 1000),
                request_id=request_id,
            )

    def _problem(self, request: Request) -> str:
        """Returns why a page may not call; "" if it may, or if no page calls."""
        host = request.headers.get("host", "").lower()
        if self._checks_host and not self._is_own(host):
            return f"this listener is not reached as {host!r:.100}: add the name to --allowed-hosts"
        origin = request.headers.get("origin", "").lower()
        if not origin:
            if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and "*" not in self._origins:
                return "pages of other sites may not call without telling their origin"
            return ""
        with contextlib.suppress(ValueError):  # it is no address
            if origin in self._origins or "*" in self._origins or urlsplit(origin).netloc == host:
                return ""
        return f"pages of {origin!r:.100} may not call: add the origin to --allowed-origins"

    def _is_own(self, host: str) -> bool:
        """Returns whether nobody else can have a called name resolve to this machine, or it is a given one."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
            if name == "localhost" or name.endswith(".localhost") or name in self._hosts:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _bounded(self, request: Request, receive: Receive) -> Receive:
        """Returns a `receive` that raises HTTPException (413) when the body is too large."""
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > self._max_body_bytes:
                    raise HTTPException(413, f"the request has more than {self._max_body_bytes} bytes")
            return message

        return bounded


def bearer_token(request: Request) -> str:
    """Returns the token of the header `authorization`; "" for none. It goes to Turnwire as it is.

    Raises:
        HTTPException: 401, it is no bearer token.
    """
    given = request.headers.get("authorization", "")
    scheme, _, token = given.partition(" ")
    token = token.strip()
    if not given:
        return ""
    if scheme.lower() != "bearer" or not token.isascii() or not token.isprintable():
        raise HTTPException(401, "authorization must be `Bearer TOKEN`")
    return token


async def json_object(request: Request) -> dict[str, Any]:
    """Returns the JSON object in a request's body; {} for an empty body.

    Raises:
        HTTPException: 400, it is not JSON or no object; 413, it is too large.
    """
    body = await request.body()
    if not body.strip():
        return {}
    try:
        return an_object(read_json(body, "the body"), "the body")
    except WrongJson as error:
        raise HTTPException(400, f"{error.place} {error.description}") from None


def answering(
    upstream: Upstream, handler: Callable[[Request, Client], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """Returns an endpoint that has a handler answer with the caller's own client."""

    async def answer(request: Request) -> Response:
        async with upstream.client(bearer_token(request)) as client:
            return await handler(request, client)

    return answer


def event_stream(
    events: AsyncIterator[ServerSentEvent], *, headers: Mapping[str, str] | None = None
) -> EventSourceResponse:
    """Returns an answer of server-sent events with a comment whenever nothing comes for a while.

    When the client leaves or the process stops, the iterator is cancelled at its `await`.
    """
    return EventSourceResponse(events, headers=headers, ping=PING_SECONDS, sep="\n")
