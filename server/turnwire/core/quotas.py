"""Quotas: what each tenant may store and use, and how many requests a second it may send.

Counts are exact: nothing is awaited between a check and the change that it permits, and the store itself checks what is
stored (`ports.commit.RequireQuota`). Tokens and money are known after a step, so the last step may exceed its quota.
Turns, waiting messages and spending of other nodes of a cluster are known a second later. Watchers and rates are
counted by each node.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from time import monotonic

from turnwire.core.environment import Environment
from turnwire.core.settings import CoreSettings, QuotaLimits
from turnwire.domain.accounts import Account, QuotaName, exceeded
from turnwire.domain.errors import QuotaExceeded

SOON = timedelta(seconds=1)
"""Retry delay for a limit that frees up when other work ends, which cannot be predicted."""


def spending_exceeded(tenant: str, limits: QuotaLimits, account: Account, now: datetime) -> QuotaExceeded | None:
    """Returns the error for a tenant whose tokens or money are used up; None when it may call a model.

    Of several quotas, it names the one that is reset last: waiting for another one would not help.
    """
    month, day = month_reset(now), day_reset(now)
    for quota, limit, used, reset in (
        (QuotaName.COST_PER_MONTH, limits.max_cost_pico_usd_per_month, account.month.cost_pico_usd, month),
        (QuotaName.TOKENS_PER_MONTH, limits.max_tokens_per_month, account.month.tokens, month),
        (QuotaName.COST_PER_DAY, limits.max_cost_pico_usd_per_day, account.day.cost_pico_usd, day),
        (QuotaName.TOKENS_PER_DAY, limits.max_tokens_per_day, account.day.tokens, day),
    ):
        if limit and used >= limit:
            return exceeded(tenant, quota, limit, used, reset - now)
    return None


def exceeded_spending(environment: Environment, tenant: str) -> QuotaExceeded | None:
    """Returns `spending_exceeded` for the present account of a tenant."""
    now = environment.clock()
    account = environment.store.of(tenant).account(now)
    return spending_exceeded(tenant, environment.settings.quotas_of(tenant), account, now)


def day_reset(now: datetime) -> datetime:
    """Returns the end of the UTC day."""
    return datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)


def month_reset(now: datetime) -> datetime:
    """Returns the end of the UTC calendar month."""
    today = now.astimezone(UTC)
    years, month = divmod(today.month, 12)
    return datetime(today.year + years, month + 1, 1, tzinfo=UTC)


MAX_BUCKETS = 10_000
"""Number of buckets in memory at which full ones are dropped: a full bucket is equal to a new one."""


class TokenBucket:
    """Admits `rate` requests a second on average, and at most `burst` at once."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        """Takes the rate a second, the size, both above 0, and the time in seconds. Begins full."""
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._filled_at = now

    def take(self, now: float) -> float:
        """Takes a token. Returns 0, or without a token the seconds until the next one."""
        self._fill(now)
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0

    def missing(self, now: float) -> float:
        """Returns the number of tokens that were taken and are not restored yet."""
        self._fill(now)
        return self._burst - self._tokens

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now


class RequestRates:
    """The rates of all tenants. Used on the event loop only."""

    def __init__(self, settings: CoreSettings, seconds: Callable[[], float] = monotonic) -> None:
        """Takes the settings and a monotonic clock."""
        self._settings = settings
        self._seconds = seconds
        self._buckets: dict[str, TokenBucket] = {}

    def renew(self, settings: CoreSettings) -> None:
        """Replaces the settings. Every tenant begins anew."""
        self._settings = settings
        self._buckets.clear()

    def admit(self, tenant: str) -> None:
        """Counts a request. Raises QuotaExceeded, with the time until the next one, when the rate is used up."""
        limits = self._settings.quotas_of(tenant)
        rate = limits.max_requests_per_second
        if not rate:
            return
        now = self._seconds()
        bucket = self._buckets.get(tenant)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._buckets = {name: one for name, one in self._buckets.items() if one.missing(now) > 0}
            bucket = self._buckets[tenant] = TokenBucket(rate, limits.max_request_burst or rate, now)
        if wait := bucket.take(now):
            # rounded up: a retry a microsecond too early would be rejected again
            retry_after = timedelta(microseconds=math.ceil(wait * 1e6))
            raise exceeded(tenant, QuotaName.REQUESTS_PER_SECOND, rate, rate, retry_after)

    def used(self, tenant: str) -> int:
        """Returns the number of requests of the burst that are used up now."""
        bucket = self._buckets.get(tenant)
        return 0 if bucket is None else math.ceil(bucket.missing(self._seconds()))
