"""`turnwire-adapters serve`: the HTTP applications of the adapters that are switched on, in one process."""

import asyncio
import contextlib
import importlib
import signal
import socket
import sys
from collections.abc import AsyncIterator

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route

from turnwire_adapters.http import REQUEST_ID, Edge
from turnwire_adapters.logs import configure_logs
from turnwire_adapters.registry import HTTP_ADAPTERS
from turnwire_adapters.settings import ServeSettings, is_open
from turnwire_adapters.upstream import Upstream
from turnwire_client import TurnwireError

log = structlog.get_logger("turnwire_adapters")


def application(settings: ServeSettings, upstream: Upstream) -> Starlette:
    """Returns one application of all that are switched on, each under its prefix.

    Its lifespan contains those of the adapters, and closes the upstream.
    """
    apps: dict[str, Starlette] = {
        prefix: importlib.import_module(HTTP_ADAPTERS[name].package).app(upstream)
        for name, prefix in settings.mounts.items()
    }

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(upstream.close)
            for app in apps.values():  # Starlette runs no lifespan of what is mounted
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    async def health(_: Request) -> JSONResponse:
        try:
            await upstream.check()
        except TurnwireError as error:
            return JSONResponse({"status": "no server", "problem": error.message}, 503)
        return JSONResponse({"status": "ok"})

    # The longest prefix first: an application at the root would answer for all others.
    mounted: list[BaseRoute] = [Mount(prefix, apps[prefix]) for prefix in sorted(apps, key=len, reverse=True)]
    edge = Middleware(
        Edge,
        allowed_origins=settings.allowed_origins,
        allowed_hosts=settings.allowed_hosts,
        checks_host=settings.tls_cert is None,
        max_body_bytes=settings.max_body_bytes,
    )
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.allowed_origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=[REQUEST_ID],
    )
    middleware = [edge, cors] if settings.allowed_origins else [edge]
    return Starlette(routes=[Route("/healthz", health), *mounted], middleware=middleware, lifespan=lifespan)


def run(settings: ServeSettings) -> int:
    """Serves until SIGTERM or SIGINT. Returns the exit code: 0 after a clean stop, 1 when it cannot start."""
    configure_logs(settings.log_format)
    return asyncio.run(_serve(settings))


async def _serve(settings: ServeSettings) -> int:
    upstream = Upstream(settings.target)
    try:
        await _check_callers_are_identified(settings, upstream)
        listener = _listen(settings.host, settings.port)
    except (TurnwireError, OSError, _CannotStart) as error:
        print(f"turnwire-adapters: cannot start: {error}", file=sys.stderr)
        return 1
    with listener:
        server = uvicorn.Server(
            uvicorn.Config(
                application(settings, upstream),
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="on",
                timeout_graceful_shutdown=settings.stop_seconds,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _ignore)  # uvicorn's handlers replace these, and raise the signal again at the end
        _announce(settings, listener)
        await server.serve(sockets=[listener])
    log.info("stopped")
    return 0 if server.started else 1


class _CannotStart(Exception):
    """A setting that only the server behind could judge."""


async def _check_callers_are_identified(settings: ServeSettings, upstream: Upstream) -> None:
    if is_open(settings.host) and not settings.insecure and not await upstream.identifies_callers():
        raise _CannotStart(
            f"other machines can reach {settings.host}, and the server at {settings.target.address} does not ask who "
            "calls: give it [auth], or listen on 127.0.0.1"
        )


def _listen(host: str, port: int) -> socket.socket:
    [(family, *_), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return socket.create_server((host, port), family=family, backlog=512)


def _announce(settings: ServeSettings, listener: socket.socket) -> None:
    scheme = "http" if settings.tls_cert is None else "https"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    base = f"{scheme}://{host}:{listener.getsockname()[1]}"
    for name, prefix in settings.mounts.items():
        print(f"{name} at {base}{prefix or '/'}", flush=True)
    print(f"listening on {base}, for the server at {settings.target.address}", flush=True)


def _ignore(*_: object) -> None:
    """Ends the process neither by SIGTERM nor with a KeyboardInterrupt, once uvicorn has stopped."""
