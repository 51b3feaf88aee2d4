"""Callers and what identifies them, in memory."""

from collections.abc import Mapping

from turnwire.domain.errors import Unauthenticated
from turnwire.domain.principal import ANONYMOUS, Principal
from turnwire.ports.identity.authenticator import ClientCertificate


class FakeCaller:
    """A caller that presents what the test hands in. Implements `ports.identity.authenticator.Caller`."""

    def __init__(
        self,
        authorization: str | None = None,
        *,
        tenant: str | None = None,
        certificate: ClientCertificate | None = None,
        address: str = "192.0.2.1",
    ) -> None:
        """Takes what it presents."""
        self.authorization = authorization
        self.tenant = tenant
        self._certificate = certificate
        self._address = address

    def certificate(self) -> ClientCertificate | None:
        """Returns the certificate."""
        return self._certificate

    def address(self) -> str:
        """Returns the address."""
        return self._address


class KnownCallers:
    """Knows the principals of some values of `authorization`. Implements `Authenticator`."""

    offered = ("token",)

    def __init__(self, principals: Mapping[str, Principal]) -> None:
        """Takes the principals, which may change while it is used."""
        self.principals = principals

    def recall(self, caller: FakeCaller) -> Principal | None:
        """Returns the principal, the anonymous one for no credentials."""
        if caller.authorization is None:
            return ANONYMOUS
        if caller.authorization not in self.principals:
            raise Unauthenticated("not known")
        return self.principals[caller.authorization]

    async def verify(self, caller: FakeCaller) -> Principal:
        """Is never needed: all that are right are known."""
        raise NotImplementedError
