"""Requests a second, by a clock that a test moves."""

from datetime import timedelta

import pytest

from turnwire.core.quotas import rates
from turnwire.core.quotas.rates import RequestRates, TokenBucket
from turnwire.core.settings import CoreSettings, QuotaLimits, TenantSettings
from turnwire.domain.conversation.messages import ModelRef
from turnwire.domain.errors import QuotaExceeded


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
    assert refused.value.retry_after is not None
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
    monkeypatch.setattr(rates, "MAX_BUCKETS", 2)
    clock = Seconds()
    admitted = _rates(clock, **{name: QuotaLimits(max_requests_per_second=1) for name in ("a", "b", "c")})
    admitted.admit("a")
    clock.now += 10
    admitted.admit("b")
    admitted.admit("c")
    assert set(admitted._buckets) == {"b", "c"}
