"""`turnwire usage` and `turnwire quotas`: what a tenant has used, and what is left to it, as any client reads it."""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from rich.table import Column

from opencode.usage.usage_pb2 import (
    ListQuotasRequest,
    ListQuotasResponse,
    QueryUsageRequest,
    QueryUsageResponse,
    Quota,
    UsageDimension,
    UsageRow,
)
from opencode.usage.usage_pb2_grpc import UsageServiceStub
from turnwire.cli.connection import Connection
from turnwire.cli.operator.calls import TIMEOUT_SECONDS, connected, paged, print_lines
from turnwire.cli.operator.output import print_table
from turnwire.domain.money import PICO_USD

_DIMENSIONS = {
    "day": ("day", 10),
    "model": ("model", 32),
    "session": ("session", 36),
    "subject": ("subject", 24),
}
"""The columns of what usage is grouped by: head and width."""

_SUMS = (
    Column("turns", width=7, justify="right"),
    Column("steps", width=7, justify="right"),
    Column("input", width=13, justify="right"),
    Column("output", width=13, justify="right"),
    Column("cost (USD)"),
)
_QUOTAS = (
    Column("quota", width=24),
    Column("limit", width=20, justify="right"),
    Column("used", width=20, justify="right"),
    Column("left", width=20, justify="right"),
    Column("reset (UTC)"),
)


def show_usage(
    connection: Connection,
    group_by: Sequence[str],
    begin: datetime | None,
    end: datetime | None,
    time_zone: str,
    *,
    as_json: bool,
) -> int:
    """Prints sums of usage: a row for each combination that has some. Returns the exit code.

    Args:
        connection: The server, and the tenant whose usage it is.
        group_by: Names of dimensions, in the order of the columns.
        begin: Days are those of the time zone. None: the beginning of the month.
        end: Not part of the range. None: the present.
        time_zone: A name, such as "Europe/Berlin"; "" is UTC.
        as_json: Whether to print JSON.
    """
    zone = ZoneInfo(time_zone) if time_zone else UTC

    def run(channel: grpc.Channel) -> int:
        usage = UsageServiceStub(channel)

        def page(size: int, token: str) -> QueryUsageResponse:
            request = QueryUsageRequest(
                start_time=_moment(begin, zone),
                end_time=_moment(end, zone),
                group_by=[UsageDimension.Value(f"USAGE_DIMENSION_{name.upper()}") for name in group_by],
                time_zone=time_zone,
                page_size=size,
                page_token=token,
            )
            answer: QueryUsageResponse = usage.QueryUsage(request, timeout=TIMEOUT_SECONDS)
            return answer

        rows = paged(page, lambda answer: answer.rows)
        if as_json:
            print_lines(rows)
        else:
            heads = [Column(head, width=width) for head, width in map(_DIMENSIONS.__getitem__, group_by)]
            print_table((*heads, *_SUMS), (_usage_row(row, group_by, zone) for row in rows))
        return 0

    return connected(connection, run)


def show_quotas(connection: Connection, *, as_json: bool) -> int:
    """Prints the quotas of a tenant, and what is left of them. Returns the exit code."""

    def run(channel: grpc.Channel) -> int:
        usage = UsageServiceStub(channel)

        def page(size: int, token: str) -> ListQuotasResponse:
            request = ListQuotasRequest(page_size=size, page_token=token)
            answer: ListQuotasResponse = usage.ListQuotas(request, timeout=TIMEOUT_SECONDS)
            return answer

        quotas = paged(page, lambda answer: answer.quotas)
        if as_json:
            print_lines(quotas)
        else:
            print_table(_QUOTAS, map(_quota_row, quotas))
        return 0

    return connected(connection, run)


def _moment(time: datetime | None, zone: tzinfo) -> Timestamp | None:
    if time is None:
        return None
    moment = Timestamp()
    moment.FromDatetime(time.replace(tzinfo=zone))
    return moment


def _usage_row(row: UsageRow, group_by: Sequence[str], zone: tzinfo) -> tuple[str, ...]:
    names: dict[str, Any] = {
        "day": f"{row.day_start_time.ToDatetime(UTC).astimezone(zone):%Y-%m-%d}",
        "model": f"{row.provider_id}/{row.model_id}",
        "session": row.session_id,
        "subject": row.subject,
    }
    cost = _money(row.cost_pico_usd) if row.HasField("cost_pico_usd") else ""
    unknown = f"{row.steps_without_price:,} steps without price" if row.steps_without_price else ""
    estimated = f"{row.estimated_steps:,} estimated" if row.estimated_steps else ""
    sums = (row.turns, row.steps, row.usage.input_tokens, row.usage.output_tokens)
    last = ", ".join(filter(None, (cost, unknown, estimated)))
    return (*(names[name] for name in group_by), *(f"{number:,}" for number in sums), last)


def _quota_row(quota: Quota) -> tuple[str, ...]:
    show = _money if quota.name.startswith("cost_pico_usd") else "{:,}".format
    name = quota.name.replace("cost_pico_usd", "cost_usd")
    reset = f"{quota.reset_time.ToDatetime(UTC):%Y-%m-%d %H:%M}" if quota.HasField("reset_time") else ""
    if not quota.limit:
        return (name, "none", show(quota.used), "", reset)
    return (name, show(quota.limit), show(quota.used), show(max(0, quota.limit - quota.used)), reset)


def _money(pico_usd: int) -> str:
    return f"{pico_usd / PICO_USD:,.6f}"
