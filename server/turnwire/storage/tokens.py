"""Where Turnwire's own tokens are: in a database of PostgreSQL, or in an SQLite file of their own."""

from pathlib import Path

from turnwire.storage.sql.tokens import SqlTokens
from turnwire.storage.sqlite.tokens import TokenFile


async def open_tokens(place: str, *, create: bool = True) -> SqlTokens:
    """Opens the tokens. Close them with `aclose`.

    Args:
        place: The address of the database, or the path of the file.
        create: Whether to make what is not there.

    Raises:
        StorageError: they are not there, or cannot be opened.
    """
    if not is_address(place):
        return await TokenFile.open(Path(place), create=create)
    from turnwire.storage.postgres.tokens import PostgresTokens  # noqa: PLC0415 - an extra

    return SqlTokens(await PostgresTokens.open(place, create=create))


def is_address(name: str) -> bool:
    """Returns whether a name is the address of a database of PostgreSQL."""
    return name.startswith(("postgresql://", "postgres://"))
