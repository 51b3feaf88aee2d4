"""The body of a request, as it comes in pieces."""

from collections.abc import Sequence
from typing import Any

import pytest

from turnwire.api.bounds.peers import Resets
from turnwire.api.bounds.unread import Unread
from turnwire.api.web.encoding.compression import TooLarge
from turnwire.api.web.exchange import BodyBudget, Exchange
from turnwire.domain.errors import TooManyCalls


def arriving(pieces: Sequence[bytes], budget: BodyBudget) -> Exchange:
    """Returns a request whose body comes in these pieces."""
    events = [
        {"type": "http.request", "body": piece, "more_body": at < len(pieces)} for at, piece in enumerate(pieces, 1)
    ]

    async def receive() -> dict[str, Any]:
        return events.pop(0)

    unused: Any = None
    return Exchange({"method": "POST", "path": "/", "headers": []}, receive, unused, budget, Unread(Resets()))


@pytest.mark.parametrize("pieces", [[b""], [b"whole"], [b"in ", b"", b"three"]])
async def test_a_body_is_all_of_its_pieces(pieces: list[bytes]) -> None:
    """However many they are."""
    assert await arriving(pieces, BodyBudget(100)).body(100) == b"".join(pieces)


@pytest.mark.parametrize(("client", "connection"), [(("192.0.2.1", 80), "192.0.2.1:80"), (None, ""), (..., "")])
def test_a_connection_is_named_by_its_address(client: Any, connection: str) -> None:
    """With its port; one of a Unix socket has none."""
    unused: Any = None
    scope = {"method": "GET", "path": "/", "headers": []}
    if client is not ...:
        scope["client"] = client
    assert Exchange(scope, unused, unused, BodyBudget(1), Unread(Resets())).connection() == connection


async def test_all_pieces_count() -> None:
    """For the bound of a body, and for what all bodies may take; a body gives back what it took."""
    budget = BodyBudget(6)
    with pytest.raises(TooLarge):
        await arriving([b"abc", b"de"], budget).body(4)
    with pytest.raises(TooManyCalls):
        await arriving([b"abc", b"def", b"g"], budget).body(10)
    assert await arriving([b"abc", b"def"], budget).body(6) == b"abcdef"
