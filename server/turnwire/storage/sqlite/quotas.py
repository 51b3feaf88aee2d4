"""Whether what a transaction stores keeps within the quotas of a tenant."""

import sqlite3
from collections.abc import Iterable

from turnwire.domain.accounts import QuotaName, check_count
from turnwire.storage.accounts import Delta


def check_totals(
    db: sqlite3.Connection, deltas: Iterable[Delta], added: Delta, *, max_sessions: int = 0, max_stored_bytes: int = 0
) -> None:
    """Refuses an addition to a tenant's totals, of which its transaction has made others already.

    Args:
        db: The connection.
        deltas: What the transaction has changed so far.
        added: What is to be added.
        max_sessions: What the tenant may have; 0 sets no limit.
        max_stored_bytes: The same for bytes.

    Raises:
        QuotaExceeded: it would have more.
    """
    find = "SELECT sessions, stored_bytes FROM tenant_totals WHERE tenant = ?"
    sessions, stored_bytes = db.execute(find, (added.tenant,)).fetchone() or (0, 0)
    for delta in deltas:
        if delta.tenant == added.tenant:
            sessions, stored_bytes = sessions + delta.sessions, stored_bytes + delta.stored_bytes
    if added.sessions > 0:
        check_count(added.tenant, QuotaName.SESSIONS, max_sessions, sessions, added.sessions)
    if added.stored_bytes > 0:
        check_count(added.tenant, QuotaName.STORED_BYTES, max_stored_bytes, stored_bytes, added.stored_bytes)
