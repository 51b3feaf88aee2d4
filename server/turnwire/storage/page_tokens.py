"""Page tokens: where a listing goes on, as opaque text."""

import base64
import binascii

import msgspec

from turnwire.domain.errors import InvalidRequest


def encode_token(listing: str, *key: int) -> str:
    """Returns the token for going on after the row with that sort key, in that listing."""
    return base64.urlsafe_b64encode(msgspec.json.encode([listing, *key])).decode().rstrip("=")


def decode_token(token: str, listing: str, length: int) -> tuple[int, ...]:
    """Returns the sort key in a token that `encode_token` made for the same listing.

    Raises:
        InvalidRequest: it is not such a token.
    """
    try:
        padded = token + "=" * (-len(token) % 4)
        name, *key = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, msgspec.DecodeError, ValueError, TypeError, RecursionError):
        name, key = "", []
    if name != listing or len(key) != length or not all(type(k) is int and -(2**62) < k < 2**62 for k in key):
        raise InvalidRequest.of("page_token", "is not a token of this listing; give next_page_token as it was")
    return tuple(key)
