"""HTTP connections to one MCP server, with aiohttp: it parses few bytes in a step, and finds a connection at once.

The client of the SDK brings connections that read and parse as much as has come before anything else runs: answers 100
without end held the event loop. And for each request they look at all others, of which there may be thousands.
"""

import asyncio
import contextlib
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import httpx2
import msgspec

from turnwire.http_client.session import MAX_HEAD_BYTES, open_session, proxy_for
from turnwire.tools.mcp.running_call import CallOverError, current_call

CONNECT_SECONDS = 30.0
"""How long connecting to the server may take, and how long the answer to a notification, which has none."""

MAX_CONNECTIONS = 2_048
"""At once to one server: a call has one of its own, and the usual limits of turns and of calls in each allow this."""

KEEP_ALIVE_SECONDS = 15.0
"""How long a connection is kept for the next request."""


class _Asked(msgspec.Struct, frozen=True):
    """What of a request says whether it has an answer."""

    id: int | str | None = None


class Connections(httpx2.AsyncBaseTransport):
    """Implements httpx2's transport for one server. Used on one event loop; its session begins with a request.

    What is sent for a call ends with it. An answer that is no HTTP becomes an error of its request.
    """

    def __init__(self, url: str) -> None:
        """Takes the server's address, which decides on the proxy. Reads certificates."""
        self._proxy = proxy_for(url)
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
            self._session = open_session(MAX_CONNECTIONS, KEEP_ALIVE_SECONDS, self._ssl)
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
