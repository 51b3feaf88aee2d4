"""The store of Turnwire's own tokens. One task at a time may use it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from turnwire.domain.principal import Principal


class TokenRecord(Struct, frozen=True, kw_only=True):
    """The stored record of a token: never the token itself."""

    token_id: str
    """Names the token to people; opens nothing."""
    token_hash: bytes
    """SHA-256 hash of the token."""
    principal: Principal
    created_at: datetime
    expires_at: datetime | None
    """None: never."""
    last_used_at: datetime | None
    """None: never. At most a minute and a second late."""
    revoked_at: datetime | None


class TokenBook(Protocol):
    """All tokens. Several processes use it at the same time: a server and the commands that create and revoke."""

    async def add(self, record: TokenRecord) -> None:
        """Stores a new token durably. Raises StorageError."""
        ...

    async def revoke(self, token_id: str, when: datetime) -> bool:
        """Marks a token as revoked, durably. A token that is revoked already keeps its time.

        Returns:
            False if there is no such token.

        Raises:
            StorageError: the change was not stored.
        """
        ...

    async def all(self) -> tuple[TokenRecord, ...]:
        """Returns every token, revoked and expired ones too, oldest first. Raises StorageError."""
        ...

    async def changed(self) -> bool:
        """Returns whether another process has changed the tokens since the last call of `all`; True before the first.

        Reads little. A file that was deleted or replaced counts as changed.

        Raises:
            StorageError: that cannot be found out.
        """
        ...

    async def note_uses(self, uses: Mapping[str, datetime]) -> None:
        """Stores the time of last use by token id. Unknown ids are skipped. Raises StorageError."""
        ...

    async def aclose(self) -> None:
        """Closes the file, or the connection. Idempotent."""
        ...
