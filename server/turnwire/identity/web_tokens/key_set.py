"""The public keys of an identity provider (JWKS, RFC 7517)."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jwt
import msgspec
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from turnwire.event_loop.owner import context_without_owner
from turnwire.identity.web_tokens.key_source import KeySource, KeysUnavailable

MAX_KEYS = 100
"""Maximum keys of one provider; two or three are usual."""
MIN_RSA_BITS = 2048
"""Shorter keys are not safe."""

RETRY_SECONDS = 10.0
"""Minimum interval between two readings of the keys because of a token with an unknown key."""

MAX_WAITING = 64
"""Maximum calls with an unknown key that wait for keys. Further ones are rejected at once, and may try again."""

_CURVES = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}

log = structlog.get_logger()

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


class VerificationKey(NamedTuple):
    """A key and its algorithm."""

    key: PublicKey
    algorithm: str
    """The only algorithm, or "" for those of the key's type."""

    def fits(self, algorithm: str) -> bool:
        """Returns whether the key can verify signatures of that algorithm."""
        if self.algorithm and self.algorithm != algorithm:
            return False
        match self.key:
            case RSAPublicKey():
                return algorithm[:2] in ("RS", "PS")
            case EllipticCurvePublicKey():
                return _CURVES.get(algorithm) == self.key.curve.name
            case _:
                return algorithm == "EdDSA"


class KeySet:
    """The keys by their ids. `start` reads them once; known keys stay while the source cannot be reached."""

    def __init__(self, source: str, max_age_seconds: float, changed: Callable[[], None]) -> None:
        """Args:
        source: A file, or a URL.
        max_age_seconds: After this time the keys are read again.
        changed: Called when a key was removed or replaced, so that tokens which it signed are no longer trusted.
        """
        self._name = source
        self._source = KeySource(source)
        self._max_age = max_age_seconds
        self._changed = changed
        self._keys: Mapping[str, VerificationKey] = {}
        self._document = b""
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        """One reading at a time, shared by everything that waits for it. Ends within `key_source.FETCH_SECONDS`."""
        self._waiting = 0
        self._refreshing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads the keys, and again when they are old. A source that cannot be reached is only logged."""
        await self._read_shared()
        self._refreshing = asyncio.create_task(self._refresh(), name="keys of the identity provider")

    async def aclose(self) -> None:
        """Stops reading; a connection to the source is cut. Idempotent."""
        for task in (self._refreshing, self._reading):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """Returns the key for a token's header, or None. A token without a key id has the only key that fits."""
        if key_id is not None:
            key = self._keys.get(key_id)
            return key if key is not None and key.fits(algorithm) else None
        fitting = [key for key in self._keys.values() if key.fits(algorithm)]
        return fitting[0] if len(fitting) == 1 else None

    async def read_again(self) -> None:
        """Reads the keys because one is not known, unless that was done a moment ago. Safe to cancel."""
        if self._reading is None and time.monotonic() - self._read_at < RETRY_SECONDS:
            return
        if self._waiting >= MAX_WAITING:
            return
        self._waiting += 1
        try:
            await self._read_shared()
        finally:
            self._waiting -= 1

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(self._max_age)
            await self._read_shared()

    async def _read_shared(self) -> None:
        if self._reading is None:
            self._read_at = time.monotonic()
            self._reading = asyncio.create_task(self._read(), name="reading keys", context=context_without_owner())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        try:
            document = await self._source.read()
            keys = {} if document == self._document else _keys(document)
        except KeysUnavailable as error:
            log.error("keys_not_read", source=self._name, problem=str(error), keys=len(self._keys))
            return
        finally:
            self._reading = None
        if document == self._document:
            return
        gone = [key_id for key_id, key in self._keys.items() if not _same(key, keys.get(key_id))]
        log.info("keys_read", source=self._name, keys=len(keys), gone=len(gone))
        self._document, self._keys = document, keys
        if gone:
            self._changed()


def _same(one: VerificationKey, other: VerificationKey | None) -> bool:
    if other is None or one.algorithm != other.algorithm or type(one.key) is not type(other.key):
        return False
    return bool(one.key == other.key)


def _keys(document: bytes) -> dict[str, VerificationKey]:
    """Returns the usable keys of a document. Raises KeysUnavailable: it has none, or too many."""
    try:
        entries = msgspec.json.decode(document)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise KeysUnavailable("not a set of keys in JSON") from error
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise KeysUnavailable(f"not a list of at most {MAX_KEYS} keys")
    found = {}
    for number, entry in enumerate(entries):
        if (key := _key(entry)) is not None:
            found[str(entry.get("kid", f"key {number}"))] = key
    if not found:
        raise KeysUnavailable("no usable key: it takes RSA of at least 2048 bits, EC and Ed25519 keys")
    return found


def _key(entry: Any) -> VerificationKey | None:
    """Returns a public key for signatures; None for all other keys, including shared secrets."""
    if not isinstance(entry, dict) or entry.get("kty") not in ("RSA", "EC", "OKP") or entry.get("use", "sig") != "sig":
        return None
    try:
        key = jwt.PyJWK(entry).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        return None
    if not isinstance(key, RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey):
        return None
    algorithm = entry.get("alg")
    return VerificationKey(key, algorithm if isinstance(algorithm, str) else "")
