"""Sums of usage, a day at a time: one query for a year would hold up all other reads for seconds."""

import asyncio
import heapq
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from turnwire.domain.accounts import QUARTER_SECONDS, UsageDimension, UsagePage, UsageQuery, UsageRow
from turnwire.domain.money import Usage, add_known
from turnwire.domain.pages import decode_token, encode_token
from turnwire.ports.pages import Page
from turnwire.storage.sqlite.accounts import COUNTS, KNOWN, quarter

SLICE = timedelta(days=1)
"""Time whose rows one query reads."""

_GROUPED = {
    "provider_id": UsageDimension.MODEL,
    "model_id": UsageDimension.MODEL,
    "session_id": UsageDimension.SESSION,
    "subject": UsageDimension.SUBJECT,
}

_SUMS = ", ".join(f"sum({name})" for name in (*KNOWN, *COUNTS))

_Group = tuple[str, str, str, str]
"""Provider, model, session and subject; "" where they are not grouped by."""

_Key = tuple[int, str, str, str, str]
"""The beginning of the period as a number of quarters, and the group."""

_Sums = tuple[int | None, ...]

GroupSums = tuple[_Group, _Sums]
"""A group, and the sums of the columns that are summed."""

ReadSums = Callable[[datetime, datetime], Awaitable[Iterable[GroupSums]]]
"""Reads the sums of the time between two moments."""


def sums_of(db: sqlite3.Connection, tenant: str, query: UsageQuery, start: datetime, end: datetime) -> list[GroupSums]:
    """Returns the sums of the time between two moments by the query's dimensions. Runs on the connection's thread."""
    group = ", ".join(name if by in query.group_by else "''" for name, by in _GROUPED.items())
    found = db.execute(
        f"SELECT {group}, {_SUMS} FROM usage WHERE tenant = ? AND quarter >= ? AND quarter < ? GROUP BY 1, 2, 3, 4",
        (tenant, quarter(start), quarter(end)),
    )
    return [(row[:4], row[4:]) for row in found]


async def usage(read: ReadSums, tenant: str, query: UsageQuery, page: Page) -> UsagePage:
    """Returns a page of the sums of a tenant's usage; see `TenantStore.usage`."""
    # not the end, which may be the present
    rows_listed = f"usage of {tenant} since {query.periods[0][0]} by {sorted(query.group_by)}"
    after = decode_token(page.token, rows_listed, int, str, str, str, str) if page.token else None
    size, found = page.size or 1, list[tuple[_Key, _Sums]]()
    for start, end in query.periods:
        begins = quarter(start)
        if after is not None and begins < after[0]:
            continue
        groups = await _period(read, start, end)
        # in a thread, because there may be many sessions
        keys = await asyncio.to_thread(_first_keys, groups, begins, after, size + 1 - len(found))
        found += [(key, groups[key[1:]]) for key in keys]
        if len(found) > size:
            break
    token = encode_token(rows_listed, *found[size - 1][0]) if len(found) > size else ""
    return UsagePage(tuple(_row(*key, *sums) for key, sums in found[:size]), token)


def _first_keys(groups: Iterable[_Group], begins: int, after: tuple[Any, ...] | None, count: int) -> list[_Key]:
    keys = ((begins, *group) for group in groups)
    return heapq.nsmallest(count, (key for key in keys if after is None or key > after))


async def _period(read: ReadSums, start: datetime, end: datetime) -> dict[_Group, _Sums]:
    groups: dict[_Group, _Sums] = {}
    for begin, stop in _slices(start, end):
        for group, sums in await read(begin, stop):
            before = groups.get(group)
            groups[group] = sums if before is None else tuple(map(add_known, before, sums))
    return groups


def _slices(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    while start < end:
        yield start, min(start + SLICE, end)
        start += SLICE


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
