"""The accounts of tenants in memory: every message and every step needs one, and a query costs two thread switches."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from math import inf
from typing import NamedTuple

from turnwire.domain.accounts import Account, QuotaName, check_count
from turnwire.domain.money import Consumption

KEPT_DAYS = 62
"""Days of usage in memory: this month and the one before, for a clock that was set back."""


class Delta(NamedTuple):
    """The change of a tenant's account by a commit."""

    tenant: str
    sessions: int = 0
    stored_bytes: int = 0
    spent: tuple[tuple[date, Consumption], ...] = ()
    """Usage by UTC day."""


class Accounts:
    """The accounts of all tenants, as of the newest commit. Used on the event loop only.

    Bounded by the tenants that have ever stored something: a few kilobytes each.
    """

    def __init__(self, deltas: Iterable[Delta] = ()) -> None:
        """Takes what is stored so far."""
        self._sessions: dict[str, int] = defaultdict(int)
        self._stored_bytes: dict[str, int] = defaultdict(int)
        self._days: dict[str, dict[date, Consumption]] = defaultdict(dict)
        self._elsewhere: Mapping[str, tuple[int, int]] = {}
        self.add(deltas)

    def renew(self, deltas: Iterable[Delta], elsewhere: Mapping[str, tuple[int, int]]) -> None:
        """Replaces the accounts with what is stored now, after other nodes have changed them.

        Args:
            deltas: What is stored.
            elsewhere: By tenant, the numbers of turns that run and of messages that wait at other nodes.
        """
        self._elsewhere = elsewhere
        self._sessions.clear()
        self._stored_bytes.clear()
        self._days.clear()
        self.add(deltas)

    def add(self, deltas: Iterable[Delta]) -> None:
        """Adds the changes of commits."""
        for delta in deltas:
            self._sessions[delta.tenant] += delta.sessions
            self._stored_bytes[delta.tenant] += delta.stored_bytes
            if delta.spent:
                self._spend(self._days[delta.tenant], delta.spent)

    def account(self, tenant: str, at: datetime) -> Account:
        """Returns the account of a tenant; see `Store.account`."""
        today = at.astimezone(UTC).date()
        days = self._days.get(tenant, {})
        month = sum(
            (used for day, used in days.items() if (day.year, day.month) == (today.year, today.month)), Consumption()
        )
        running, waiting = self._elsewhere.get(tenant, (0, 0))
        return Account(
            sessions=self._sessions.get(tenant, 0),
            stored_bytes=self._stored_bytes.get(tenant, 0),
            day=days.get(today, Consumption()),
            month=month,
            running_elsewhere=running,
            waiting_elsewhere=waiting,
        )

    @staticmethod
    def _spend(days: dict[date, Consumption], spent: tuple[tuple[date, Consumption], ...]) -> None:
        for day, used in spent:
            days[day] = days.get(day, Consumption()) + used
        if len(days) > KEPT_DAYS:
            oldest = max(days) - timedelta(days=KEPT_DAYS)
            for day in [day for day in days if day <= oldest]:
                del days[day]


class TotalsMoved(Exception):
    """Other servers have stored so much meanwhile that the transaction would exceed a quota, or might."""


class Ledger:
    """The changes of one transaction in the accounts of tenants, and the quotas that it has checked.

    Other servers change the same totals. So each check notes how much they may have for the quota to hold, and the
    transaction is repeated when they have more at its end, where it has the totals to itself.
    """

    def __init__(self) -> None:
        """Begins without changes."""
        self.deltas: list[Delta] = []
        """In the order of the units."""
        self._others: dict[str, tuple[float, float]] = {}

    def check(self, totals: tuple[int, int], added: Delta, *, max_sessions: int = 0, max_stored_bytes: int = 0) -> None:
        """Raises QuotaExceeded when a tenant may not add that much.

        Args:
            totals: The sessions and bytes that the tenant had before the transaction.
            added: The amounts to add.
            max_sessions: Maximum sessions of the tenant; 0 sets no limit.
            max_stored_bytes: Maximum stored bytes of the tenant; 0 sets no limit.
        """
        own = [delta for delta in self.deltas if delta.tenant == added.tenant]
        sessions, stored_bytes = sum(delta.sessions for delta in own), sum(delta.stored_bytes for delta in own)
        most_sessions, most_bytes = self._others.get(added.tenant, (inf, inf))
        if added.sessions > 0:
            check_count(added.tenant, QuotaName.SESSIONS, max_sessions, totals[0] + sessions, added.sessions)
            if max_sessions:
                most_sessions = min(most_sessions, max_sessions - sessions - added.sessions)
        if added.stored_bytes > 0:
            used = totals[1] + stored_bytes
            check_count(added.tenant, QuotaName.STORED_BYTES, max_stored_bytes, used, added.stored_bytes)
            if max_stored_bytes:
                most_bytes = min(most_bytes, max_stored_bytes - stored_bytes - added.stored_bytes)
        self._others[added.tenant] = most_sessions, most_bytes

    def check_again(self, others: Mapping[str, tuple[int, int]]) -> None:
        """Checks all quotas at the end of the transaction.

        Args:
            others: By tenant that it changes, the sessions and bytes without its changes.

        Raises:
            TotalsMoved: a quota would be exceeded, or would be but for a unit that was rejected.
        """
        for tenant, (sessions, stored_bytes) in others.items():
            most_sessions, most_bytes = self._others.get(tenant, (inf, inf))
            if sessions > most_sessions or stored_bytes > most_bytes:
                raise TotalsMoved
