"""Callers, as the headers of a call name them."""

from typing import Any

import pytest

from turnwire.api.web.caller import WebCaller
from turnwire.api.web.exchange import Exchange, shared_bodies


@pytest.mark.parametrize(
    ("headers", "size"), [([], 0), ([(b"host", b"a")], 5), ([(b"host", b"a"), (b"authorization", b"Bearer b")], 26)]
)
def test_the_size_of_all_headers_is_known(headers: list[tuple[bytes, bytes]], size: int) -> None:
    """Names and values: what a caller sends before its request counts for the bound of all calls."""
    unused: Any = None
    scope = {"method": "POST", "path": "/", "headers": headers}
    caller = WebCaller(Exchange(scope, unused, unused, shared_bodies(2**20)))
    assert caller.metadata_bytes == size
