"""The accounts of tenants as SQL: adds to the usage, and reads at the start what is stored."""

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import lru_cache
from operator import itemgetter

from turnwire.domain.money import Consumption
from turnwire.storage.accounts import KEPT_DAYS, Delta, Ledger
from turnwire.storage.sql.columns import stored_bytes
from turnwire.storage.sql.database import Database, Dialect

_ADD_TOTAL = (
    "INSERT INTO tenant_totals (tenant, sessions, stored_bytes) VALUES (?, ?, ?) ON CONFLICT (tenant) DO UPDATE"
    " SET sessions = tenant_totals.sessions + excluded.sessions,"
    " stored_bytes = tenant_totals.stored_bytes + excluded.stored_bytes RETURNING sessions, stored_bytes"
)
_ADD_DAY = (
    "INSERT INTO usage_days (tenant, day, tokens, cost_pico_usd) VALUES (?, ?, ?, ?) ON CONFLICT (tenant, day)"
    " DO UPDATE SET tokens = usage_days.tokens + excluded.tokens,"
    " cost_pico_usd = usage_days.cost_pico_usd + excluded.cost_pico_usd"
)
_FORGET_DAYS = f"DELETE FROM usage_days WHERE tenant = ? AND day <= ? - {KEPT_DAYS}"
_FIRST_DAY = date(1970, 1, 1)


@lru_cache
def _stored_bytes(dialect: Dialect) -> str:
    """Returns SQL that counts from its rows what a session has stored."""
    body = dialect.byte_length("body")
    own = f"(SELECT coalesce(sum({body}), 0) FROM {{}} WHERE session = sessions.id)"
    settings = f"coalesce(sum({dialect.byte_length('settings')}), 0)"
    return " + ".join(
        (
            dialect.byte_length("sessions.body"),
            *map(own.format, ("turns", "permissions", "questions")),
            f"(SELECT {settings} FROM turns WHERE session = sessions.id)",
            f"(SELECT coalesce(sum({stored_bytes(dialect)}), 0) FROM messages WHERE session = sessions.id)",
            "(SELECT coalesce(sum(length(facts)), 0) FROM events WHERE events.session_id = sessions.session_id)",
        )
    )


def add_to_totals(db: Database, deltas: Sequence[Delta]) -> dict[str, tuple[int, int]]:
    """Adds the changes of a transaction's units. Costs a statement for each tenant, and for each of its days.

    The totals save the next start from counting over all sessions.

    Returns:
        The sessions and bytes that each of the tenants has without these changes. No other server adds to them before
        the end of the transaction.
    """
    spent: dict[tuple[str, date], Consumption] = {}
    for delta in deltas:
        for day, used in delta.spent:
            spent[delta.tenant, day] = spent.get((delta.tenant, day), Consumption()) + used
    # in the same order on all servers, so that none waits for another in a circle
    others = {
        tenant: (all_sessions - sessions, all_bytes - stored_bytes)
        for tenant, (sessions, stored_bytes) in sorted(_sums(deltas).items())
        if sessions or stored_bytes
        for all_sessions, all_bytes in db.rows(_ADD_TOTAL, (tenant, sessions, stored_bytes))
    }
    for (tenant, day), used in sorted(spent.items(), key=itemgetter(0)):
        number = (day - _FIRST_DAY).days
        db.run(_ADD_DAY, (tenant, number, used.tokens, used.cost_pico_usd))
        db.run(_FORGET_DAYS, (tenant, number))
    return others


def counted_totals(db: Database) -> list[Delta]:
    """Counts what all tenants have stored; returns it as additions to empty accounts. Reads all sessions."""
    sessions = db.rows("SELECT tenant, count(*), sum(stored_bytes) FROM live_sessions GROUP BY tenant")
    found = [Delta(tenant, count, stored) for tenant, count, stored in sessions]
    files = db.rows("SELECT tenant, sum(length(content)) FROM files GROUP BY tenant")
    found += [Delta(tenant, stored_bytes=stored) for tenant, stored in files]
    uploads = db.rows("SELECT tenant, sum(received_bytes) FROM uploads WHERE removed = 0 GROUP BY tenant")
    return found + [Delta(tenant, stored_bytes=size) for tenant, size in uploads]


def wrong_stored_bytes(db: Database) -> list[str]:
    """Returns the ids of sessions whose `stored_bytes` is not the sum of their rows. Reads the whole database."""
    wrong = f"stored_bytes <> {_stored_bytes(db.dialect)}"
    found = db.rows(f"SELECT session_id FROM live_sessions AS sessions WHERE {wrong} ORDER BY id")
    return [session_id for (session_id,) in found]


def wrong_totals(db: Database) -> list[str]:
    """Returns the tenants whose totals are not the sum of what they have stored."""
    counted = _sums(Delta(*row) for row in db.rows("SELECT tenant, sessions, stored_bytes FROM tenant_totals"))
    real = _sums(counted_totals(db))
    return sorted(
        tenant for tenant in real.keys() | counted.keys() if real.get(tenant, (0, 0)) != counted.get(tenant, (0, 0))
    )


def count_anew(db: Database) -> None:
    """Recounts all sessions and tenants, and writes their counters. Runs in the transaction of the caller."""
    counted = _stored_bytes(db.dialect)
    db.run(f"UPDATE sessions SET stored_bytes = {counted} WHERE stored_bytes <> {counted}")
    db.run("DELETE FROM tenant_totals")
    add_to_totals(db, counted_totals(db))


def stored_accounts(db: Database) -> list[Delta]:
    """Returns what all tenants have stored, and their usage of the newest days, as additions to empty accounts."""
    totals = db.rows("SELECT tenant, sessions, stored_bytes FROM tenant_totals")
    found = [Delta(*total) for total in totals]
    days = db.rows("SELECT tenant, day, tokens, cost_pico_usd FROM usage_days ORDER BY tenant, day")
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


def totals(db: Database, tenant: str) -> tuple[int, int]:
    """Returns the numbers of sessions and of bytes of a tenant; a transaction adds its own at its end."""
    find = "SELECT sessions, stored_bytes FROM tenant_totals WHERE tenant = ?"
    sessions, stored_bytes = db.row(find, (tenant,)) or (0, 0)
    return sessions, stored_bytes


def check_bytes(db: Database, ledger: Ledger, added: Delta, max_stored_bytes: int) -> None:
    """Raises QuotaExceeded when a tenant may not store that many more bytes; see `Ledger.check`."""
    ledger.check(totals(db, added.tenant), added, max_stored_bytes=max_stored_bytes)
