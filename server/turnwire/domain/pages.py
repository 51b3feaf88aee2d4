"""Pages of listings, and opaque tokens for the place where a listing continues."""

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from turnwire.domain.errors import InvalidRequest

T = TypeVar("T")

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
    rows: Iterable[T], place: Callable[[T], str], listing: str, *, size: int, token: str
) -> tuple[tuple[T, ...], str]:
    """Returns a page of a listing in memory, and the token of the next page ("" on the last).

    Rows added or removed between two pages do not move other rows.

    Args:
        rows: All rows, in any order.
        place: Returns the sort key of a row; no two are equal.
        listing: See `encode_token`.
        size: Most rows to return, at least 1.
        token: The token from the previous page; "" for the first.

    Raises:
        InvalidRequest: the token is of another listing or is malformed.
    """
    after = decode_token(token, listing, str)[0] if token else None
    found = sorted((row for row in rows if after is None or place(row) > after), key=place)
    page = tuple(found[:size])
    return page, encode_token(listing, place(page[-1])) if len(found) > size else ""


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
