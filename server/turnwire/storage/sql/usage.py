"""Sums of usage, some rows at a time: one query for a year would block all other reads for seconds."""

import heapq
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import cast

from turnwire.domain.accounts import QUARTER_SECONDS, UsageDimension, UsagePage, UsageQuery, UsageRow
from turnwire.domain.money import Usage, add_known
from turnwire.domain.pages import decode_token, encode_token
from turnwire.ports.pages import Page
from turnwire.storage.rows import COUNTS, KNOWN, quarter
from turnwire.storage.sql.database import Database

MAX_ROWS = 2_000
"""Maximum rows that one query reads: some milliseconds, in which the connection reads nothing else."""

_GROUPED = {
    "provider_id": UsageDimension.MODEL,
    "model_id": UsageDimension.MODEL,
    "session_id": UsageDimension.SESSION,
    "subject": UsageDimension.SUBJECT,
}

_SUMS = ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in (*KNOWN, *COUNTS))

_PLACE = "(quarter, session_id, subject, provider_id, model_id)"
"""The order of the rows of a tenant, in which an index has them."""

_ROWS = f"FROM usage WHERE tenant = ? AND {_PLACE} >= (?, ?, ?, ?, ?) AND {_PLACE} < (?, ?, ?, ?, ?)"

_NEXT = f"SELECT {_PLACE[1:-1]} {_ROWS} ORDER BY {_PLACE[1:-1]} LIMIT 1 OFFSET ?"

_Place = tuple[int, str, str, str, str]

_Group = tuple[str, str, str, str]
"""Provider, model, session and subject; "" where they are not grouped by."""

_Sums = tuple[int | None, ...]

Read = Callable[[Callable[[Database], bool]], Awaitable[bool]]
"""Runs a function on the thread of a connection, and returns what it returned."""


async def usage(read: Read, tenant: str, query: UsageQuery, page: Page) -> UsagePage:
    """Returns a page of the sums of a tenant's usage; see `TenantStore.usage`."""
    # without the end, which may be the present
    rows_listed = f"usage of {tenant} since {query.periods[0][0]} by {sorted(query.group_by)}"
    after = decode_token(page.token, rows_listed, int, str, str, str, str) if page.token else None
    size, found = page.size or 1, list[tuple[int, _Group, _Sums]]()
    for start, end in query.periods:
        begins = quarter(start)
        if after is not None and begins < after[0]:
            continue
        behind = (after[1], after[2], after[3], after[4]) if after is not None and begins == after[0] else None
        period = _Period(tenant, query, (begins, quarter(end)), behind, size + 1 - len(found))
        while await read(period.read):
            pass
        found += [(begins, *row) for row in period.rows()]
        if len(found) > size:
            break
    token = encode_token(rows_listed, found[size - 1][0], *found[size - 1][1]) if len(found) > size else ""
    return UsagePage(tuple(_row(begins, *group, *sums) for begins, group, sums in found[:size]), token)


class _Period:
    """The first sums of a period, read some rows at a time on the connection's thread."""

    def __init__(
        self, tenant: str, query: UsageQuery, quarters: tuple[int, int], behind: _Group | None, most: int
    ) -> None:
        """Takes the first and the last quarter, the group after which to begin, and how many groups to keep."""
        self._tenant, self._behind, self._most = tenant, behind, most
        group = ", ".join(name if by in query.group_by else "''" for name, by in _GROUPED.items())
        self._query = f"SELECT {group}, {_SUMS} {_ROWS} GROUP BY 1, 2, 3, 4"
        self._place: _Place = (quarters[0], "", "", "", "")
        self._end: _Place = (quarters[1], "", "", "", "")
        self._sums: dict[_Group, _Sums] = {}
        """Sums of at most as many groups as are kept, and those of one query. A group that was left out can never
        become one of the first again, because those before it stay."""

    def read(self, db: Database) -> bool:
        """Adds the next rows. Returns whether there are more."""
        next_one = db.row(_NEXT, (self._tenant, *self._place, *self._end, MAX_ROWS))
        place = None if next_one is None else cast(_Place, next_one)
        for row in db.rows(self._query, (self._tenant, *self._place, *(place or self._end))):
            group, sums = row[:4], row[4:]
            if self._behind is None or group > self._behind:
                before = self._sums.get(group)
                self._sums[group] = sums if before is None else tuple(map(add_known, before, sums))
        if len(self._sums) > self._most:
            self._sums = dict(self.rows())
        self._place = place or self._end
        return place is not None

    def rows(self) -> list[tuple[_Group, _Sums]]:
        """Returns the first groups with their sums, in order."""
        return [(group, self._sums[group]) for group in heapq.nsmallest(self._most, self._sums)]


def _row(begins: int, provider_id: str, model_id: str, session_id: str, subject: str, *sums: int | None) -> UsageRow:
    *known, steps, steps_without_price, turns, estimated_steps = sums
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
        estimated_steps=estimated_steps or 0,
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
