"""What the clients of both SDKs are configured with."""

import httpx2

MAX_RETRIES = 0
"""Retries of the SDK: none. The core tries again, tells watchers so, and knows the fallback models."""

CONNECT_SECONDS = 10.0
"""A server that does not accept a connection by then will not."""

NO_KEY = "no-key"
"""Sent to servers that need no key: the SDKs refuse to start without one."""


def sdk_timeout(silence_seconds: float) -> httpx2.Timeout:
    """Returns the timeouts for a provider that may be silent so long."""
    return httpx2.Timeout(silence_seconds, connect=min(CONNECT_SECONDS, silence_seconds))


def sdk_limits() -> httpx2.Limits:
    """Returns the connection limits: the server's own limit of running turns is the one that counts."""
    return httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=60.0)
