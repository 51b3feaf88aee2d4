"""opencode.usage.UsageService."""

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from opencode.usage import usage_pb2 as pb
from turnwire.api.wire.answers import outcomes, times
from turnwire.api.wire.requests import pages
from turnwire.api.wire.requests.checks import Checks
from turnwire.core.use_cases.usage import QuotaState, UsageAsked, UsageReports
from turnwire.domain.accounts import UsageDimension, UsageRow
from turnwire.domain.principal import Principal

_DIMENSIONS = {pb.UsageDimension.Value(f"USAGE_DIMENSION_{by.name}"): by for by in UsageDimension}


class UsageService:
    """Method by method as the contract describes them."""

    def __init__(self, reports: UsageReports) -> None:
        """Takes the use cases."""
        self._reports = reports

    async def QueryUsage(self, principal: Principal, request: pb.QueryUsageRequest) -> pb.QueryUsageResponse:
        """Returns a page of sums of usage."""
        page = pages.page(request.page_size, request.page_token, default=pages.DEFAULT_PAGE_SIZE)
        asked = _asked(request)
        found = await self._reports.query(principal, asked, page)
        by_day = UsageDimension.DAY in asked.group_by
        return pb.QueryUsageResponse(
            rows=(_row(row, by_day=by_day) for row in found.rows), next_page_token=found.next_token
        )

    async def ListQuotas(self, principal: Principal, request: pb.ListQuotasRequest) -> pb.ListQuotasResponse:
        """Returns a page of the quotas of the caller's tenant."""
        page = pages.page(request.page_size, request.page_token, default=pages.DEFAULT_PAGE_SIZE)
        found = await self._reports.quotas(principal, size=page.size or pages.DEFAULT_PAGE_SIZE, token=page.token)
        return pb.ListQuotasResponse(quotas=map(_quota, found.quotas), next_page_token=found.next_token)


def _asked(request: pb.QueryUsageRequest) -> UsageAsked:
    checks = Checks()
    for index, number in enumerate(request.group_by):
        if number not in _DIMENSIONS:
            checks.fail(f"group_by[{index}]", "is not a dimension of this server")
    asked = UsageAsked(
        start=_moment(checks, "start_time", request.start_time) if request.HasField("start_time") else None,
        end=_moment(checks, "end_time", request.end_time) if request.HasField("end_time") else None,
        group_by=frozenset(_DIMENSIONS[number] for number in request.group_by if number in _DIMENSIONS),
        time_zone=request.time_zone,
        tenant=request.tenant,
    )
    checks.done()
    return asked


def _moment(checks: Checks, field: str, sent: Timestamp) -> datetime | None:
    """Returns a moment that leaves days of any time zone on both sides."""
    try:
        moment = sent.ToDatetime(UTC)
    except (ValueError, OverflowError):
        moment = None
    if moment is None or not 1970 < moment.year < 9999:
        checks.fail(field, "is not a moment from 1971 to 9998", "OUT_OF_RANGE")
        return None
    return moment


def _row(row: UsageRow, *, by_day: bool) -> pb.UsageRow:
    return pb.UsageRow(
        day_start_time=times.timestamp(row.start) if by_day else None,
        provider_id=row.provider_id,
        model_id=row.model_id,
        session_id=row.session_id,
        subject=row.subject,
        usage=outcomes.usage(row.usage),
        cost_pico_usd=row.cost_pico_usd,
        steps=row.steps,
        steps_without_price=row.steps_without_price,
        turns=row.turns,
        estimated_steps=row.estimated_steps,
    )


def _quota(quota: QuotaState) -> pb.Quota:
    reset = None if quota.reset_at is None else times.timestamp(quota.reset_at)
    return pb.Quota(name=quota.name, limit=quota.limit, used=quota.used, reset_time=reset)
