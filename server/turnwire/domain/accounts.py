"""Accounts: what each tenant has stored and what its model calls have used."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from turnwire.domain.errors import QuotaExceeded
from turnwire.domain.money import Consumption, Usage, usd

QUARTER_SECONDS = 900
"""Usage is summed by quarter of an hour, because the days of every time zone in use begin with one."""


class Spending(Struct, frozen=True, kw_only=True):
    """One addition to a tenant's account."""

    tenant: str
    subject: str
    """The caller whose message caused it; "" for an unidentified caller."""
    session_id: str
    provider_id: str
    model_id: str
    at: datetime
    usage: Usage | None = None
    cost_pico_usd: int | None = None
    """None when the price is unknown."""
    steps: int = 0
    """Model calls, those for summaries included."""
    steps_without_price: int = 0
    estimated_steps: int = 0
    """Number of the steps whose usage is an estimate."""
    turns: int = 0

    @property
    def consumption(self) -> Consumption:
        """The usage that counts towards quotas."""
        return Consumption.of(self.usage, self.cost_pico_usd)


class Account(Struct, frozen=True):
    """The account of a tenant at some moment."""

    sessions: int = 0
    stored_bytes: int = 0
    """Bytes of its sessions, with their turns, messages and events, and of its files, as they are stored."""
    day: Consumption = Consumption()
    """Used in the UTC day so far."""
    month: Consumption = Consumption()
    """Used in the UTC calendar month so far."""
    running_elsewhere: int = 0
    """Turns that run at other nodes of a cluster, as they were a second ago or two."""
    waiting_elsewhere: int = 0
    """Messages that wait there."""


class QuotaName(StrEnum):
    """The quotas of a tenant. Costs are in pico-USD; days and months are those of UTC."""

    SESSIONS = "sessions"
    RUNNING_TURNS = "running_turns"
    WAITING_MESSAGES = "waiting_messages"
    WATCHERS = "watchers"
    REQUESTS_PER_SECOND = "requests_per_second"
    STORED_BYTES = "stored_bytes"
    TOKENS_PER_DAY = "tokens_per_day"
    TOKENS_PER_MONTH = "tokens_per_month"
    COST_PER_DAY = "cost_pico_usd_per_day"
    COST_PER_MONTH = "cost_pico_usd_per_month"


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
    """Rejects an addition that would exceed a quota.

    Args:
        tenant: The tenant of the quota.
        quota: Its name.
        limit: The maximum for the tenant; None and 0 set no limit.
        used: The amount in use.
        adding: The amount that would be added.
        retry_after: Delay before a retry; None when waiting alone does not help.

    Raises:
        QuotaExceeded: the sum is over the limit.
    """
    if limit and used + adding > limit:
        raise exceeded(tenant, quota, limit, used, retry_after)


def exceeded(
    tenant: str, quota: QuotaName, limit: int, used: int, retry_after: timedelta | None = None
) -> QuotaExceeded:
    """Returns the error of a quota that is used up."""
    words = f"{usd(used)} of {usd(limit)} USD" if quota in _MONEY else f"{used} of {limit}"
    text = f"the tenant's quota {quota} is used up: {words}"
    return QuotaExceeded(text, tenant, quota=quota, limit=limit, used=used, retry_after=retry_after)


class UsageDimension(StrEnum):
    """A key by which usage is grouped."""

    DAY = "day"
    MODEL = "model"
    SESSION = "session"
    SUBJECT = "subject"


class UsageQuery(Struct, frozen=True, kw_only=True):
    """A query for sums of usage."""

    periods: tuple[tuple[datetime, datetime], ...]
    """In order and without overlap; beginning and exclusive end of each, at quarters of an hour. Each period has its
    own rows."""
    group_by: frozenset[UsageDimension] = frozenset()


class UsageRow(Struct, frozen=True, kw_only=True):
    """The sum of some usage. Texts are "" where the query does not group by them."""

    start: datetime
    """Beginning of the period."""
    provider_id: str = ""
    model_id: str = ""
    session_id: str = ""
    subject: str = ""
    usage: Usage | None = None
    """None when no model answered."""
    cost_pico_usd: int | None = None
    """Sum of the known costs; None when none is known."""
    steps: int = 0
    steps_without_price: int = 0
    turns: int = 0
    estimated_steps: int = 0


class UsagePage(Struct, frozen=True):
    """Some rows, in the order of their periods and texts."""

    rows: tuple[UsageRow, ...]
    next_token: str
