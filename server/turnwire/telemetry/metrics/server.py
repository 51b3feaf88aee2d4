"""Serves the metrics over HTTP with the server of prometheus_client, on threads.

A scrape needs one short callback of the event loop, and works without it while the loop is blocked. The server is for a
private address: it limits neither connections nor requests.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIServer

from prometheus_client import disable_created_metrics, make_wsgi_app, start_http_server

from turnwire.api.web.hosts import is_of_this_machine, name_of
from turnwire.config.addresses import host_with_port
from turnwire.telemetry.metrics.instruments import Instruments
from turnwire.telemetry.readings import Readings

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

READ_SECONDS = 1.0
"""Maximum time that a scrape waits for the event loop. While the loop is blocked, the last readings are shown again."""


class MetricsServer:
    """Answers `GET /metrics`: `start` on the event loop, then `aclose`."""

    def __init__(
        self, instruments: Instruments, read: Callable[[], Readings], database: Path, *, checks_host: bool
    ) -> None:
        """Args:
        instruments: The metrics.
        read: Returns the readings; called on the event loop, must not raise.
        database: The database file.
        checks_host: Whether the header `host` must be an address or `localhost`. Otherwise a page whose name resolves
            to this machine could read the metrics in a browser there (DNS rebinding).
        """
        self._instruments = instruments
        self._read = read
        self._checks_host = checks_host
        self._running: tuple[WSGIServer, threading.Thread] | None = None
        """From `start` until `aclose`."""
        database = database.resolve()
        instruments.database_size.set_function(lambda: _size(database))
        instruments.wal_size.set_function(lambda: _size(database.with_name(f"{database.name}-wal")))
        disable_created_metrics()  # type: ignore[no-untyped-call]  # no second series for when each began

    def start(self, host: str, port: int) -> str:
        """Binds the address and starts to answer.

        Args:
            host: A name or an address.
            port: 0 selects a free one.

        Returns:
            The address with the actual port.

        Raises:
            OSError: the address is in use or cannot be bound.
        """
        registry = self._instruments.registry
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError as error:
            raise OSError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from error
        server.set_app(self._prepared(make_wsgi_app(registry), asyncio.get_running_loop()))
        self._running = server, thread
        return host_with_port(host, server.server_port)

    async def aclose(self) -> None:
        """Stops answering. Idempotent."""
        if self._running is not None:
            (server, thread), self._running = self._running, None
            stopping = asyncio.create_task(asyncio.to_thread(server.shutdown))
            with contextlib.suppress(OSError):
                server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which checks for its end twice a second
            await stopping
            server.server_close()
            thread.join()

    def _prepared(self, app: "WSGIApplication", loop: asyncio.AbstractEventLoop) -> "WSGIApplication":
        """Returns an application that checks the header `host` and takes the readings before `app` answers."""

        def prepared(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
            host = environ.get("HTTP_HOST")  # programs other than browsers may send none
            if self._checks_host and host is not None and not is_of_this_machine(name_of(host)):
                start_response("403 Forbidden", [("Content-Type", "text/plain")])
                return [b"call these metrics by an address or as localhost\n"]
            self._take_readings(loop)
            return app(environ, start_response)

        return prepared

    def _take_readings(self, loop: asyncio.AbstractEventLoop) -> None:
        future: Future[Readings] = Future()
        try:
            loop.call_soon_threadsafe(lambda: future.set_result(self._read()))
            readings = future.result(READ_SECONDS)
        except (TimeoutError, RuntimeError):  # the loop is blocked, or is closed
            return
        instruments = self._instruments
        instruments.turns_running.set(readings.running)
        instruments.turns_waiting.set(readings.waiting)
        instruments.messages_queued.set(readings.queued)
        instruments.watchers.set(readings.watchers)
        instruments.calls.set(readings.calls)
        instruments.memory_short.set(readings.is_memory_short)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
