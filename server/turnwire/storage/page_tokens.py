"""Page tokens: the place where a listing continues, as opaque text."""

import base64
import binascii

import msgspec

from turnwire.domain.errors import InvalidRequest


def encode_token(listing: str, *key: int) -> str:
    """Returns the token that continues a listing after the row with this sort key."""
    return base64.urlsafe_b64encode(msgspec.json.encode([listing, *key])).decode().rstrip("=")


def decode_token(token: str, listing: str, length: int) -> tuple[int, ...]:
    """Returns the sort key in a token that `encode_token` made for the same listing.

    Raises:
        InvalidRequest: the token is of another listing or is malformed.
    """
    try:
        padded = token + "=" * (-len(token) % 4)
        name, *key = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, msgspec.DecodeError, ValueError, TypeError, RecursionError):
        name, key = "", []
    if name != listing or len(key) != length or not all(type(k) is int and -(2**62) < k < 2**62 for k in key):
        raise InvalidRequest.of("page_token", "is not a page token of this listing; pass next_page_token unchanged")
    return tuple(key)
