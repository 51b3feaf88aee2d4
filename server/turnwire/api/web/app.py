"""The ASGI application: chooses what answers a request."""

import asyncio
from collections.abc import Callable, Mapping

import structlog
from google.rpc import code_pb2

from turnwire.api.admission.requests import CallerGone
from turnwire.api.gate import StreamingMethod
from turnwire.api.web.caller import WebCaller
from turnwire.api.web.console import Console
from turnwire.api.web.encoding.codecs import Route
from turnwire.api.web.encoding.statuses import simple_status
from turnwire.api.web.exchange import Exchange, Receive, Scope, Send, shared_bodies
from turnwire.api.web.origins import Origins
from turnwire.api.web.protocols import connect_stream, connect_unary, grpc_web
from turnwire.api.web.protocols.call import Gatekeeper, Serving
from turnwire.event_loop.owner import own

log = structlog.get_logger()

_UNARY_TYPES = (*connect_unary.CONTENT_TYPES, *grpc_web.CONTENT_TYPES)
_STREAM_TYPES = (*connect_stream.CONTENT_TYPES, *grpc_web.CONTENT_TYPES)

_ALIVE_PATH = "/healthz"
_HEALTH_PATHS = (_ALIVE_PATH, "/readyz")


class WebApplication:
    """Answers HTTP requests: calls of the contract, files of the console, and whether the server works."""

    def __init__(
        self,
        origins: Origins,
        console: Console,
        max_message_bytes: int,
        problem: Callable[[], str] = lambda: "",
        max_bodies_bytes: int = 0,
    ) -> None:
        """Args:
        origins: Decides which pages may call.
        console: Has the files.
        max_message_bytes: Size of the largest request in bytes.
        problem: Returns why calls cannot be carried out; "" if they can.
        max_bodies_bytes: Size of all bodies that are being read; two of the largest requests always have room.
        """
        self._problem = problem
        self._origins = origins
        self._console = console
        self._max_message_bytes = max_message_bytes
        self._bodies = shared_bodies(max(max_bodies_bytes, 2 * max_message_bytes))
        self._routes: Mapping[str, Route] = {}
        self._serving: Serving | None = None
        self._is_stopping = False
        self._running = set[asyncio.Task[None]]()
        """The tasks of requests that are being answered, each from its first to its last line of `__call__`."""

    def open(self, routes: Mapping[str, Route], gate: Gatekeeper) -> None:
        """Lets calls of these methods in."""
        self._routes = routes
        self._serving = Serving(gate, self._max_message_bytes, lambda: self._is_stopping)

    def close(self) -> None:
        """Refuses new calls from now on. Idempotent."""
        self._is_stopping = True

    async def end(self, seconds: float) -> None:
        """Cancels all running requests, and waits at most so long for their end. Idempotent."""
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, unless its connection has ended already: then it has no client. Never raises."""
        if scope["client"] is None:
            return
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        exchange = Exchange(scope, receive, send, self._bodies)
        own(exchange.connection())
        try:
            await self._answer(exchange)
        except CallerGone:
            return
        except asyncio.CancelledError:  # the listener stops, and closes the connection
            return
        except Exception as error:
            log.error("web_request_failed", path=exchange.path[:100], exc_info=error)
            if not exchange.is_started:
                await exchange.answer(500, [("content-type", "text/plain")], b"internal error\n")
        finally:
            self._running.discard(task)

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.path.rstrip("/") in _HEALTH_PATHS and exchange.method in ("GET", "HEAD"):
            await self._answer_health(exchange)
            return
        route = self._routes.get(exchange.path)
        if route is None and not _is_call(exchange):
            await self._answer_file(exchange)
            return
        if exchange.method == "OPTIONS":
            await exchange.answer(204, self._origins.preflight(exchange))
            return
        exchange.extra_headers = (*self._origins.headers(exchange), ("x-content-type-options", "nosniff"))
        if problem := self._origins.problem(exchange):
            self._note("PERMISSION_DENIED", "a page or a name that may not call", exchange)
            await _refuse(exchange, code_pb2.PERMISSION_DENIED, problem)
        elif self._serving is None:
            await _refuse(exchange, code_pb2.UNAVAILABLE, "the server is starting")
        elif route is None:
            self._note("UNIMPLEMENTED", "no such method", exchange)
            await _refuse(exchange, code_pb2.UNIMPLEMENTED, f"unknown method {exchange.path:.100}", http_status=404)
        elif not await _call(self._serving, route, exchange):
            self._note("UNIMPLEMENTED", "a verb or content type that the method does not take", exchange)

    async def _answer_health(self, exchange: Exchange) -> None:
        """Answers a load balancer, by whatever name it calls: a word about the server is no secret to any page."""
        if exchange.path not in _HEALTH_PATHS:  # the console's page would tell a load balancer that all is well
            status, word = 404, f"ask for {exchange.path.rstrip('/')}"
        elif problem := "" if exchange.path == _ALIVE_PATH else self._not_ready():
            status, word = 503, problem
        else:
            status, word = 200, "ok"
        body = b"" if exchange.method == "HEAD" else f"{word}\n".encode()
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
        ]
        await exchange.answer(status, headers, body)

    def _not_ready(self) -> str:
        if self._is_stopping:
            return "stopping"
        return "starting" if self._serving is None else self._problem()

    def _note(self, code: str, cause: str, exchange: Exchange) -> None:
        if self._serving is not None:
            self._serving.gate.refused(code, cause, WebCaller(exchange).address())

    async def _answer_file(self, exchange: Exchange) -> None:
        if exchange.method in ("GET", "HEAD"):
            await self._console.answer(exchange)
        else:
            await _tell(
                exchange,
                405,
                ("allow", "GET, HEAD"),
                "only GET and HEAD are allowed here; a call is a POST to /SERVICE/METHOD",
            )


async def _call(serving: Serving, route: Route, exchange: Exchange) -> bool:
    """Answers a call. Returns False, after an answer too, if the method is not called so."""
    serving = serving.of(route.proto)
    is_stream = isinstance(route.proto, StreamingMethod)
    takes_get = route.only_reads and not is_stream
    if exchange.method == "GET" and takes_get:
        await connect_unary.serve_get(serving, route, exchange)
        return True
    if exchange.method != "POST":
        allowed = "GET, POST" if takes_get else "POST"
        await _tell(exchange, 405, ("allow", allowed), f"this method is called by {allowed.replace(', ', ' or ')}")
        return False
    content_type = _content_type(exchange)
    if content_type in grpc_web.CONTENT_TYPES:
        await grpc_web.serve(serving, route, content_type, exchange)
    elif is_stream and content_type in connect_stream.CONTENT_TYPES:
        await connect_stream.serve(serving, route, connect_stream.CONTENT_TYPES[content_type], exchange)
    elif not is_stream and content_type in connect_unary.CONTENT_TYPES:
        await connect_unary.serve_post(serving, route, connect_unary.CONTENT_TYPES[content_type], exchange)
    else:
        types = ", ".join(_STREAM_TYPES if is_stream else _UNARY_TYPES)
        await _tell(exchange, 415, ("accept-post", types), f"the content-type of this method is one of {types}")
        return False
    return True


async def _tell(exchange: Exchange, status: int, header: tuple[str, str], problem: str) -> None:
    """Answers what is no call of any protocol, also in words for people."""
    body = b"" if exchange.method == "HEAD" else f"{problem}\n".encode()
    await exchange.answer(status, [header, ("content-type", "text/plain; charset=utf-8")], body)


async def _refuse(exchange: Exchange, code: int, message: str, http_status: int | None = None) -> None:
    """Answers a call that reaches no method, in its own protocol."""
    status, content_type = simple_status(code, message), _content_type(exchange)
    if content_type in grpc_web.CONTENT_TYPES:
        await grpc_web.answer_failure(exchange, content_type, status)
    else:
        await connect_unary.answer_failure(exchange, status, as_http=http_status)


def _content_type(exchange: Exchange) -> str:
    """Returns the type without its parameters."""
    return (exchange.header("content-type") or "").partition(";")[0].strip().lower()


def _is_call(exchange: Exchange) -> bool:
    """Returns whether a request without a method means to be a call: it has the form of one."""
    parts = exchange.path.split("/")
    return len(parts) == 3 and "." in parts[1] and not exchange.path.startswith("/assets/")
