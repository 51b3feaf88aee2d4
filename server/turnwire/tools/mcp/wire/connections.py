"""HTTP connections to one MCP server, with aiohttp: it parses few bytes in a step, and finds a connection at once.

The client of the SDK brings connections that read and parse as much as has come before anything else runs: answers 100
without end held the event loop. And for each request they look at all others, of which there may be thousands.
"""

import asyncio
import contextlib
import socket
import urllib.request
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import httpx2
import msgspec

from turnwire.tools.mcp.running_call import CallOverError, current_call

CONNECT_SECONDS = 30.0
"""How long connecting to the server may take, and how long the answer to a notification, which has none."""

MAX_CONNECTIONS = 2_048
"""At once to one server: a call has one of its own, and the usual limits of turns and of calls in each allow this."""

MAX_HEAD_BYTES = 64 * 1024
"""Of the headers of one answer together."""

MAX_PROVISIONAL = 10
"""Provisional answers (1xx) before an answer; servers send one, if any."""

RECEIVE_BUFFER_BYTES = 32 * 1024
"""Of a connection, in the system. What it has is parsed in one step."""

WAITING_BYTES = 2 * 1024
"""Of a body. Above twice as much, or an eighth as many chunks, no more is parsed until some of it is read."""


class _Asked(msgspec.Struct, frozen=True):
    """What of a request says whether it has an answer."""

    id: int | str | None = None


class _Response(aiohttp.ClientResponse):
    """An answer before which only a few provisional ones may come: aiohttp skips any number, as fast as they come."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        protocol, left = connection.protocol, MAX_PROVISIONAL
        read = protocol.read

        async def read_few() -> Any:
            nonlocal left
            message, payload = await read()
            left -= 100 <= message.code < 200
            if left < 0:
                raise aiohttp.ClientPayloadError("too many provisional answers")
            return message, payload

        protocol.read = read_few
        try:
            return await super().start(connection)
        finally:
            del protocol.read


class Connections(httpx2.AsyncBaseTransport):
    """Implements httpx2's transport for one server. Used on one event loop; its session begins with a request.

    What is sent for a call ends with it. An answer that is no HTTP becomes an error of its request.
    """

    def __init__(self, url: str) -> None:
        """Takes the server's address, which decides on the proxy. Reads certificates."""
        self._proxy = _proxy_for(url)
        self._ssl = httpx2.create_ssl_context()
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request and returns its answer when the headers are there.

        Raises:
            httpx2.ConnectError: the server accepts no connection.
            httpx2.ReadError: it closed the connection, or does not answer a notification.
        """
        try:
            async with _bounded(request):
                response = await self._open_session().request(
                    request.method,
                    str(request.url),
                    headers=request.headers,
                    data=request.content or None,
                    allow_redirects=False,
                    proxy=self._proxy,
                    timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS),
                )
        except CallOverError:
            return refusal(request, "the call has ended")
        except aiohttp.ClientConnectorError as error:
            raise httpx2.ConnectError(str(error)) from error
        except (aiohttp.ClientResponseError, aiohttp.ClientPayloadError, ValueError) as error:
            return refusal(request, f"the server's answer is no HTTP: {type(error).__name__}")
        except (aiohttp.ClientError, OSError) as error:
            raise httpx2.ReadError(str(error) or "the server did not answer") from error
        headers = [(name, value) for name, value in response.raw_headers if name.lower() != b"set-cookie"]
        if sum(len(name) + len(value) for name, value in headers) > MAX_HEAD_BYTES:
            response.close()
            return refusal(request, f"the server's answer has over {MAX_HEAD_BYTES} bytes of headers")
        return httpx2.Response(response.status, headers=headers, stream=_Body(response), request=request)

    async def aclose(self) -> None:
        """Closes all connections."""
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, ssl=self._ssl, socket_factory=_socket),
                cookie_jar=aiohttp.DummyCookieJar(),
                response_class=_Response,
                auto_decompress=False,
                read_bufsize=WAITING_BYTES,
            )
        return self._session


def refusal(request: httpx2.Request, words: str) -> httpx2.Response:
    """Returns an answer that is an error, in place of one that is not read."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": words}}
    headers = {"content-type": "application/json"}
    return httpx2.Response(400, headers=headers, content=msgspec.json.encode(error), request=request)


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, as it comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def __aiter__(self) -> Any:
        call = current_call.get()
        while True:
            try:
                async with call.reading() if call else contextlib.nullcontext():
                    # one chunk: a read of some size parses as many as it takes in one step
                    data, is_whole = await self._response.content.readchunk()
            except CallOverError:
                raise httpx2.StreamError("the call has ended") from None
            except (aiohttp.ClientError, OSError) as error:
                raise httpx2.StreamError(f"the server broke off its answer: {type(error).__name__}") from error
            if data:
                yield data
            elif not is_whole:
                return

    async def aclose(self) -> None:
        self._response.release()  # which closes the connection unless all was read


def _bounded(request: httpx2.Request) -> AbstractAsyncContextManager[object]:
    """Returns the limit within which an answer has to begin."""
    call = current_call.get()
    if request.method == "GET" or _has_answer(request.content):
        return call.reading() if call else contextlib.nullcontext()
    return asyncio.timeout(CONNECT_SECONDS)


def _has_answer(content: bytes) -> bool:
    try:
        return msgspec.json.decode(content, type=_Asked).id is not None
    except msgspec.DecodeError:
        return False


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Returns a socket that receives little at once."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return made


def _proxy_for(url: str) -> str | None:
    """Returns the proxy that the environment names for an address, in the usual variables."""
    address = httpx2.URL(url)
    if urllib.request.proxy_bypass(address.host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(address.scheme) or proxies.get("all")
