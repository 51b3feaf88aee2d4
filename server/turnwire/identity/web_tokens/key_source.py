"""The source of an identity provider's public keys: a file or a URL."""

import asyncio
import contextlib
import os
import socket
import stat
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, HTTPResponse
from threading import Lock
from typing import Any

MAX_BYTES = 1 << 20
"""Maximum size of the file, or of the identity provider's response."""

FETCH_SECONDS = 10.0
"""Timeout of one reading of the keys, from the look-up of the host's name to the last byte of the answer."""


class KeysUnavailable(Exception):
    """The keys could not be read; the message has the reason."""


class KeySource:
    """A file or a URL. Used on the event loop. It is read on a thread of its own, for which nothing else waits."""

    def __init__(self, source: str) -> None:
        """Takes the path or the URL. The thread starts with the first reading."""
        self._source = source
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keys")

    async def read(self) -> bytes:
        """Returns the document. When its time has passed, or this is cancelled, the connection is cut.

        Raises:
            KeysUnavailable: it cannot be read within the limits of size and time.
        """
        line = _Line()
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._thread, _load, self._source, line)
        except TimeoutError as error:
            raise KeysUnavailable(f"not read within {FETCH_SECONDS:g} seconds") from error
        finally:
            line.cut()


class _Line:
    """The connection of one reading, which another thread can cut: a read that waits for bytes then ends."""

    def __init__(self) -> None:
        self._lock = Lock()
        """Guards both fields: a connection that is made while the line is cut is cut as well."""
        self._socket: socket.socket | None = None
        self._is_cut = False

    def hold(self, connected: socket.socket) -> None:
        """Takes a connection. Duplicates its descriptor, because the reader closes the original at any time."""
        with self._lock:
            if self._is_cut:
                raise TimeoutError("the connection came too late")
            if self._socket is None:
                self._socket = socket.fromfd(connected.fileno(), connected.family, connected.type)

    def cut(self) -> None:
        """Ends the connection, even one that is made later. Idempotent."""
        with self._lock:
            self._is_cut = True
            held, self._socket = self._socket, None
        if held is not None:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)
            held.close()


class _Connections(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Connects, and passes each connection to its line before anything of an answer is read."""

    def __init__(self, line: _Line) -> None:
        super().__init__()
        self._line = line

    def do_open(self, http_class: Callable[..., HTTPConnection], req: urllib.request.Request, **args: Any) -> Any:
        return super().do_open(lambda *where, **how: self._held(http_class(*where, **how)), req, **args)

    def _held(self, connection: HTTPConnection) -> HTTPConnection:
        def answer(connected: socket.socket, *args: Any, **named: Any) -> HTTPResponse:
            self._line.hold(connected)
            return HTTPResponse(connected, *args, **named)

        connection.response_class = answer  # type: ignore[assignment]  # it is only called
        return connection


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Rejects redirects, which could lead to a host that the operator does not trust."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def _load(source: str, line: _Line) -> bytes:
    """Returns the document, within the limit of size. Blocks until the line is cut. Raises KeysUnavailable."""
    try:
        document = _fetch(source, line) if "://" in source else _read(source)
    except (OSError, HTTPException, ValueError) as error:
        raise KeysUnavailable(f"{type(error).__name__}: {error}") from error
    if len(document) > MAX_BYTES:
        raise KeysUnavailable(f"more than {MAX_BYTES} bytes")
    return document


def _read(path: str) -> bytes:
    # a pipe without a writer would block the thread, and with it the process
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise KeysUnavailable(f"{path} is not a regular file")
        return file.read(MAX_BYTES + 1)


def _fetch(url: str, line: _Line) -> bytes:
    opener = urllib.request.build_opener(_NoRedirect, _Connections(line))
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with opener.open(request, timeout=FETCH_SECONDS / 2) as answer:
        document: bytes = answer.read(MAX_BYTES + 1)
    return document
