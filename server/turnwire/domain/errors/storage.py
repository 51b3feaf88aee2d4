"""Errors of the store."""

from turnwire.domain.errors.base import DomainError


class StorageError(DomainError):
    """The database failed; nothing of the request was stored."""

    reason = "STORAGE_ERROR"

    may_pass = False
    """Whether the same work may succeed later: the disk or another process was in its way."""


class IdTaken(StorageError):
    """Something else has an id that was to be given, maybe of another tenant."""

    @classmethod
    def of(cls, kind: str, taken_id: str) -> "IdTaken":
        """Returns the error for one thing, such as a "message"."""
        return cls(f"{kind} {taken_id} is there already, and something else", {"id": taken_id})


class StorageBusy(StorageError):
    """Another process holds the database."""

    reason = "STORAGE_BUSY"
    may_pass = True


class StorageFull(StorageError):
    """No space is left for the database."""

    reason = "STORAGE_FULL"
    may_pass = True


class StorageCorrupt(StorageError):
    """The database file is damaged, not a database, or was deleted or replaced while it was open."""

    reason = "STORAGE_CORRUPT"


class StorageSchemaTooNew(StorageError):
    """The database was written by a newer version of Turnwire."""

    reason = "STORAGE_SCHEMA_TOO_NEW"
