"""Serves the metrics over HTTP, on a thread with an event loop of its own.

A scrape costs the server's own loop one short callback, and works while that loop is held by something else. Requests
are bounded in number, size and time.
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import structlog

from turnwire.api.web.hosts import is_of_this_machine, name_of

MAX_CONNECTIONS = 16
"""Connections that are answered at the same time; further ones are closed."""

MAX_REQUEST_BYTES = 16 * 1024
"""Largest head of a request."""

REQUEST_SECONDS = 10.0
"""Longest time for a whole connection: the request, the text and the answer."""

log = structlog.get_logger()


class MetricsServer:
    """Answers `GET /metrics`: `start`, then `aclose`.

    The thread ends at `aclose`, and with the process in any case. `_answering` holds the task of each connection; it is
    used on that thread's loop only.
    """

    def __init__(self, text: Callable[[], Awaitable[bytes]], content_type: str, *, checks_host: bool = False) -> None:
        """Args:
        text: Returns the metrics; called on the thread's loop.
        content_type: Its type.
        checks_host: Whether the called name must be an address or `localhost`. A page of elsewhere can have its own
            name resolve to this machine, and then its browser shows it what is served there.
        """
        self._checks_host = checks_host
        self._text = text
        self._content_type = content_type
        self._answering: set[asyncio.Task[Any]] = set()
        self._stopped = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self, host: str, port: int) -> str:
        """Binds the address and begins to answer.

        Args:
            host: A name or an address.
            port: 0 selects a free one.

        Returns:
            The address with the actual port.

        Raises:
            OSError: the address is in use or cannot be bound.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family)
        except OSError as error:
            raise OSError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from error
        actual = listening.getsockname()[1]
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(loop, listening), name="metrics", daemon=True)
        self._thread.start()
        return f"[{host}]:{actual}" if ":" in host else f"{host}:{actual}"

    async def aclose(self) -> None:
        """Stops answering and returns when the thread has ended. Idempotent."""
        if self._thread is not None and self._loop is not None:
            thread, self._thread = self._thread, None
            self._loop.call_soon_threadsafe(self._stopped.set)
            await asyncio.to_thread(thread.join)

    def _run(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        try:
            loop.run_until_complete(self._serve(listening))
        except Exception as error:  # the server works without its metrics
            log.error("metrics_stopped", exc_info=error)
        finally:
            listening.close()
            loop.close()

    async def _serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._answer, sock=listening, limit=MAX_REQUEST_BYTES)
        await self._stopped.wait()
        # asyncio leaves a connection open whose acceptance ends after the server's close, so that comes last
        asyncio.get_running_loop().remove_reader(listening.fileno())
        for task in self._answering:
            task.cancel()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs this as a task"
        self._answering.add(task)
        try:
            if len(self._answering) <= MAX_CONNECTIONS and not self._stopped.is_set():
                async with asyncio.timeout(REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._response(head))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the other side is gone, slow, or speaks no HTTP
        except Exception as error:
            log.error("metrics_not_answered", exc_info=error)
        finally:
            self._answering.discard(task)
            writer.transport.abort()

    async def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path != b"/metrics":
            return _http(HTTPStatus.NOT_FOUND, "text/plain", b"metrics are at /metrics\n")
        if method not in (b"GET", b"HEAD"):
            return _http(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"use GET\n", "Allow: GET, HEAD\r\n")
        if self._checks_host and not all(is_of_this_machine(name_of(host)) for host in _hosts(head)):
            return _http(HTTPStatus.FORBIDDEN, "text/plain", b"call these metrics by an address or as localhost\n")
        text = await self._text()
        answer = _http(HTTPStatus.OK, self._content_type, text)
        return answer if method == b"GET" else answer[: -len(text)]


def _hosts(head: bytes) -> list[str]:
    """Returns the values of the headers `host`. Browsers send one; other programs may send none."""
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return [value.decode("latin-1") for name, _, value in lines if name.strip().lower() == b"host"]


def _http(status: HTTPStatus, content_type: str, body: bytes, header: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n{header}Connection: close\r\n\r\n"
    )
    return head.encode() + body
