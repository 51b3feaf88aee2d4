"""Identifies callers by their credential: one of Turnwire's own tokens, a JSON web token, or a client certificate."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnwire.domain.errors import Unauthenticated
from turnwire.domain.networks import network_of
from turnwire.domain.principal import ANONYMOUS, Principal
from turnwire.identity.access_tokens import PREFIX
from turnwire.identity.certificates import Certificates
from turnwire.identity.own_tokens import OwnTokens
from turnwire.ports.identity.authenticator import MAX_CREDENTIAL_BYTES, Caller

if TYPE_CHECKING:  # its package may be missing where web tokens are not configured
    from turnwire.identity.web_tokens.verification import JsonWebTokens

_SCHEME = "bearer "


class Authentication:
    """The ways to sign in that are configured. Implements `ports.identity.authenticator.Authenticator`."""

    def __init__(
        self,
        offered: Sequence[str],
        *,
        tokens: OwnTokens | None = None,
        jwt: "JsonWebTokens | None" = None,
        certificates: Certificates | None = None,
    ) -> None:
        """Takes the names of the ways to sign in, and the configured ones, which the caller starts and closes."""
        self._offered = tuple(offered)
        self._tokens = tokens
        self._jwt = jwt
        self._certificates = certificates

    @property
    def offered(self) -> tuple[str, ...]:
        """The ways to sign in."""
        return self._offered

    def recall(self, caller: Caller) -> Principal | None:
        """Returns the principal if memory has it. A token takes precedence over a certificate."""
        authorization = caller.authorization
        if authorization is None:
            certificate = caller.certificate() if self._certificates is not None else None
            if self._certificates is None or certificate is None:
                return ANONYMOUS
            return self._certificates.principal(certificate)
        token = _bearer(authorization)
        if self._tokens is not None and token.startswith(PREFIX):
            return self._tokens.principal(token)
        if self._jwt is None:
            raise Unauthenticated("a token of a kind that is not offered")
        return self._jwt.recall(token)

    async def verify(self, caller: Caller) -> Principal:
        """Checks a JSON web token; other credentials are known without."""
        if (known := self.recall(caller)) is not None:
            return known
        assert self._jwt is not None and caller.authorization is not None
        return await self._jwt.verify(_bearer(caller.authorization), network_of(caller.address()))


def _bearer(authorization: str) -> str:
    if len(authorization) > MAX_CREDENTIAL_BYTES:
        raise Unauthenticated("longer than any token")
    if authorization[: len(_SCHEME)].lower() != _SCHEME:
        raise Unauthenticated("no bearer token")
    return authorization[len(_SCHEME) :].strip(" ")
