"""Oracle of a budget's grants, which looks at everything each time."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Part(NamedTuple):
    """A part of the budget that a tenant holds or waits for."""

    tenant: str
    connection: str
    size: int
    number: int


@dataclass
class BudgetOracle:
    """Does what `FairSemaphore` does: half for a tenant, half of that for a connection, turns, and no overtaking."""

    limit: int
    held: list[Part] = field(default_factory=list)
    waiting: list[Part] = field(default_factory=list)
    """In order of arrival."""
    tenants: list[str] = field(default_factory=list)
    """Those that wait, whose turn is next first."""
    connections: list[tuple[str, str]] = field(default_factory=list)
    """The same, with their tenants."""
    seen: set[str] = field(default_factory=set)
    granted: list[int] = field(default_factory=list)

    def used(self, tenant: str | None = None, connection: str | None = None) -> int:
        """Returns what all have, or a tenant, or one of its connections."""
        return sum(
            one.size for one in self.held if tenant in (None, one.tenant) and connection in (None, one.connection)
        )

    def want(self, part: Part) -> None:
        """Somebody comes, and waits if it must."""
        self.seen.add(part.tenant)
        self.waiting.append(part)
        if part.tenant not in self.tenants:
            self.tenants.append(part.tenant)
        if part[:2] not in self.connections:
            self.connections.append(part[:2])
        self._grant()

    def try_take(self, part: Part) -> bool:
        """Somebody comes who does not wait. Returns whether it was granted."""
        self.want(part)
        if part in self.held:
            return True
        self.leave(part)
        return False

    def leave(self, part: Part) -> None:
        """Somebody waits no longer."""
        self.waiting.remove(part)
        self._grant()

    def release(self, part: Part) -> None:
        """Somebody gives back what it has."""
        self.held.remove(part)
        self._grant()

    def _share(self) -> int:
        return self.limit if len(self.seen) < 2 else self.limit // 2

    def _fits(self, part: Part) -> bool:
        used = self.used(part.tenant)
        return not used or used + part.size <= self._share() or len(self.seen) < 2

    def _first_of(self, tenant: str) -> Part | None:
        for connection in self.connections:
            if connection[0] == tenant:
                part = next(one for one in self.waiting if one[:2] == connection)
                used = self.used(*connection) if part.connection else 0
                if not used or used + part.size <= self._share() // 2:
                    return part
        return None

    def _grant(self) -> None:
        while True:
            self.tenants = [one for one in self.tenants if any(part.tenant == one for part in self.waiting)]
            self.connections = [one for one in self.connections if any(part[:2] == one for part in self.waiting)]
            firsts = [first for tenant in self.tenants if (first := self._first_of(tenant)) is not None]
            part = next((first for first in firsts if self._fits(first)), None)
            if part is None or self.used() + part.size > self.limit:
                return
            self.waiting.remove(part)
            for turns, one in ((self.tenants, part.tenant), (self.connections, part[:2])):
                turns.remove(one)  # type: ignore[arg-type]
                turns.append(one)  # type: ignore[arg-type]
            self.held.append(part)
            self.granted.append(part.number)
