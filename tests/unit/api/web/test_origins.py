"""Which pages may call."""

from collections.abc import Collection

import pytest

from turnwire.api.web.exchange import Exchange, Receive, Send, shared_bodies
from turnwire.api.web.origins import Origins

APP = "https://app.example"


def asked(**headers: str) -> Exchange:
    """Returns a request with these headers."""
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    unused: Receive | Send | None = None
    return Exchange({"method": "POST", "path": "/", "headers": sent}, unused, unused, shared_bodies(2**20))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("allowed", "host", "origin", "may_call"),
    [
        ([], "127.0.0.1:8080", None, True),
        ([], "127.0.0.1:8080", "http://127.0.0.1:8080", True),
        ([], "127.0.0.1:8080", "http://127.0.0.1:9090", False),
        ([], "[::1]:8080", "http://[::1]:8080", True),
        ([], "localhost:8080", "http://localhost:8080", True),
        ([], "a.localhost:8080", None, True),
        ([], "evil.example:8080", None, False),
        ([], "turnwire.example", None, True),
        ([], "TURNWIRE.example:8080", "http://turnwire.example:8080", True),
        ([], "turnwire.example.evil", None, False),
        ([], "turnwire.example@evil.example", None, False),
        ([], "evil.example:8080", "http://evil.example:8080", False),
        ([], "", None, False),
        ([], "[", None, False),
        ([], "127.0.0.1:8080", "null", False),
        ([], "127.0.0.1:8080", "http://[", False),
        ([APP], "app.example", None, True),
        ([APP], "app.example:8443", None, True),
        ([APP], "127.0.0.1:8080", APP, True),
        ([APP], "127.0.0.1:8080", "HTTPS://APP.example", True),
        ([APP], "127.0.0.1:8080", "https://app.example.evil", False),
        ([APP], "127.0.0.1:8080", "http://app.example", False),
        (["*"], "evil.example", "http://evil.example", True),
    ],
)
def test_a_listener_without_tls_looks_at_both_names(
    allowed: Collection[str], host: str, origin: str | None, may_call: bool
) -> None:
    """The page's, and the one that it called."""
    headers = {"host": host, **({} if origin is None else {"origin": origin})}
    assert (Origins(allowed, ["Turnwire.example"], checks_host=True).problem(asked(**headers)) == "") == may_call


def test_a_listener_with_tls_has_names_of_its_own() -> None:
    """A page of any name of the listener is of its origin; pages of other names are not."""
    origins = Origins([], checks_host=False)
    assert origins.problem(asked(host="chat.example", origin="https://chat.example")) == ""
    assert origins.problem(asked(host="chat.example", origin="https://evil.example")) != ""


def test_a_name_may_have_the_dot_of_a_full_one() -> None:
    """In the configuration and in what is called; no name at all is never allowed."""
    origins = Origins([], ["turnwire.example.", ""], checks_host=True)
    assert origins.problem(asked(host="turnwire.example")) == origins.problem(asked(host="turnwire.example.:80")) == ""
    assert origins.problem(asked(host="a@turnwire.example")) != ""


def test_all_names_can_be_allowed() -> None:
    """As where a proxy decides which ones there are; pages of other origins may call as little as before."""
    origins = Origins([], ["*"], checks_host=True)
    assert origins.problem(asked(host="evil.example")) == ""
    assert origins.problem(asked(host="evil.example", origin="https://app.example")) != ""


def test_only_an_allowed_page_is_named_in_the_answer() -> None:
    """And caches learn that the answer is for it alone."""
    origins = Origins([APP], checks_host=True)
    assert dict(origins.headers(asked(origin=APP)))["access-control-allow-origin"] == APP
    assert dict(origins.headers(asked(origin="https://evil.example"))) == {"vary": "origin"}
    assert dict(origins.preflight(asked(origin="https://evil.example"))) == {"vary": "origin"}
    assert dict(Origins(["*"], checks_host=True).headers(asked(origin=APP)))["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    ("allowed", "site", "may_call"),
    [
        ([], "none", True),
        ([], "same-origin", True),
        ([], "same-site", False),
        ([], "cross-site", False),
        ([APP], "cross-site", False),
        (["*"], "cross-site", True),
    ],
)
def test_pages_of_elsewhere_do_not_load_calls_as_pictures(allowed: Collection[str], site: str, may_call: bool) -> None:
    """A browser names no origin then, and a call by GET would be carried out."""
    called = asked(**{"host": "127.0.0.1:8080", "sec-fetch-site": site})
    problem = Origins(allowed, checks_host=True).problem(called)
    assert problem == ("" if may_call else "pages of other sites may not call this server without telling their origin")
