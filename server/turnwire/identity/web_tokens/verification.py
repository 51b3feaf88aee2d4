"""JSON web tokens of an identity provider: cheap checks first, then the signature, then the claims.

`JsonWebTokens.verify` checks in the order of cost: all checks without a signature come first. The result for a token is
remembered by its hash, so a token is checked once.
"""

import binascii
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jwt
import msgspec
from msgspec import Struct

from turnwire.domain.errors import Unauthenticated
from turnwire.domain.principal import TENANT_NAME, Principal, Role, is_subject
from turnwire.identity.access_tokens import token_hash
from turnwire.identity.settings import JwtSettings
from turnwire.identity.web_tokens.budget import VerificationBudget
from turnwire.identity.web_tokens.key_set import KeySet, VerificationKey
from turnwire.identity.web_tokens.remembered import Remembered

MAX_REMEMBERED = 10_000
"""Maximum valid tokens, and the same number of wrong ones: a few MiB."""

WRONG_SECONDS = 60.0
"""Time for which a wrong token is remembered."""

T = TypeVar("T")

_SHAPE = re.compile(r"([A-Za-z0-9_-]{2,4096})\.([A-Za-z0-9_-]{2,8192})\.([A-Za-z0-9_-]{2,2048})")


class _Header(Struct):
    alg: str
    kid: str | None = None


class _Claims(Struct):
    """Claims that can be checked before the signature. A claim of the wrong type makes the token wrong."""

    iss: str
    aud: str | list[str]
    exp: float
    nbf: float | None = None


class _Known(NamedTuple):
    principal: Principal
    expires_at: float


class JsonWebTokens:
    """Callers with tokens of one issuer: `start`, use, `aclose`."""

    def __init__(self, settings: JwtSettings, clock: Callable[[], float] = time.time) -> None:
        """Takes the settings, and a clock in seconds since 1970."""
        self._settings = settings
        self._clock = clock
        self._right: Remembered[_Known] = Remembered(MAX_REMEMBERED)
        self._wrong: Remembered[str] = Remembered(MAX_REMEMBERED)
        self._budget = VerificationBudget()
        self._keys = KeySet(settings.keys, settings.keys_max_age_seconds, self._right.clear)

    async def start(self) -> None:
        """Reads the keys."""
        await self._keys.start()

    async def aclose(self) -> None:
        """Stops reading keys. Idempotent."""
        await self._keys.aclose()

    def recall(self, token: str) -> Principal | None:
        """Returns the principal of a token that was checked before, or None.

        Raises:
            Unauthenticated: the token is known to be wrong, or has expired since.
        """
        digest, now = token_hash(token), self._clock()
        if (known := self._right.get(digest, now)) is not None:
            if known.expires_at <= now:
                raise Unauthenticated("an expired JWT")
            return known.principal
        if (cause := self._wrong.get(digest, now)) is not None:
            raise Unauthenticated(cause)
        return None

    async def verify(self, token: str, address: str) -> Principal:
        """Checks a token and remembers the result. Safe to cancel.

        Raises:
            Unauthenticated: the token is wrong.
            TooManySignIns: too many signatures are being checked.
        """
        key = await self._key(token)
        try:
            claims = self._checked(token, key, address)
            principal = self._principal(claims)
        except Unauthenticated as error:
            self._wrong.put(token_hash(token), error.cause, self._clock() + WRONG_SECONDS)
            raise
        expires_at = min(claims["exp"], 1e11) + self._settings.clock_skew_seconds
        # kept for some time after its end, so that an open stream of it ends too
        self._right.put(token_hash(token), _Known(principal, expires_at), expires_at + 86_400)
        return principal

    async def _key(self, token: str) -> VerificationKey:
        """Returns the key of a token, which may have to be read first. Does not remember that a key is unknown."""
        parts = _SHAPE.fullmatch(token)
        if parts is None:
            raise Unauthenticated("not of the form of a JWT")
        header = _decoded(parts[1], _Header)
        if header.alg not in self._settings.algorithms:
            raise Unauthenticated("a JWT with an algorithm that is not allowed")
        self._check_unsigned(_decoded(parts[2], _Claims))
        key = self._keys.find(header.kid, header.alg)
        if key is None:
            await self._keys.read_again()
            key = self._keys.find(header.kid, header.alg)
        if key is None:
            raise Unauthenticated("a JWT with an unknown key")
        return key

    def _check_unsigned(self, claims: _Claims) -> None:
        """Raises Unauthenticated for claims that are wrong whatever the signature is."""
        settings, now = self._settings, self._clock()
        audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
        if claims.iss != settings.issuer:
            raise Unauthenticated("a JWT of another issuer")
        if settings.audience not in audiences:
            raise Unauthenticated("a JWT for another audience")
        if not claims.exp + settings.clock_skew_seconds > now:
            raise Unauthenticated("an expired JWT")
        if claims.nbf is not None and not claims.nbf - settings.clock_skew_seconds <= now:
            raise Unauthenticated("a JWT that is not valid yet")

    def _checked(self, token: str, key: VerificationKey, address: str) -> dict[str, Any]:
        """Returns the claims of a token with a valid signature, with all checks of the library."""
        self._budget.take(address)
        try:
            return jwt.decode(
                token,
                key.key,
                algorithms=[algorithm for algorithm in self._settings.algorithms if key.fits(algorithm)],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=self._settings.clock_skew_seconds,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            self._budget.count_wrong(address)
            raise Unauthenticated(f"a JWT that fails its check: {type(error).__name__}") from None

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        settings = self._settings
        tenant = _claim(claims, settings.tenant_claim)
        if tenant is None:
            tenant = settings.default_tenant
        if not isinstance(tenant, str) or not TENANT_NAME.fullmatch(tenant):
            raise Unauthenticated("a JWT without a tenant")
        subject = _claim(claims, settings.subject_claim)
        if not isinstance(subject, str) or not is_subject(subject):
            raise Unauthenticated("a JWT without a subject")
        return Principal(tenant=tenant, subject=subject, role=self._role(_claim(claims, settings.role_claim)))

    def _role(self, claim: object) -> Role:
        named = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
        roles: Mapping[str, str] = self._settings.roles or {"reader": "reader", "writer": "writer", "admin": "admin"}
        found = [Role(roles[name]) for name in named if isinstance(name, str) and name in roles]
        if not found and self._settings.default_role is not None:
            found = [Role(self._settings.default_role)]
        if not found:
            raise Unauthenticated("a JWT without a role")
        return max(found, key=list(Role).index)


def _decoded(part: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=kind)
    except msgspec.ValidationError as error:  # names fields and types, and nothing of the token
        raise Unauthenticated(f"a JWT whose parts cannot be read: {error}") from None
    except (binascii.Error, ValueError, RecursionError):
        raise Unauthenticated("a JWT whose parts cannot be read") from None


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """Returns a claim; a name with dots leads into objects. None if it is absent."""
    if name in claims:
        return claims[name]
    value: object = claims
    for step in name.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value
