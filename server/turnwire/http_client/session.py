"""Sessions of aiohttp that receive and parse little at once."""

import socket
import ssl
import urllib.request
from urllib.parse import urlsplit

import aiohttp

from turnwire.http_client.answer import Answer

MAX_HEAD_BYTES = 64 * 1024
"""Of the headers of one answer together. They are kept as long as the answer lasts."""

RECEIVE_BUFFER_BYTES = 32 * 1024
"""Of a connection, in the system. What it has is read and parsed in one step, and 256 KiB, which a step takes at most,
may be thousands of provisional answers."""

WAITING_BYTES = 2 * 1024
"""Of a body. Above twice as much, or an eighth as many chunks, aiohttp parses no more until some of it is read: chunks
cost by their number, not by their size."""


def open_session(
    max_connections: int, keep_alive_seconds: float, certificates: ssl.SSLContext
) -> aiohttp.ClientSession:
    """Returns a session; the caller closes it. It keeps no cookies and unpacks nothing. Call it on the event loop.

    Args:
        max_connections: Open at once; further requests wait.
        keep_alive_seconds: How long a connection is kept for the next request.
        certificates: What servers are checked with.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=max_connections,
            keepalive_timeout=keep_alive_seconds,
            ssl=certificates,
            socket_factory=_socket,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=Answer,
        auto_decompress=False,
        read_bufsize=WAITING_BYTES,
    )


def proxy_for(url: str) -> str | None:
    """Returns the proxy that the environment names for an address, in the usual variables."""
    address = urlsplit(url)
    if not address.hostname or urllib.request.proxy_bypass(address.hostname):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(address.scheme) or proxies.get("all")


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Returns a socket that receives little at once."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return made
