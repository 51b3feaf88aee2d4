"""The form of Turnwire's own tokens: `tw_`, 43 random characters, 6 of a checksum.

The prefix helps people and scanners to recognise a token in a wrong place. The checksum distinguishes mistyped tokens
from tokens that do not exist; it is not a protection.
"""

import hashlib
import re
import secrets
import zlib

PREFIX = "tw_"

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_CHARACTERS = 43
"""Digits of base 62 for 256 bits."""
_CHECKSUM_CHARACTERS = 6
_FORM = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{_RANDOM_CHARACTERS + _CHECKSUM_CHARACTERS}}}")


def new_token() -> str:
    """Returns a new token with 256 bits of randomness."""
    randomness = _base62(secrets.randbits(256), _RANDOM_CHARACTERS)
    return f"{PREFIX}{randomness}{_checksum(randomness)}"


def problem_of(token: str) -> str:
    """Returns the reason why a text cannot be a token, or ""."""
    if not _FORM.fullmatch(token):
        return "not of the form of a token"
    if not token.endswith(_checksum(token[len(PREFIX) : -_CHECKSUM_CHARACTERS])):
        return "a mistyped token"
    return ""


def token_hash(token: str) -> bytes:
    """Returns the SHA-256 hash by which a token is stored or remembered; unsalted, because no token can be guessed."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), _CHECKSUM_CHARACTERS)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
