"""Which web pages may call: CORS, and the refusal of pages that reach this machine by a trick.

A browser names the page that calls in `origin`. A page of the listener's own origin may call, and so may those of
`web.allowed_origins`. A page of elsewhere can have its own name resolve to this machine, and then counts as of the same
origin: so a listener without TLS also looks at the name that was called (`host`). That holds for every address: also
one that only machines behind a firewall reach is reached by the browsers there.
"""

from collections.abc import Collection
from urllib.parse import urlsplit

from turnwire.api.web.exchange import Exchange, Headers
from turnwire.api.web.hosts import is_of_this_machine, name_of

EVERY_ORIGIN = "*"
EVERY_HOST = "*"

REQUEST_HEADERS = (
    "accept-encoding",
    "authorization",
    "connect-accept-encoding",
    "connect-content-encoding",
    "connect-protocol-version",
    "connect-timeout-ms",
    "content-encoding",
    "content-type",
    "grpc-accept-encoding",
    "grpc-encoding",
    "grpc-timeout",
    "traceparent",
    "tracestate",
    "turnwire-tenant",
    "x-grpc-web",
    "x-user-agent",
)
"""Headers that pages of other origins may send."""

ANSWER_HEADERS = (
    "connect-accept-encoding",
    "connect-content-encoding",
    "content-encoding",
    "grpc-accept-encoding",
    "grpc-encoding",
    "grpc-message",
    "grpc-status",
    "grpc-status-details-bin",
)
"""Headers that pages of other origins may read."""

_ELSEWHERE = ("cross-site", "same-site")
"""Values of `sec-fetch-site`: a browser that loads a picture or a script for a page of another site names no origin."""

_PREFLIGHT_SECONDS = 7200
"""Time that browsers remember a preflight; the longest that Chromium takes."""


class Origins:
    """Decides which pages may call. Keeps no state of a call."""

    def __init__(self, allowed: Collection[str], hosts: Collection[str] = (), *, checks_host: bool) -> None:
        """Args:
        allowed: Origins such as https://app.example; "*" is all of them.
        hosts: Names of the listener, such as turnwire.example; "*" is all of them.
        checks_host: Whether the called name must be an address, `localhost`, or one of `hosts` or of an allowed origin.
        """
        self._allowed = frozenset(origin.lower() for origin in allowed)
        self._allows_all = EVERY_ORIGIN in self._allowed
        self._checks_host = checks_host and not self._allows_all and EVERY_HOST not in hosts
        names = (*map(str.lower, hosts), *(urlsplit(origin).hostname or "" for origin in self._allowed))
        self._hosts = frozenset(name.removesuffix(".") for name in names) - {""}

    def problem(self, exchange: Exchange) -> str:
        """Returns why a page may not call; "" if it may, or if no page calls."""
        host = (exchange.header("host") or exchange.header(":authority") or "").lower()
        if self._checks_host and (name := name_of(host)) not in self._hosts and not is_of_this_machine(name):
            return f"this server is not reached as {host!r:.100}: add the name to web.allowed_hosts"
        origin = exchange.header("origin")
        if origin is None and exchange.header("sec-fetch-site") in _ELSEWHERE and not self._allows_all:
            return "pages of other sites may not call this server without telling their origin"
        if origin is None or self._allows(origin) or _host_of(origin) == host:
            return ""
        return f"pages of {origin!r:.100} may not call this server: add the origin to web.allowed_origins"

    def headers(self, exchange: Exchange) -> Headers:
        """Returns the headers by which a browser lets a page read an answer."""
        origin = exchange.header("origin")
        if origin is None or not self._allows(origin):
            return (("vary", "origin"),) if self._allowed and not self._allows_all else ()
        return (*self._allow(origin), ("access-control-expose-headers", ", ".join(ANSWER_HEADERS)))

    def preflight(self, exchange: Exchange) -> Headers:
        """Returns the answer to the question of a browser whether a page may call; without the headers it may not."""
        origin = exchange.header("origin")
        if origin is None or not self._allows(origin):
            return (("vary", "origin"),)
        return (
            *self._allow(origin),
            ("access-control-allow-methods", "GET, POST"),
            ("access-control-allow-headers", ", ".join(REQUEST_HEADERS)),
            ("access-control-max-age", str(_PREFLIGHT_SECONDS)),
        )

    def _allows(self, origin: str) -> bool:
        return self._allows_all or origin.lower() in self._allowed

    def _allow(self, origin: str) -> Headers:
        if self._allows_all:
            return (("access-control-allow-origin", EVERY_ORIGIN),)
        return (("access-control-allow-origin", origin), ("vary", "origin"))


def _host_of(origin: str) -> str | None:
    """Returns the name and port of an origin; None if it has none."""
    try:
        return urlsplit(origin.lower()).netloc or None
    except ValueError:  # of no form that a browser writes
        return None
