"""Quotas: what each tenant may have and use, and how many requests a second it may send.

Counts are exact: nothing is awaited between a check and what it counts, or what is on its way to the store counts
meanwhile; else two requests at the same time would both take the last place. Tokens and money are known after a step,
so the last one may go over its quota.
"""

import contextlib
import math
from asyncio import Future
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, time, timedelta
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.settings import CoreSettings, QuotaLimits
from turnwire.domain.accounts import Account, QuotaName
from turnwire.domain.errors import QuotaExceeded
from turnwire.domain.money import usd
from turnwire.ports.commit import FileChange, PutFile

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


def exceeded_spending(environment: Environment, tenant: str) -> QuotaExceeded | None:
    """Returns what `spending_exceeded` does, of a tenant as it is now."""
    now = environment.clock()
    account = environment.store.of(tenant).account(now)
    return spending_exceeded(tenant, environment.settings.quotas_of(tenant), account, now)


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


MAX_BUCKETS = 10_000
"""Buckets in memory before the full ones are dropped: a full bucket is as good as a new one."""


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
        """Returns how many tokens are taken and not back yet."""
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
        """Takes other settings. Every tenant begins anew."""
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
            # rounded up: a retry a microsecond too early would be refused again
            retry_after = timedelta(microseconds=math.ceil(wait * 1e6))
            raise exceeded(tenant, QuotaName.REQUESTS_PER_SECOND, rate, rate, retry_after)

    def used(self, tenant: str) -> int:
        """Returns how many requests of the burst are used up now."""
        bucket = self._buckets.get(tenant)
        return 0 if bucket is None else math.ceil(bucket.missing(self._seconds()))


class CountedUsage:
    """Sessions and bytes of one request that are not stored yet."""

    def __init__(self, pending: "PendingUsage", held: Counter[tuple[str, QuotaName]]) -> None:
        """Adds what is held to what is pending; called by `PendingUsage.count`."""
        self._pending = pending
        self._held = held
        self.storing: Future[Any] | None = None
        """The commit that has it; None before it is under way."""
        pending.counts.update(held)

    @property
    def is_stored(self) -> bool:
        """True once the commit that has it is done: the account has it since the same moment."""
        return self.storing is not None and self.storing.done()

    def until(self, storing: "Future[Any]") -> None:
        """Lets it count until a commit is done, also when the caller is cancelled.

        Args:
            storing: The store's own future, which nobody may cancel.
        """
        self.storing = storing
        if not self._held:
            return
        self._pending.storing.append(self)
        storing.add_done_callback(lambda _: self.release())

    def release(self) -> None:
        """Gives back what it holds. Idempotent."""
        held, self._held = self._held, Counter()
        for key, count in held.items():
            self._pending.counts[key] -= count
            if not self._pending.counts[key]:
                del self._pending.counts[key]


class PendingUsage:
    """What is on its way to the store, of all tenants. Bounded by the calls in flight. Used on the event loop only."""

    def __init__(self, environment: Environment) -> None:
        """Takes the settings and the store."""
        self._environment = environment
        self.counts: Counter[tuple[str, QuotaName]] = Counter()
        """What is pending; changed by `CountedUsage` alone."""
        self.storing: deque[CountedUsage] = deque()
        """What commits have, in the order of the commits, which is that in which they end. Callbacks of a future run
        later than its account changes: a request that comes between them would count both."""

    @contextlib.contextmanager
    def count(
        self,
        tenant: str,
        stored: Iterable[Struct] = (),
        files: Iterable[FileChange] = (),
        *,
        in_events: Iterable[Struct] = (),
        is_new_session: bool = False,
        copied_bytes: int = 0,
    ) -> Iterator[CountedUsage]:
        """Counts what a request is about to store, until the context is left, or as long as `until` says.

        Args:
            tenant: Who stores it.
            stored: The values that are stored.
            files: Their files. They count as if the tenant had none of them yet; uploads count already.
            in_events: The values that events carry; an event is about as long as its value.
            is_new_session: Whether a session is created.
            copied_bytes: Bytes of the messages and turns that are copied to it, or of an upload.

        Raises:
            QuotaExceeded: a quota of the tenant does not allow it.
        """
        while self.storing and self.storing[0].is_stored:
            self.storing.popleft().release()
        environment = self._environment
        limits = environment.settings.quotas_of(tenant)
        account = environment.store.of(tenant).account(environment.clock())
        held = Counter[tuple[str, QuotaName]]()
        if is_new_session and limits.max_sessions:
            held[tenant, QuotaName.SESSIONS] = 1
            used = account.sessions + self.counts[tenant, QuotaName.SESSIONS]
            check_count(tenant, QuotaName.SESSIONS, limits.max_sessions, used)
        if limits.max_stored_bytes:
            values = (*stored, *in_events)
            size = copied_bytes + sum(len(msgspec.json.encode(value)) for value in values)
            size += sum(len(file.content) for file in files if isinstance(file, PutFile))
            held[tenant, QuotaName.STORED_BYTES] = size
            used = account.stored_bytes + self.counts[tenant, QuotaName.STORED_BYTES]
            check_count(tenant, QuotaName.STORED_BYTES, limits.max_stored_bytes, used, size)
        usage = CountedUsage(self, held)
        try:
            yield usage
        finally:
            if usage.storing is None:
                usage.release()
