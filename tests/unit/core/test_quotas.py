"""Quotas of counts, tokens and money."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.fakes.domain_values import NOW
from turnwire.core import quotas
from turnwire.core.quotas import RequestRates, TokenBucket, day_reset, month_reset, spending_exceeded
from turnwire.core.settings import CoreSettings, QuotaLimits, TenantSettings
from turnwire.domain.accounts import Account, QuotaName, check_count
from turnwire.domain.conversation.messages import ModelRef
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
    """Neither tokens nor money, however much was used."""
    used = Consumption(10**15, 10**24)
    assert spending_exceeded("acme", QuotaLimits(), Account(day=used, month=used), NOW) is None


def test_a_quota_of_spending_is_used_up_when_it_is_reached() -> None:
    """To the trillionth of a dollar; the message has the money exactly."""
    limits = QuotaLimits(max_cost_pico_usd_per_day=PicoUsd(3_000_000_001))
    almost = Account(day=Consumption(10**9, 3_000_000_000))
    assert spending_exceeded("acme", limits, almost, NOW) is None
    reached = spending_exceeded("acme", limits, Account(day=Consumption(0, 3_000_000_001)), NOW)
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


class Seconds:
    """A clock."""

    now = 100.0

    def __call__(self) -> float:
        """Returns the time."""
        return self.now


def _rates(clock: Seconds, **tenants: QuotaLimits) -> RequestRates:
    settings = {name: TenantSettings(quotas=quotas) for name, quotas in tenants.items()}
    return RequestRates(CoreSettings(default_model=ModelRef("offline", "echo"), tenants=settings), clock)


def test_a_bucket_admits_its_burst_and_then_its_rate() -> None:
    """A token comes back after the time of one request; more than the burst is never saved up."""
    bucket = TokenBucket(rate=4, burst=2, now=0)
    assert [bucket.take(0), bucket.take(0)] == [0, 0]
    assert bucket.take(0) == 0.25
    assert bucket.take(0.125) == 0.125
    assert bucket.take(0.25) == 0
    assert bucket.take(0.25) == 0.25
    assert [bucket.take(1000) for _ in range(3)] == [0, 0, 0.25]
    assert bucket.missing(1000) == 2
    assert bucket.missing(1000.25) == 1


def test_the_refusal_says_when_to_come_back() -> None:
    """A retry after exactly that time is admitted."""
    clock = Seconds()
    admitted = _rates(clock, acme=QuotaLimits(max_requests_per_second=3))
    for _ in range(3):
        admitted.admit("acme")
    assert admitted.used("acme") == 3
    with pytest.raises(QuotaExceeded) as refused:
        admitted.admit("acme")
    assert refused.value.retry_after == timedelta(microseconds=333_334)
    assert refused.value.metadata == {"quota": "requests_per_second", "limit": "3", "used": "3"}
    clock.now += refused.value.retry_after.total_seconds()
    admitted.admit("acme")


def test_tenants_have_a_rate_each() -> None:
    """One that has used up its own takes nothing from others; without a limit nothing is counted."""
    admitted = _rates(
        Seconds(),
        acme=QuotaLimits(max_requests_per_second=1, max_request_burst=2),
        other=QuotaLimits(max_requests_per_second=1),
    )
    admitted.admit("acme")
    admitted.admit("acme")
    with pytest.raises(QuotaExceeded):
        admitted.admit("acme")
    admitted.admit("other")
    for _ in range(1000):
        admitted.admit("unlimited")
    assert (admitted.used("unlimited"), len(admitted._buckets)) == (0, 2)


def test_buckets_that_are_full_again_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that memory does not grow with every tenant that ever called; used ones stay."""
    monkeypatch.setattr(quotas, "MAX_BUCKETS", 2)
    clock = Seconds()
    admitted = _rates(clock, **{name: QuotaLimits(max_requests_per_second=1) for name in ("a", "b", "c")})
    admitted.admit("a")
    clock.now += 10
    admitted.admit("b")
    admitted.admit("c")
    assert set(admitted._buckets) == {"b", "c"}
