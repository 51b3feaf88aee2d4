"""`turnwire usage` and `turnwire quotas`: what a tenant has used, and what is left to it, as any client reads it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import grpc
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

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
from turnwire.cli.connection import ConnectionProblem, Endpoint, describe
from turnwire.cli.output import print_error, print_table
from turnwire.domain.money import PICO_USD

_SUMS = ("turns", "steps", "input", "output", "cost (USD)")
_QUOTAS = ("quota", "limit", "used", "left", "reset (UTC)")
_NUMBERS = frozenset({"turns", "steps", "input", "output", "limit", "used", "left"})

PAGE_SIZE = 100
"""Entries of one call."""

TIMEOUT_SECONDS = 60.0
"""Timeout of one call."""


def show_usage(
    connection: Endpoint,
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

        rows = _paged(page, lambda answer: answer.rows)
        if as_json:
            _print_lines(rows)
        else:
            print_table((*group_by, *_SUMS), (_usage_row(row, group_by, zone) for row in rows), _NUMBERS)
        return 0

    return _connected(connection, run)


def show_quotas(connection: Endpoint, *, as_json: bool) -> int:
    """Prints the quotas of a tenant, and what is left of them. Returns the exit code."""

    def run(channel: grpc.Channel) -> int:
        usage = UsageServiceStub(channel)

        def page(size: int, token: str) -> ListQuotasResponse:
            request = ListQuotasRequest(page_size=size, page_token=token)
            answer: ListQuotasResponse = usage.ListQuotas(request, timeout=TIMEOUT_SECONDS)
            return answer

        quotas = _paged(page, lambda answer: answer.quotas)
        if as_json:
            _print_lines(quotas)
        else:
            print_table(_QUOTAS, map(_quota_row, quotas), _NUMBERS)
        return 0

    return _connected(connection, run)


def _connected(connection: Endpoint, run: Callable[[grpc.Channel], int]) -> int:
    """Runs a command on an open channel. Returns its exit code, or that of a failure after one line about it."""
    try:
        with connection.open() as channel:
            return run(channel)
    except ConnectionProblem as problem:
        print_error(str(problem))
        return 2
    except grpc.RpcError as error:
        print_error(describe(error))
        return 1
    except KeyboardInterrupt:
        return 130


def _paged(page: Callable[[int, str], Any], entries: Callable[[Any], Any]) -> Iterator[Any]:
    """Yields the entries of all pages; asks for a page when the one before is used up."""
    token = ""
    while True:
        answer = page(PAGE_SIZE, token)
        yield from entries(answer)
        if not (token := answer.next_page_token):
            return


def _print_lines(messages: Iterable[Message]) -> None:
    """Prints messages of the contract, each as one line in protobuf's JSON form."""
    for message in messages:
        print(MessageToJson(message, indent=None), flush=True)


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
