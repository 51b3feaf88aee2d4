"""Names by which a listener is called."""

import pytest

from turnwire.api.web.hosts import name_of


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("LocalHost:8080", "localhost"),
        ("localhost.:8080", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:8080", "::1"),
        ("rebound.example@localhost", ""),
        ("rebound.example\\@localhost", ""),
        ("localhost\\.rebound.example", ""),
        ("localhost/rebound.example", ""),
        ("localhost?", ""),
        ("localhost#", ""),
        ("", ""),
        (".", ""),
        ("[", ""),
    ],
)
def test_a_header_has_one_name_or_none(host: str, name: str) -> None:
    """A text that other readers could take for another name is none."""
    assert name_of(host) == name
