"""The accounts of tenants as SQL: adding to the usage, and reading what is stored at the start."""

import sqlite3
from collections.abc import Iterable
from datetime import date, timedelta

from turnwire.domain.money import Consumption
from turnwire.storage.accounts import KEPT_DAYS, Delta
from turnwire.storage.sql.columns import stored_bytes
from turnwire.storage.sqlite.database import SQLITE
from turnwire.storage.sqlite.uploads import rows as uploads

_ADD_TOTAL = (
    "INSERT INTO tenant_totals (tenant, sessions, stored_bytes) VALUES (?, ?, ?) ON CONFLICT (tenant) DO UPDATE"
    " SET sessions = sessions + excluded.sessions, stored_bytes = stored_bytes + excluded.stored_bytes"
)
_ADD_DAY = (
    "INSERT INTO usage_days (tenant, day, tokens, cost_pico_usd) VALUES (?, ?, ?, ?) ON CONFLICT (tenant, day)"
    " DO UPDATE SET tokens = tokens + excluded.tokens, cost_pico_usd = cost_pico_usd + excluded.cost_pico_usd"
)
_FORGET_DAYS = f"DELETE FROM usage_days WHERE tenant = ?1 AND day <= ?2 - {KEPT_DAYS}"
_FIRST_DAY = date(1970, 1, 1)

_OWN = "(SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM {} WHERE session = sessions.id)"
_STORED_BYTES = " + ".join(
    (
        "length(CAST(sessions.body AS BLOB))",
        *(_OWN.format(table) for table in ("turns", "permissions", "questions")),
        "(SELECT coalesce(sum(length(CAST(settings AS BLOB))), 0) FROM turns WHERE session = sessions.id)",
        f"(SELECT coalesce(sum({stored_bytes(SQLITE)}), 0) FROM messages WHERE session = sessions.id)",
        "(SELECT coalesce(sum(length(facts)), 0) FROM events WHERE events.session_id = sessions.session_id)",
    )
)
"""What a session has stored, counted anew from its rows."""


def add_to_totals(db: sqlite3.Connection, deltas: Iterable[Delta]) -> None:
    """Adds what the units of a transaction have changed. Costs a statement for each tenant, and for each of its days.

    A total tells the next start what would be counted over all sessions otherwise.
    """
    changed: dict[str, tuple[int, int]] = {}
    spent: dict[tuple[str, date], Consumption] = {}
    for delta in deltas:
        sessions, stored_bytes = changed.get(delta.tenant, (0, 0))
        changed[delta.tenant] = sessions + delta.sessions, stored_bytes + delta.stored_bytes
        for day, used in delta.spent:
            spent[delta.tenant, day] = spent.get((delta.tenant, day), Consumption()) + used
    for tenant, added in changed.items():
        if any(added):
            db.execute(_ADD_TOTAL, (tenant, *added))
    for (tenant, day), used in spent.items():
        number = (day - _FIRST_DAY).days
        db.execute(_ADD_DAY, (tenant, number, used.tokens, used.cost_pico_usd))
        db.execute(_FORGET_DAYS, (tenant, number))


def counted_totals(db: sqlite3.Connection) -> list[Delta]:
    """Returns what all tenants have stored, as it is, as additions to empty accounts. Reads all sessions."""
    sessions = db.execute("SELECT tenant, count(*), sum(stored_bytes) FROM live_sessions GROUP BY tenant")
    found = [Delta(tenant, count, stored) for tenant, count, stored in sessions]
    files = db.execute("SELECT tenant, sum(length(content)) FROM files GROUP BY tenant")
    found += [Delta(tenant, stored_bytes=stored) for tenant, stored in files]
    return found + uploads.stored_bytes(db)


def wrong_stored_bytes(db: sqlite3.Connection) -> list[str]:
    """Returns the ids of sessions whose `stored_bytes` is not what their rows have. Reads the whole database."""
    wrong = f"SELECT session_id FROM live_sessions AS sessions WHERE stored_bytes <> {_STORED_BYTES} ORDER BY id"
    return [session_id for (session_id,) in db.execute(wrong)]


def wrong_totals(db: sqlite3.Connection) -> list[str]:
    """Returns the tenants whose totals are not the sum of what they have."""
    counted = _sums(Delta(*row) for row in db.execute("SELECT tenant, sessions, stored_bytes FROM tenant_totals"))
    real = _sums(counted_totals(db))
    return sorted(
        tenant for tenant in real.keys() | counted.keys() if real.get(tenant, (0, 0)) != counted.get(tenant, (0, 0))
    )


def count_anew(db: sqlite3.Connection) -> None:
    """Writes the counters of all sessions and tenants anew. Runs in the transaction of the caller."""
    db.execute(f"UPDATE sessions SET stored_bytes = {_STORED_BYTES} WHERE stored_bytes <> {_STORED_BYTES}")
    db.execute("DELETE FROM tenant_totals")
    add_to_totals(db, counted_totals(db))


def stored_accounts(db: sqlite3.Connection) -> list[Delta]:
    """Returns what all tenants have stored, and their usage of the newest days, as additions to empty accounts."""
    totals = db.execute("SELECT tenant, sessions, stored_bytes FROM tenant_totals")
    found = [Delta(*total) for total in totals]
    days = db.execute("SELECT tenant, day, tokens, cost_pico_usd FROM usage_days ORDER BY tenant, day")
    found += [Delta(tenant, spent=((_day(day), Consumption(tokens, cost)),)) for tenant, day, tokens, cost in days]
    return found


def _sums(deltas: Iterable[Delta]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for delta in deltas:
        sessions, stored_bytes = found.get(delta.tenant, (0, 0))
        found[delta.tenant] = sessions + delta.sessions, stored_bytes + delta.stored_bytes
    return found


def _day(number: int) -> date:
    return _FIRST_DAY + timedelta(days=number)
