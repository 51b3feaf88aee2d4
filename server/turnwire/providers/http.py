"""Settings for the HTTP clients of both SDKs."""

import httpx2

from turnwire.ports.telemetry.tracing import current_span
from turnwire.providers.settings import ProviderSettings

MAX_RETRIES = 0
"""The SDKs do not retry: the core does, publishes each retry to watchers, and knows the fallback models."""

CONNECT_SECONDS = 10.0
"""A server that has not accepted a connection by then is not expected to."""

NO_KEY = "no-key"
"""Sent to servers that need no key, because the SDKs refuse to start without one."""


def trace_headers(settings: ProviderSettings) -> dict[str, str]:
    """Returns the header that continues the current trace at the provider, if its settings allow it."""
    traceparent = current_span().traceparent if settings.sends_traceparent else ""
    return {"traceparent": traceparent} if traceparent else {}


def sdk_timeout(silence_seconds: float) -> httpx2.Timeout:
    """Returns the timeouts for a provider that may be silent for this long."""
    return httpx2.Timeout(silence_seconds, connect=min(CONNECT_SECONDS, silence_seconds))


def sdk_limits(max_connections: int) -> httpx2.Limits:
    """Returns the connection limits for this many calls at once.

    A number is needed: without one, the SDKs' transport falls back to aiohttp's default of 100.
    """
    return httpx2.Limits(
        max_connections=max_connections, max_keepalive_connections=max_connections, keepalive_expiry=60.0
    )
