"""Usage and quotas: shows a tenant what it has used, and how much more it may use."""

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.quotas import RequestRates, day_reset, month_reset
from turnwire.core.turns.registry import Turns
from turnwire.domain.accounts import QUARTER_SECONDS, QuotaName, UsageDimension, UsagePage, UsageQuery
from turnwire.domain.errors import InvalidRequest, PermissionDenied
from turnwire.domain.pages import page_of
from turnwire.domain.principal import Principal, Role
from turnwire.ports.pages import Page

MAX_DAYS = 366
"""Longest range in days: one query reads all rows of it."""

MAX_ZONE_CHARACTERS = 64
"""Maximum length of the name of a time zone."""


class UsageAsked(Struct, frozen=True, kw_only=True):
    """A request for usage."""

    start: datetime | None = None
    """None: the beginning of the month of `end`."""
    end: datetime | None = None
    """None: the present."""
    group_by: frozenset[UsageDimension] = frozenset()
    time_zone: str = ""
    """"" is UTC."""
    tenant: str = ""
    """"" is the caller's own."""


class QuotaState(Struct, frozen=True):
    """A quota of a tenant."""

    name: QuotaName
    limit: int
    """0: no limit."""
    used: int
    reset_at: datetime | None = None
    """None where nothing is reset."""


class QuotaPage(Struct, frozen=True):
    """Some quotas of a tenant."""

    quotas: tuple[QuotaState, ...]
    next_token: str
    """"" on the last page."""


class UsageReports:
    """The use cases about usage and quotas."""

    def __init__(self, environment: Environment, turns: Turns, rates: RequestRates) -> None:
        """Takes the ports, and the counters of turns and requests."""
        self._environment = environment
        self._turns = turns
        self._rates = rates

    async def query(self, principal: Principal, asked: UsageAsked, page: Page) -> UsagePage:
        """Returns sums of usage.

        Raises:
            PermissionDenied: only an admin may name another tenant.
            InvalidRequest: the range or the time zone is wrong, or the page token is of another listing.
            StorageError: the usage could not be read.
        """
        tenant = asked.tenant or principal.tenant
        if tenant != principal.tenant and not principal.role.includes(Role.ADMIN):
            text = "only an admin may see the usage of another tenant"
            raise PermissionDenied.of(text, principal.role, Role.ADMIN)
        zone = _zone(asked.time_zone)
        end = asked.end or self._environment.clock()
        start = asked.start or _beginning_of_month(end, zone)
        if not start < end <= start + timedelta(days=MAX_DAYS):
            raise InvalidRequest.of("end_time", f"is not after start_time, or more than {MAX_DAYS} days after it")
        start, end = _next_quarter(start), _next_quarter(end)
        by_day = UsageDimension.DAY in asked.group_by
        periods = (tuple(_days(start, end, zone)) if by_day else ()) or ((start, end),)
        query = UsageQuery(periods=periods, group_by=asked.group_by)
        return await self._environment.store.of(tenant).usage(query, page)

    async def quotas(self, principal: Principal, *, size: int, token: str) -> QuotaPage:
        """Returns a page of the quotas of the caller's tenant, by name. Does not read the store.

        Args:
            principal: The caller.
            size: Maximum number of quotas, at least 1.
            token: `next_token` of the previous page; "" for the first.

        Raises:
            InvalidRequest: the token is not from this listing.
        """
        environment, tenant, now = self._environment, principal.tenant, self._environment.clock()
        limits, account = environment.settings.quotas_of(tenant), environment.store.of(tenant).account(now)
        day, month = day_reset(now), month_reset(now)
        found: tuple[tuple[QuotaName, int | None, int, datetime | None], ...] = (
            (QuotaName.SESSIONS, limits.max_sessions, account.sessions, None),
            (QuotaName.RUNNING_TURNS, limits.max_running_turns, self._turns.running(tenant), None),
            (QuotaName.WAITING_MESSAGES, limits.max_waiting_messages, self._turns.queued(tenant), None),
            (QuotaName.WATCHERS, limits.max_watchers, environment.feed.watchers(tenant), None),
            (QuotaName.REQUESTS_PER_SECOND, limits.max_requests_per_second, self._rates.used(tenant), None),
            (QuotaName.STORED_BYTES, limits.max_stored_bytes, account.stored_bytes, None),
            (QuotaName.TOKENS_PER_DAY, limits.max_tokens_per_day, account.day.tokens, day),
            (QuotaName.TOKENS_PER_MONTH, limits.max_tokens_per_month, account.month.tokens, month),
            (QuotaName.COST_PER_DAY, limits.max_cost_pico_usd_per_day, account.day.cost_pico_usd, day),
            (QuotaName.COST_PER_MONTH, limits.max_cost_pico_usd_per_month, account.month.cost_pico_usd, month),
        )
        states = (QuotaState(name, limit or 0, used, reset) for name, limit, used, reset in found)
        return QuotaPage(*page_of(states, lambda state: state.name, f"quotas of {tenant}", size=size, token=token))


def _zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    try:
        if len(name) <= MAX_ZONE_CHARACTERS:
            return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # no name of a zone, or the system has no data of zones
        pass
    raise InvalidRequest.of("time_zone", "is not a known time zone")


def _beginning_of_month(moment: datetime, zone: tzinfo) -> datetime:
    """Returns the beginning of the month that contains the last moment before `moment`."""
    local = (moment - timedelta(microseconds=1)).astimezone(zone)
    return datetime(local.year, local.month, 1, tzinfo=zone)


def _next_quarter(moment: datetime) -> datetime:
    """Returns the moment, rounded up to a quarter of an hour."""
    return datetime.fromtimestamp(-(-moment.timestamp() // QUARTER_SECONDS) * QUARTER_SECONDS, UTC)


def _days(start: datetime, end: datetime, zone: tzinfo) -> Iterator[tuple[datetime, datetime]]:
    """Yields the parts of a range, each within one day of the zone."""
    while start < end:
        tomorrow = start.astimezone(zone).date() + timedelta(days=1)
        midnight = _next_quarter(datetime.combine(tomorrow, time(), zone))
        yield start, min(midnight, end)
        start = midnight
