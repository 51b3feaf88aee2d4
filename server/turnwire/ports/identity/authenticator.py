"""Authentication: turns the credentials that a listener received into a `Principal`."""

from typing import Protocol

from msgspec import Struct

from turnwire.domain.principal import Principal

MAX_CREDENTIAL_BYTES = 8192
"""Longer values of `authorization` are rejected unread. Tokens of large organisations have up to about 5 KiB."""


NAME_KINDS = ("DNS", "email", "URI")
"""Kinds of alternative names that can name a person or a service."""


class ClientCertificate(Struct, frozen=True):
    """A client certificate whose chain the listener has verified. Equal values are the same identity."""

    common_name: str
    """CN of the certificate's subject, or ""."""
    alternative_name: str
    """The first subject alternative name, after its kind (`NAME_KINDS`), such as "DNS:ci.example". "" if there is none,
    if it is of another kind, or if a name of another kind has the same text, because gRPC does not distinguish them."""


class Caller(Protocol):
    """Facts that a listener knows about the sender of one call. A method costs time only when it is called."""

    @property
    def authorization(self) -> str | None:
        """The value of the `authorization` metadata, such as "Bearer ..."; None if it is absent.

        A caller that sends it more than once has the value "", which is never valid.
        """
        ...

    @property
    def tenant(self) -> str | None:
        """The value of the `turnwire-tenant` metadata: the tenant to act for; None if it is absent."""
        ...

    @property
    def metadata_bytes(self) -> int:
        """Size of what the caller sent before its request: names and values of metadata or headers."""
        ...

    def connection(self) -> str:
        """Returns a text of the connection, equal for its calls only; "" if it is unknown. Only for limits."""
        ...

    def certificate(self) -> ClientCertificate | None:
        """Returns the verified certificate of the connection; None if the client presented none."""
        ...

    def address(self) -> str:
        """Returns the network address without the port, or "" if it is unknown. Only for limits and logs."""
        ...


class Authenticator(Protocol):
    """Identifies callers. Every listener uses the same one."""

    @property
    def offered(self) -> tuple[str, ...]:
        """The ways to sign in: "token", "jwt", "mtls". Empty when callers are not identified."""
        ...

    def recall(self, caller: Caller) -> Principal | None:
        """Returns the principal if the credentials are known to be valid now, without reading anything from a disk.

        Returns `ANONYMOUS` for a caller without credentials, and None when only `verify` can decide.

        Raises:
            Unauthenticated: the credentials are known to be wrong, expired or revoked.
        """
        ...

    async def verify(self, caller: Caller) -> Principal:
        """Returns the principal after checking the credentials. Safe to cancel and to repeat.

        Raises:
            Unauthenticated: the credentials are wrong, expired or revoked.
            TooManySignIns: too many credentials are being checked.
        """
        ...
