"""How much of a body is read at once."""

from types import SimpleNamespace

import pytest

from turnwire.domain.limits import Limits
from turnwire.providers.http import body
from turnwire.providers.http.body import CHUNK_BYTES, FIRST_BYTES, LEAST_BYTES, READ_SECONDS, Body, unpacking


class Content:
    """A body that gives what is asked for, and takes some time for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.seconds, self.share = 0.0, 0.0, 1.0
        self.wanted: list[int] = []
        self.charged: list[float] = []
        monkeypatch.setattr(body, "time", SimpleNamespace(perf_counter=lambda: self.now))

    async def read(self, size: int) -> bytes:
        """Returns as much as is asked for, or a share of it."""
        self.wanted.append(size)
        self.now += self.seconds
        return b"x" * int(size * self.share)

    def body(self) -> Body:
        """Returns a body that reads it."""
        response = SimpleNamespace(content=self)
        return Body(response, unpacking(""), Limits(), 1e9, self.charged.append, whole=False)  # type: ignore[arg-type]


async def test_quick_reads_grow_and_slow_ones_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that gets all that it asked for says how long such reads take: tiny chunks take long."""
    content = Content(monkeypatch)
    pieces = aiter(content.body())
    for _ in range(5):
        await anext(pieces)
    assert (content.wanted[0], content.wanted[-1]) == (FIRST_BYTES, CHUNK_BYTES)
    assert content.charged == []
    content.seconds = 2 * READ_SECONDS
    for _ in range(10):
        await anext(pieces)
    assert content.charged == pytest.approx([content.seconds] * 10)
    assert content.wanted[-1] == LEAST_BYTES
    content.seconds = 0.0
    for _ in range(10):
        await anext(pieces)
    assert content.wanted[-1] == CHUNK_BYTES


async def test_a_read_that_waited_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It got less than it asked for: the provider is slow, not what it sends."""
    content = Content(monkeypatch)
    content.seconds, content.share = 2 * READ_SECONDS, 0.5
    pieces = aiter(content.body())
    for _ in range(5):
        await anext(pieces)
    assert set(content.wanted) == {FIRST_BYTES}
