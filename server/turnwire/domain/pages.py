"""Pages of listings, and opaque tokens for the position where a listing continues."""

import base64
import binascii
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

from turnwire.domain.errors import InvalidRequest

T = TypeVar("T")

MAX_PAGE_BYTES = 3_500_000
"""Maximum stored size of the rows of a page: encoded, they stay below the 4 MiB that a gRPC client accepts by
default."""

_decode = msgspec.json.Decoder(list[Any]).decode


def encode_token(listing: str, *key: int | str) -> str:
    """Returns the token that continues a listing after the row with this sort key.

    Args:
        listing: Names the listing and all its filters. A token is valid for the same listing only.
        key: The sort key.
    """
    return base64.urlsafe_b64encode(msgspec.json.encode([listing, *key])).decode().rstrip("=")


def decode_token(token: str, listing: str, *kinds: type[int] | type[str]) -> tuple[Any, ...]:
    """Returns the sort key from a token that `encode_token` made for the same listing.

    Args:
        token: The token.
        listing: See `encode_token`.
        kinds: The types of the key's values: whole numbers and texts.

    Raises:
        InvalidRequest: the token is of another listing or is malformed.
    """
    key = _key_in(token, listing)
    if list(map(type, key)) != list(kinds) or not all(type(k) is str or -(2**62) < k < 2**62 for k in key):
        raise wrong_token()
    return tuple(key)


def page_of(
    rows: Iterable[T],
    place: Callable[[T], str],
    listing: str,
    *,
    size: int,
    token: str,
    size_of: Callable[[T], int] = lambda _: 0,
) -> tuple[tuple[T, ...], str]:
    """Returns a page of a listing in memory, and the token of the next page ("" on the last).

    Rows added or removed between two pages do not move other rows. A page has at most `MAX_PAGE_BYTES`, unless one row
    alone has more.

    Args:
        rows: All rows, in any order.
        place: Returns the sort key of a row; no two are equal.
        listing: See `encode_token`.
        size: Maximum number of rows, at least 1.
        token: The token from the previous page; "" for the first.
        size_of: Returns the bytes of a row; 0 by default, for small rows.

    Raises:
        InvalidRequest: the token is of another listing or is malformed.
    """
    after = decode_token(token, listing, str)[0] if token else None
    found = sorted((row for row in rows if after is None or place(row) > after), key=place)
    totals = accumulate(map(size_of, found[:size]))
    count = sum(not index or total <= MAX_PAGE_BYTES for index, total in enumerate(totals))
    return tuple(found[:count]), encode_token(listing, place(found[count - 1])) if len(found) > count else ""


def _key_in(token: str, listing: str) -> list[Any]:
    try:
        padded = token + "=" * (-len(token) % 4)
        name, *key = _decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, msgspec.DecodeError, ValueError, TypeError, RecursionError):
        raise wrong_token() from None
    if name != listing:
        raise wrong_token()
    return key


def wrong_token() -> InvalidRequest:
    """Returns the error for a page token that is not of the listing."""
    return InvalidRequest.of(
        "page_token", "is not from this listing: pass next_page_token unchanged, and repeat the other fields"
    )
