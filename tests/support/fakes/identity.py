"""Callers and what identifies them, in memory."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta

from turnwire.api.admission.overload import Overload
from turnwire.domain.errors import Unauthenticated
from turnwire.domain.limits import Limits
from turnwire.domain.principal import ANONYMOUS, Principal, Role
from turnwire.ports.identity.token_book import TokenRecord

START = datetime(2026, 1, 1, tzinfo=UTC)


def token_record(number: int, expires_at: datetime | None = None) -> TokenRecord:
    """A token, later than those of lower numbers."""
    return TokenRecord(
        token_id=f"tok_{number}",
        token_hash=bytes([number]) * 32,
        principal=Principal(tenant="acme", subject="eve", role=Role.WRITER),
        created_at=START + timedelta(seconds=number),
        expires_at=expires_at,
        last_used_at=None,
        revoked_at=None,
    )


class FakeCaller:
    """A caller that presents what the test hands in. Implements `ports.identity.authenticator.Caller`."""

    def __init__(
        self, authorization: str | None = None, *, tenant: str | None = None, address: str = "192.0.2.1"
    ) -> None:
        self.authorization = authorization
        self.tenant = tenant
        self._address = address

    metadata_bytes = 100

    def connection(self) -> str:
        """Returns the address with a port."""
        return f"{self._address}:1"

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


MAX_MESSAGE_BYTES = 2**24


def some_load(**limits: int) -> Overload:
    """Returns what bounds calls, with room for all calls of a test unless it names a limit."""
    return Overload(Limits(**limits), MAX_MESSAGE_BYTES)  # type: ignore[arg-type]


def sent(data: bytes) -> Callable[[], Awaitable[bytes]]:
    """Returns what receives these bytes as a request."""

    async def receive() -> bytes:
        return data

    return receive
