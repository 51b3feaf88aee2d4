"""Whether what a transaction stores keeps within the quotas of a tenant."""

import sqlite3
from collections.abc import Iterable

from turnwire.storage.accounts import Delta, check_totals


def totals(db: sqlite3.Connection, tenant: str) -> tuple[int, int]:
    """Returns how many sessions and bytes a tenant has; those of a transaction are added at its end."""
    find = "SELECT sessions, stored_bytes FROM tenant_totals WHERE tenant = ?"
    sessions, stored_bytes = db.execute(find, (tenant,)).fetchone() or (0, 0)
    return sessions, stored_bytes


def check_bytes(db: sqlite3.Connection, deltas: Iterable[Delta], added: Delta, max_stored_bytes: int) -> None:
    """Raises QuotaExceeded when a tenant may not store so much more; see `check_totals`."""
    check_totals(totals(db, added.tenant), deltas, added, max_stored_bytes=max_stored_bytes)
