"""The HTTP client that both SDKs get, and its settings."""

from collections.abc import Mapping

import httpx2

from turnwire.domain.limits import Limits
from turnwire.ports.telemetry.tracing import current_span
from turnwire.providers.http.transport import ProviderTransport
from turnwire.providers.settings import ProviderSettings

MAX_RETRIES = 0
"""The SDKs do not retry: the core does, publishes each retry to watchers, and knows the fallback models."""

CONNECT_SECONDS = 10.0
"""Maximum time for a server to accept a connection."""

NO_KEY = "no-key"
"""Sent to servers that need no key, because the SDKs do not start without one."""

_HEADERS: Mapping[str, str] = {"Accept-Encoding": "gzip"}
"""Without this, the client would offer every installed encoding."""


def trace_headers(settings: ProviderSettings) -> dict[str, str]:
    """Returns the header that continues the current trace at the provider, if its settings allow it."""
    traceparent = current_span().traceparent if settings.sends_traceparent else ""
    return {"traceparent": traceparent} if traceparent else {}


def sdk_timeout(silence_seconds: float) -> httpx2.Timeout:
    """Returns the timeouts for a provider that may be silent for this long."""
    return httpx2.Timeout(silence_seconds, connect=min(CONNECT_SECONDS, silence_seconds))


def http_client(base_url: str, limits: Limits) -> httpx2.AsyncClient:
    """Returns a client for one address, which follows no redirect to another; the SDK that gets it closes it.

    Args:
        base_url: The address.
        limits: The maximum duration of an answer and the maximum number of concurrent calls.
    """
    transport = ProviderTransport(base_url, limits)
    return httpx2.AsyncClient(transport=transport, headers=_HEADERS, follow_redirects=False)
