"""The base of all errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar


def limit_facts(limit: str, value: float) -> dict[str, str]:
    """Returns the metadata that every refusal by a limit has.

    Args:
        limit: The name of the limit in docs/limits.md: a key such as "files.max_bytes", or a constant.
        value: What the limit is.
    """
    return {"limit": limit, "limitValue": str(value) if isinstance(value, int) else f"{value:g}"}


class DomainError(Exception):
    """Base of the tree. Every error has the same four attributes."""

    reason: ClassVar[str] = "INTERNAL"
    """Stable upper-case word; never changed once it has been sent."""

    def __init__(
        self, message: str, metadata: Mapping[str, str] | None = None, retry_after: timedelta | None = None
    ) -> None:
        """Args:
        message: A sentence for people. `metadata` also has every variable part of it.
        metadata: Facts by lowerCamelCase key.
        retry_after: How long to wait before a retry; None when a retry will not help or the time is unknown.
        """
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after


@dataclass(frozen=True)
class FieldViolation:
    """One invalid field."""

    field: str
    """Path in the request, such as `parts[0].file.url`."""
    description: str
    reason: str = "INVALID"
    """Upper-case word for programs."""
    limit: int | None = None
    """What the value is over; None when that is not what is wrong."""
