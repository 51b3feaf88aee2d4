"""Sums of usage. Runs on the reading connection's thread."""

import json
import sqlite3
from datetime import UTC, datetime

from turnwire.domain.accounts import QUARTER_SECONDS, UsageDimension, UsagePage, UsageQuery, UsageRow
from turnwire.domain.money import Usage, add_known
from turnwire.domain.pages import decode_token, encode_token
from turnwire.ports.store import Page
from turnwire.storage.sqlite.accounts import COUNTS, KNOWN, quarter
from turnwire.storage.sqlite.reading.pages import cut, limit_of

_GROUPED = {
    "provider_id": UsageDimension.MODEL,
    "model_id": UsageDimension.MODEL,
    "session_id": UsageDimension.SESSION,
    "subject": UsageDimension.SUBJECT,
}

_BEGINS, _ENDS = "json_extract(period.value, '$[0]')", "json_extract(period.value, '$[1]')"

_SUMS = ", ".join(f"sum({name})" for name in (*KNOWN, *COUNTS))


def usage(db: sqlite3.Connection, tenant: str, query: UsageQuery, page: Page) -> UsagePage:
    """Returns sums of usage; see `Store.usage`."""
    periods = json.dumps([[quarter(start), quarter(end)] for start, end in query.periods])
    # not the end, which may be the present
    rows_listed = f"usage of {tenant} since {query.periods[0][0]} by {sorted(query.group_by)}"
    key = ", ".join([_BEGINS, *(name if by in query.group_by else "''" for name, by in _GROUPED.items())])
    after, parameters = "", []
    if page.token:
        after = f"AND ({key}) > (?, ?, ?, ?, ?)"
        parameters = [*decode_token(page.token, rows_listed, int, str, str, str, str)]
    found = db.execute(
        f"SELECT {key}, {_SUMS} FROM json_each(?) AS period CROSS JOIN usage"
        f" WHERE tenant = ? AND quarter >= {_BEGINS} AND quarter < {_ENDS} {after}"
        " GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5 LIMIT ?",
        (periods, tenant, *parameters, limit_of(page)),
    )
    rows, more = cut(found.fetchall(), page)
    token = encode_token(rows_listed, *rows[-1][:5]) if more else ""
    return UsagePage(tuple(_row(*row) for row in rows), token)


def _row(begins: int, provider_id: str, model_id: str, session_id: str, subject: str, *sums: int | None) -> UsageRow:
    *known, steps, steps_without_price, turns = sums
    return UsageRow(
        start=datetime.fromtimestamp(begins * QUARTER_SECONDS, UTC),
        provider_id=provider_id,
        model_id=model_id,
        session_id=session_id,
        subject=subject,
        usage=_usage(known[:-1]),
        cost_pico_usd=known[-1],
        steps=steps or 0,
        steps_without_price=steps_without_price or 0,
        turns=turns or 0,
    )


def _usage(known: list[int | None]) -> Usage | None:
    fresh, cache_read, cache_write, output, reasoning, shown = known
    if all(tokens is None for tokens in known):
        return None
    return Usage(
        input_tokens=fresh,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        output_tokens=output,
        reasoning_tokens=reasoning,
        reported_output_tokens=None if shown == add_known(output, reasoning) else shown,
    )
