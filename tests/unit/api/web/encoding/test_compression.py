"""Compression: what comes out is what went in, and never more than is allowed."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.api.web.encoding.compression import BadCompression, TooLarge, accepts_gzip, compress, decompress

ONE = gzip.compress(b"a", mtime=0)


@pytest.mark.parametrize("size", [0, 1, 1_000, 200_000])
async def test_bytes_come_back(size: int) -> None:
    """Long ones too, which are compressed in a thread."""
    data = bytes(number % 251 for number in range(size))
    assert await decompress(await compress(data), size) == data


@pytest.mark.slow
async def test_a_bomb_stops_at_the_limit() -> None:
    """A few kilobytes that would become fifty megabytes."""
    with pytest.raises(TooLarge):
        await decompress(gzip.compress(bytes(50_000_000)), 1_000_000)


@given(st.binary(max_size=200))
async def test_nonsense_is_refused(data: bytes) -> None:
    """Any bytes that are not one whole gzip stream."""
    with pytest.raises(BadCompression):
        await decompress(b"x" + data, 1000)


@pytest.mark.parametrize(
    "data", [ONE[:-1], ONE + b"b", ONE * 2, b""], ids=["cut", "more behind it", "two streams", "nothing"]
)
async def test_one_whole_stream_is_wanted(data: bytes) -> None:
    """Neither less nor more."""
    with pytest.raises(BadCompression):
        await decompress(data, 1000)


@pytest.mark.parametrize(
    ("accepted", "is_accepted"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("", False),
        ("br", False),
        ("gzip;q=0.0,br", False),
    ],
)
def test_callers_say_what_they_take(accepted: str, is_accepted: bool) -> None:
    """A weight of 0 means that it is not taken."""
    assert accepts_gzip(accepted) == is_accepted
