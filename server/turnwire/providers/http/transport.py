"""Sends requests of the SDKs' clients with aiohttp, and limits the time of answers.

The SDKs have such a transport too, but it reads complete bodies of errors, and reports a closed connection as a
timeout.
"""

import asyncio
import ssl
import urllib.request
from collections.abc import AsyncIterator
from datetime import timedelta
from urllib.parse import urlsplit

import aiohttp
import httpx2

from turnwire.domain.errors import (
    ProviderAnswerOverLimit,
    ProviderError,
    ProviderStreamCut,
    ProviderStreamFailed,
    ProviderTimeout,
    ProviderUnavailable,
)
from turnwire.domain.limits import Limits

MAX_REDIRECTS = 3
"""Within one address: some servers add or remove a slash."""

KEEP_ALIVE_SECONDS = 60.0
"""Time for which a connection is kept for the next call."""

CHUNK_BYTES = 16 * 1024
"""Bytes read at once: about a hundred deltas."""

MAX_WHOLE_BYTES = 64 * 1024
"""Maximum size of a body that is not a stream: an error or a page. The rest is not read."""

_WHOLE = ("application/json", "application/problem+json", "text/html", "application/xhtml+xml", "image/")
"""Media types that are never those of a stream. Some servers give their streams another type, or none."""

_AT_ONCE = timedelta(0)

_GONE, _FAILED = (404, 405, 410), 500
"""Statuses that may mean that a redirect is no longer valid: the listed ones, and all from `_FAILED` on."""

_REDIRECTS = (307, 308)
"""The redirects that repeat the request; the others would turn it into one without a body."""


def is_stream(status: int, media_type: str) -> bool:
    """Returns whether an answer may be a stream of events, which is read to its end."""
    return 200 <= status < 300 and not media_type.startswith(_WHOLE)


class ProviderTransport(httpx2.AsyncBaseTransport):
    """Implements httpx2's transport for one provider. Used on one event loop; its session begins with a call."""

    def __init__(self, base_url: str, limits: Limits) -> None:
        """Args:
        base_url: The provider's address; decides on the proxy.
        limits: The maximum duration of an answer and the maximum number of concurrent calls.
        """
        self._limits = limits
        self._proxy = _proxy_for(base_url)
        self._ssl: ssl.SSLContext = httpx2.create_ssl_context()
        self._session: aiohttp.ClientSession | None = None
        self._moved: dict[str, httpx2.URL] = {}
        """The last redirection of large requests, for later ones, until the provider no longer answers there."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request and returns the response once its headers have arrived.

        Raises:
            ProviderTimeout: no connection, or no answer, in time.
            ProviderUnavailable: the provider cannot be reached, or closed the connection.
            ProviderStreamFailed: the answer is not HTTP.
            ProviderAnswerOverLimit: nothing arrived within the time of an answer.
        """
        loop, seconds = asyncio.get_running_loop(), self._limits.max_answer_seconds
        deadline = loop.time() + seconds
        times = request.extensions.get("timeout", {})
        silence = times.get("read") or seconds
        try:
            async with asyncio.timeout(min(silence, seconds)):
                response = await self._send(request, times)
        except TimeoutError as error:
            if silence >= seconds and not isinstance(error, aiohttp.ServerTimeoutError):
                raise _took_too_long(self._limits) from error
            raise _unanswered(error) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _unanswered(error) from error
        return self._answer(request, response, deadline)

    async def aclose(self) -> None:
        """Closes all connections."""
        if self._session is not None:
            await self._session.close()

    async def _send(self, request: httpx2.Request, times: dict[str, float | None]) -> aiohttp.ClientResponse:
        """Sends a request, and repeats it where the provider redirects it within its address."""
        url, content = self._moved.get(str(request.url), request.url), _content(request)
        for redirects in range(MAX_REDIRECTS + 1):
            response = await self._open_session().request(
                request.method,
                str(url),
                headers=request.headers,
                data=content,
                allow_redirects=False,
                proxy=self._proxy,
                timeout=aiohttp.ClientTimeout(
                    sock_connect=times.get("connect"), sock_read=times.get("read"), connect=times.get("pool")
                ),
            )
            further = _redirect(response, url) if redirects < MAX_REDIRECTS else None
            if further is None:
                break
            response.close()
            if not isinstance(content, bytes | None):  # parts of it may have been sent, and these are not kept
                self._moved = {str(request.url): further}
                raise ProviderUnavailable("the provider redirects the request within its address", retry_after=_AT_ONCE)
            url = further
        if response.status in _GONE or response.status >= _FAILED:
            self._moved.pop(str(request.url), None)
        return response

    def _answer(self, request: httpx2.Request, response: aiohttp.ClientResponse, deadline: float) -> httpx2.Response:
        # the client would keep cookies, and send them with every later request
        headers = httpx2.Headers([field for field in response.raw_headers if field[0].lower() != b"set-cookie"])
        media_type = headers.get("content-type", "").strip().lower()
        body = _Body(response, self._limits, deadline, whole=not is_stream(response.status, media_type))
        return httpx2.Response(response.status, headers=headers, stream=body, request=request)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._limits.max_running_turns, keepalive_timeout=KEEP_ALIVE_SECONDS, ssl=self._ssl
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # the client does it
            )
        return self._session


class _Body(httpx2.AsyncByteStream):
    """Yields the body in pieces. Read once; `aclose` ends the connection unless the complete body was read."""

    def __init__(self, response: aiohttp.ClientResponse, limits: Limits, deadline: float, *, whole: bool) -> None:
        """Args:
        response: An open answer; this owns it.
        limits: Limits on it.
        deadline: The time by which it must have ended, by the loop's clock.
        whole: Whether it is not a stream, so that only its beginning is read.
        """
        self._response = response
        self._limits = limits
        self._deadline = deadline
        self._whole = whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields the pieces.

        Raises:
            ProviderStreamCut: the connection broke, or the provider fell silent.
            ProviderAnswerOverLimit: the answer takes too long.
        """
        left = MAX_WHOLE_BYTES
        while chunk := await self._read():
            if not self._whole:
                yield chunk
                continue
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return

    async def aclose(self) -> None:
        """Gives the connection back if the complete body was read, else closes it at once."""
        self._response.release()

    async def _read(self) -> bytes:
        try:
            async with asyncio.timeout_at(self._deadline) as whole_time:
                return await self._response.content.read(CHUNK_BYTES)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            if whole_time.expired():
                raise _took_too_long(self._limits) from error
            if isinstance(error, TimeoutError):
                raise ProviderStreamCut("the provider fell silent in the middle of its answer") from error
            raise ProviderStreamCut("the connection to the provider broke before the end of its answer") from error


def _took_too_long(limits: Limits) -> ProviderAnswerOverLimit:
    """Returns the error for an answer that has not ended in time."""
    return ProviderAnswerOverLimit.of("takes too long", "max_answer_seconds", limits.max_answer_seconds)


def _proxy_for(url: str) -> str | None:
    """Returns the proxy for an address from the usual environment variables."""
    address = urlsplit(url)
    if not address.hostname or urllib.request.proxy_bypass(address.hostname):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(address.scheme) or proxies.get("all")


def _content(request: httpx2.Request) -> bytes | httpx2.AsyncByteStream | None:
    try:
        return request.content or None
    except httpx2.RequestNotRead:
        stream = request.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        return stream


def _redirect(response: aiohttp.ClientResponse, url: httpx2.URL) -> httpx2.URL | None:
    """Returns the address to which an answer redirects within the same origin; None when it does not."""
    if response.status not in _REDIRECTS:
        return None
    try:
        further = url.join(response.headers.get("location", ""))
    except httpx2.InvalidURL:
        return None
    is_same = (further.scheme, further.host, further.port) == (url.scheme, url.host, url.port)
    return further if is_same and further != url else None


_UNANSWERED: tuple[tuple[tuple[type[Exception], ...], type[ProviderError], str], ...] = (
    ((aiohttp.ConnectionTimeoutError,), ProviderTimeout, "no connection to the provider came about in time"),
    ((TimeoutError,), ProviderTimeout, "the provider did not answer in time"),
    (
        (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError),
        ProviderUnavailable,
        "no encrypted connection to the provider came about",
    ),
    ((aiohttp.ClientConnectorDNSError,), ProviderUnavailable, "the address of the provider has no entry in the DNS"),
    (
        (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError),
        ProviderUnavailable,
        "the proxy before the provider lets no call through",
    ),
    ((aiohttp.ClientConnectorError,), ProviderUnavailable, "the provider accepts no connection"),
    (
        (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError),
        ProviderUnavailable,
        "the provider closed the connection before it answered",
    ),
    (
        (aiohttp.ClientResponseError, aiohttp.ClientPayloadError),
        ProviderStreamFailed,
        "the answer of the provider is not valid HTTP",
    ),
)
"""The meaning of errors before the headers of a response; the first match applies."""


def _unanswered(error: Exception) -> ProviderError:
    """Returns the error for a failure before the headers of an answer. Has no text of the provider."""
    for kinds, kind, message in _UNANSWERED:
        if isinstance(error, kinds):
            return kind(message)
    name = type(error).__name__
    return ProviderUnavailable(f"the provider could not be reached: {name}", {"errorType": name})
