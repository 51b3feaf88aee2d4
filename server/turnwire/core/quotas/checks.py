"""Checks of quotas, and the error of each."""

from datetime import UTC, datetime, time, timedelta

from turnwire.core.settings import QuotaLimits
from turnwire.domain.accounts import Account, QuotaName
from turnwire.domain.errors import QuotaExceeded
from turnwire.domain.money import usd

SOON = timedelta(seconds=1)
"""When to try again where others have to end first: nobody knows when they do."""

_MONEY = frozenset({QuotaName.COST_PER_DAY, QuotaName.COST_PER_MONTH})


def check_count(
    tenant: str,
    quota: QuotaName,
    limit: int | None,
    used: int,
    adding: int = 1,
    *,
    retry_after: timedelta | None = None,
) -> None:
    """Refuses what would go over a quota.

    Args:
        tenant: Whose quota it is.
        quota: Its name.
        limit: The most that the tenant may have; None and 0 set no limit.
        used: What it has.
        adding: What would be added.
        retry_after: When to try again; None when waiting alone does not help.

    Raises:
        QuotaExceeded: it would.
    """
    if limit and used + adding > limit:
        raise exceeded(tenant, quota, limit, used, retry_after)


def spending_exceeded(tenant: str, limits: QuotaLimits, account: Account, now: datetime) -> QuotaExceeded | None:
    """Returns the error of a tenant whose tokens or money are used up; None when it may ask a model.

    Of several, it is the quota that is reset last: to wait for another one would not help.
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


def exceeded(
    tenant: str, quota: QuotaName, limit: int, used: int, retry_after: timedelta | None = None
) -> QuotaExceeded:
    """Returns the error of a quota that is used up."""
    words = f"{usd(used)} of {usd(limit)} USD" if quota in _MONEY else f"{used} of {limit}"
    text = f"the tenant's quota {quota} is used up: {words}"
    return QuotaExceeded(text, tenant, quota=quota, limit=limit, used=used, retry_after=retry_after)


def day_reset(now: datetime) -> datetime:
    """Returns the end of the UTC day."""
    return datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)


def month_reset(now: datetime) -> datetime:
    """Returns the end of the UTC calendar month."""
    today = now.astimezone(UTC)
    years, month = divmod(today.month, 12)
    return datetime(today.year + years, month + 1, 1, tzinfo=UTC)
