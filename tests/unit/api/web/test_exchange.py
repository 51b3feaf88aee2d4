"""The body of a request, as it comes in pieces."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from turnwire.api.web.encoding.compression import TooLarge
from turnwire.api.web.exchange import OFFLOADED_JOIN_BYTES, Exchange
from turnwire.api.web.shared_bytes import SharedBytes
from turnwire.domain.errors import TooManyCalls


def bodies(max_bytes: int) -> SharedBytes:
    """Returns what counts bodies."""
    return SharedBytes("MAX_BODIES_BYTES", max_bytes, "too many")


def arriving(pieces: Sequence[bytes], shared: SharedBytes) -> Exchange:
    """Returns a request whose body comes in these pieces."""
    events = [
        {"type": "http.request", "body": piece, "more_body": at < len(pieces)} for at, piece in enumerate(pieces, 1)
    ]

    async def receive() -> dict[str, Any]:
        return events.pop(0)

    unused: Any = None
    return Exchange({"method": "POST", "path": "/", "headers": []}, receive, unused, shared)


@pytest.mark.parametrize("pieces", [[b""], [b"whole"], [b"in ", b"", b"three"]])
async def test_a_body_is_all_of_its_pieces(pieces: list[bytes]) -> None:
    """However many they are."""
    assert await arriving(pieces, bodies(100)).body(100) == b"".join(pieces)


@pytest.mark.parametrize(("client", "connection"), [(("192.0.2.1", 80), "192.0.2.1:80"), (None, ""), (..., "")])
def test_a_connection_is_named_by_its_address(client: Any, connection: str) -> None:
    """With its port; one of a Unix socket has none."""
    unused: Any = None
    scope = {"method": "GET", "path": "/", "headers": []}
    if client is not ...:
        scope["client"] = client
    assert Exchange(scope, unused, unused, bodies(1)).connection() == connection


async def test_a_large_body_is_joined_beside_the_event_loop() -> None:
    """All else goes on meanwhile."""
    pieces = [b"a" * OFFLOADED_JOIN_BYTES, b"b"]
    body = asyncio.create_task(arriving(pieces, bodies(2 * OFFLOADED_JOIN_BYTES)).body(2 * OFFLOADED_JOIN_BYTES))
    await asyncio.sleep(0)
    assert not body.done()
    assert await body == b"".join(pieces)


async def test_all_pieces_count() -> None:
    """For the bound of a body, and for what all bodies may take; a body gives back what it took."""
    shared = bodies(6)
    with pytest.raises(TooLarge):
        await arriving([b"abc", b"de"], shared).body(4)
    with pytest.raises(TooManyCalls):
        await arriving([b"abc", b"def", b"g"], shared).body(10)
    assert await arriving([b"abc", b"def"], shared).body(6) == b"abcdef"
