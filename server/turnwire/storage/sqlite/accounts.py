"""The accounts of tenants as SQL: adding to the usage, and reading what is stored at the start."""

import sqlite3
from datetime import UTC, date, datetime, timedelta

from turnwire.domain.accounts import QUARTER_SECONDS, Spending
from turnwire.domain.money import Consumption, Usage
from turnwire.domain.principal import is_staging
from turnwire.storage.accounts import KEPT_DAYS, Delta
from turnwire.storage.sqlite.uploads import changes as uploads

QUARTERS_OF_A_DAY = 86_400 // QUARTER_SECONDS

KNOWN = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "shown_output_tokens",
    "cost_pico_usd",
)
"""Columns that are NULL while nothing is known."""

COUNTS = ("steps", "steps_without_price", "turns", "estimated_steps")

_KEY = ("tenant", "quarter", "session_id", "subject", "provider_id", "model_id")

_COLUMNS = (*_KEY, *KNOWN, *COUNTS)

_ADD = (
    f"INSERT INTO usage ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
    f" ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET "
    + ", ".join(f"{name} = coalesce({name} + excluded.{name}, {name}, excluded.{name})" for name in KNOWN)
    + ", "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in COUNTS)
)

_TENANTS = """
WITH RECURSIVE found (tenant) AS (
    SELECT min(tenant) FROM usage
    UNION ALL SELECT (SELECT min(tenant) FROM usage WHERE tenant > found.tenant) FROM found WHERE tenant IS NOT NULL
) SELECT tenant FROM found WHERE tenant IS NOT NULL
"""
"""A look into the index for each tenant; DISTINCT would read all rows."""

_SPENT = f"""
SELECT quarter / {QUARTERS_OF_A_DAY}, sum(coalesce(input_tokens, 0) + coalesce(cache_read_tokens, 0)
        + coalesce(cache_write_tokens, 0) + coalesce(output_tokens, 0) + coalesce(reasoning_tokens, 0)),
    sum(coalesce(cost_pico_usd, 0))
FROM usage
WHERE tenant = ?1
    AND quarter > (SELECT max(quarter) FROM usage WHERE tenant = ?1) - {KEPT_DAYS * QUARTERS_OF_A_DAY}
GROUP BY 1
"""


def add_spending(db: sqlite3.Connection, spending: Spending) -> tuple[date, Consumption]:
    """Adds to the usage. Returns what it counts towards quotas, and the day for which it counts."""
    usage = spending.usage or Usage()
    tokens = (
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.shown_output,
    )
    key = (spending.session_id, spending.subject, spending.provider_id, spending.model_id)
    counts = (spending.steps, spending.steps_without_price, spending.turns, spending.estimated_steps)
    db.execute(_ADD, (spending.tenant, quarter(spending.at), *key, *tokens, spending.cost_pico_usd, *counts))
    return spending.at.astimezone(UTC).date(), spending.consumption


def stored_accounts(db: sqlite3.Connection) -> list[Delta]:
    """Returns what all tenants have stored, and their usage of the newest days, as additions to empty accounts."""
    sessions = db.execute("SELECT tenant, count(*), sum(stored_bytes) FROM sessions GROUP BY tenant")
    found = [Delta(tenant, count, stored) for tenant, count, stored in sessions if not is_staging(tenant)]
    files = db.execute("SELECT tenant, sum(length(content)) FROM files GROUP BY tenant")
    found += [Delta(tenant, stored_bytes=stored) for tenant, stored in files if not is_staging(tenant)]
    found += uploads.stored_bytes(db)
    for (tenant,) in db.execute(_TENANTS).fetchall():
        days = ((_day(number), Consumption(tokens, cost)) for number, tokens, cost in db.execute(_SPENT, (tenant,)))
        found.append(Delta(tenant, spent=tuple(days)))
    return found


def quarter(at: datetime) -> int:
    """Returns the number of the quarter of an hour, since 1970."""
    return int(at.timestamp() // QUARTER_SECONDS)


def _day(number: int) -> date:
    return date(1970, 1, 1) + timedelta(days=number)
