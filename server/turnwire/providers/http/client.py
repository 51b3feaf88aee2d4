"""The HTTP client that both SDKs get, and its settings."""

from collections.abc import Callable, Mapping
from http.cookiejar import CookieJar
from typing import Any

import httpx2

from turnwire.domain.limits import Limits
from turnwire.ports.telemetry.tracing import current_span
from turnwire.providers.http.transport import BoundedTransport
from turnwire.providers.settings import ProviderSettings

MAX_RETRIES = 0
"""The SDKs do not retry: the core does, publishes each retry to watchers, and knows the fallback models."""

CONNECT_SECONDS = 10.0
"""A server that has not accepted a connection by then is not expected to."""

NO_KEY = "no-key"
"""Sent to servers that need no key, because the SDKs refuse to start without one."""

_HEADERS: Mapping[str, str] = {"Accept-Encoding": "gzip"}
"""What `Body` unpacks; the client would ask for whatever is installed."""


class _NoCookies(CookieJar):
    """Keeps no cookie of a model server, which could make every later request larger."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Reads nothing."""


def trace_headers(settings: ProviderSettings) -> dict[str, str]:
    """Returns the header that continues the current trace at the provider, if its settings allow it."""
    traceparent = current_span().traceparent if settings.sends_traceparent else ""
    return {"traceparent": traceparent} if traceparent else {}


def sdk_timeout(silence_seconds: float) -> httpx2.Timeout:
    """Returns the timeouts for a provider that may be silent for this long."""
    return httpx2.Timeout(silence_seconds, connect=min(CONNECT_SECONDS, silence_seconds))


def http_client(
    base_url: str, max_connections: int, limits: Limits, charge: Callable[[float], None]
) -> httpx2.AsyncClient:
    """Returns a client for one address, which follows no redirect to another; the SDK that gets it closes it.

    Args:
        base_url: The address.
        max_connections: Calls that may be open at once.
        limits: What an answer may bring.
        charge: Takes how many seconds a long read of an answer took.
    """
    transport = BoundedTransport(base_url, max_connections, limits, charge)
    return httpx2.AsyncClient(transport=transport, headers=_HEADERS, cookies=_NoCookies(), follow_redirects=False)
