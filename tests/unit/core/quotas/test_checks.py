"""Quotas of counts, tokens and money."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW
from turnwire.core.quotas.checks import check_count, day_reset, month_reset, spending_exceeded
from turnwire.core.settings import NO_QUOTAS, QuotaLimits
from turnwire.domain.accounts import Account, QuotaName
from turnwire.domain.errors import QuotaExceeded
from turnwire.domain.money import Consumption, PicoUsd


@pytest.mark.parametrize(("limit", "used", "adding"), [(None, 99, 1), (0, 99, 1), (2, 1, 1), (10, 4, 6)])
def test_what_has_room_is_let_through(limit: int | None, used: int, adding: int) -> None:
    """Up to the limit; 0 sets none."""
    check_count("acme", QuotaName.SESSIONS, limit, used, adding)


@pytest.mark.parametrize(("limit", "used", "adding"), [(2, 2, 1), (2, 5, 1), (10, 5, 6)])
def test_what_has_no_room_is_refused(limit: int, used: int, adding: int) -> None:
    """With the numbers, and without a time where waiting does not help."""
    with pytest.raises(QuotaExceeded, match="quota sessions is used up") as refused:
        check_count("acme", QuotaName.SESSIONS, limit, used, adding)
    assert refused.value.metadata == {"quota": "sessions", "limit": str(limit), "used": str(used)}
    assert (refused.value.retry_after, refused.value.tenant) == (None, "acme")


def test_nothing_is_limited_where_nothing_is_configured() -> None:
    """Neither counts nor tokens nor money, however much was used."""
    assert set(msgspec.structs.astuple(NO_QUOTAS)) == {0}
    used = Consumption(10**15, 10**24)
    assert spending_exceeded("acme", NO_QUOTAS, Account(day=used, month=used), NOW) is None


def test_a_quota_of_spending_is_used_up_when_it_is_reached() -> None:
    """To the trillionth of a dollar; the message has the money exactly."""
    limits = QuotaLimits(max_cost_pico_usd_per_day=PicoUsd(3_000_000_001))
    almost = Account(day=Consumption(10**9, 3_000_000_000))
    assert spending_exceeded("acme", limits, almost, NOW) is None
    reached = spending_exceeded("acme", limits, Account(day=Consumption(0, 3_000_000_001)), NOW)
    assert reached is not None
    assert "0.003000000001 of 0.003000000001 USD" in reached.message
    assert reached.metadata == {"quota": "cost_pico_usd_per_day", "limit": "3000000001", "used": "3000000001"}
    assert reached.retry_after == day_reset(NOW) - NOW


@pytest.mark.parametrize(
    ("limits", "quota"),
    [
        (QuotaLimits(max_tokens_per_day=5), "tokens_per_day"),
        (QuotaLimits(max_tokens_per_month=50), "tokens_per_month"),
        (QuotaLimits(max_cost_pico_usd_per_month=PicoUsd(70)), "cost_pico_usd_per_month"),
        (QuotaLimits(max_tokens_per_day=5, max_tokens_per_month=50), "tokens_per_month"),
        (QuotaLimits(max_tokens_per_day=6, max_tokens_per_month=51), ""),
    ],
)
def test_the_quota_that_is_reset_last_is_named(limits: QuotaLimits, quota: str) -> None:
    """To wait for the other one would not help."""
    account = Account(day=Consumption(5, 7), month=Consumption(50, 70))
    found = spending_exceeded("acme", limits, account, NOW)
    assert ("" if found is None else found.metadata["quota"]) == quota


def test_days_and_months_end_in_utc() -> None:
    """Wherever the moment is given."""
    evening = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    elsewhere = evening.astimezone(datetime.now().astimezone().tzinfo)
    assert day_reset(elsewhere) == month_reset(elsewhere) == datetime(2027, 1, 1, tzinfo=UTC)
    assert month_reset(datetime(2028, 2, 1, tzinfo=UTC)) == datetime(2028, 3, 1, tzinfo=UTC)
    assert day_reset(datetime(2028, 2, 29, tzinfo=UTC)) - datetime(2028, 2, 29, tzinfo=UTC) == timedelta(days=1)
