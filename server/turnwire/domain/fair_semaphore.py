"""A budget that tenants share: bytes of memory, or a number of concurrent operations."""

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from typing import NamedTuple


class _Waiter(NamedTuple):
    """The next waiter of a tenant."""

    connection: str
    turn: "asyncio.Future[None]"
    size: int


class FairSemaphore:
    """A weighted semaphore with a limit on the share of each tenant.

    The waiters of a tenant are served in order, and tenants take turns. A waiter that exceeds the share of its own
    tenant does not block other tenants; one that waits for the total is never overtaken, so a large one does not
    starve. The first permit of a tenant may be as large as the total. Used on the event loop only.

    Named connections of a tenant take turns too, and each may have half of what its tenant may have, or all of it.

    `_waiting` has the sizes of the waiters, by tenant and connection, next first. `_is_shared` is set when a second
    tenant appears and stays set: until then the only tenant may have everything, unless its limit was given.
    """

    def __init__(self, limit: int, tenant_limit: int | None = None, *, limits_connections: bool = True) -> None:
        """Args:
        limit: Limit of all tenants together.
        tenant_limit: Limit of one tenant; by default half of the total, once a second tenant has appeared.
        limits_connections: Whether a connection may have half of what its tenant may have.
        """
        self.limit = limit
        self.in_use = 0
        self._tenant_limit = limit // 2 if tenant_limit is None else tenant_limit
        self._halves = tenant_limit is None
        self._limits_connections = limits_connections
        self._first_tenant: str | None = None
        self._is_shared = tenant_limit is not None
        self._in_use_of = Counter[str]()
        self._in_use_by = Counter[tuple[str, str]]()
        """By tenant and connection, for named connections."""
        self._waiting = OrderedDict[str, OrderedDict[str, OrderedDict[asyncio.Future[None], int]]]()

    def try_acquire(self, tenant: str, size: int, connection: str = "") -> bool:
        """Acquires `size` if it is available at once and no waiter is overtaken. Returns whether it did."""
        if self._first_tenant is None:
            self._first_tenant = tenant
        self._is_shared |= tenant != self._first_tenant
        if self.in_use + size > self.limit or not self._is_within_share(tenant, size):
            return False
        if connection in self._waiting.get(tenant, ()) or not self._is_within_half(tenant, connection, size):
            return False
        for other in self._waiting:
            first = self._first_of(other)
            if first is not None and (other == tenant or self._is_within_share(other, first.size)):
                return False
        self.adjust(tenant, size, connection)
        return True

    async def acquire(self, tenant: str, size: int, connection: str = "") -> None:
        """Acquires `size`, at most `limit`; waits for it. Safe to cancel."""
        if self.try_acquire(tenant, size, connection):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, OrderedDict()).setdefault(connection, OrderedDict())[turn] = size
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.adjust(tenant, -size, connection)
            elif tenant in self._waiting and turn in self._waiting[tenant].get(connection, ()):
                self._leave(tenant, connection, turn)
                self._grant()  # it may have blocked others
            raise

    def release(self, tenant: str, size: int, connection: str = "") -> None:
        """Releases what a tenant has acquired, and serves waiters."""
        self.adjust(tenant, -size, connection)

    def adjust(self, tenant: str, by: int, connection: str = "") -> None:
        """Adds to what a tenant has, or takes from it, without checking the limits."""
        self.in_use += by
        self._in_use_of[tenant] += by
        if not self._in_use_of[tenant]:
            del self._in_use_of[tenant]
        if connection:
            self._in_use_by[tenant, connection] += by
            if not self._in_use_by[tenant, connection]:
                del self._in_use_by[tenant, connection]
        if by < 0:
            self._grant()

    def resize(self, limit: int) -> None:
        """Changes the limit. What is in use stays in use, and waiters get what fits."""
        self.limit = limit
        if self._halves:
            self._tenant_limit = limit // 2
        self._grant()

    @contextlib.asynccontextmanager
    async def held(self, tenant: str, size: int, connection: str = "") -> AsyncIterator["Permit"]:
        """Acquires `size`, and releases what the permit has at the end."""
        permit = Permit(self, tenant, connection)
        await permit.acquire(size)
        try:
            yield permit
        finally:
            permit.release()

    def _is_within_share(self, tenant: str, size: int) -> bool:
        used = self._in_use_of[tenant]
        return not used or not self._is_shared or used + size <= self._tenant_limit

    def _is_within_half(self, tenant: str, connection: str, size: int) -> bool:
        used = self._in_use_by[tenant, connection] if connection and self._limits_connections else 0
        return not used or used + size <= (self._tenant_limit if self._is_shared else self.limit) // 2

    def _first_of(self, tenant: str) -> _Waiter | None:
        """Returns the waiter of a tenant whose turn is next; None if each is held back by its own connection."""
        for connection, turns in self._waiting[tenant].items():
            turn, size = next(iter(turns.items()))
            if turn.done() or self._is_within_half(tenant, connection, size):
                return _Waiter(connection, turn, size)
        return None

    def _leave(self, tenant: str, connection: str, turn: "asyncio.Future[None]") -> None:
        connections = self._waiting[tenant]
        del connections[connection][turn]
        if not connections[connection]:
            del connections[connection]
        if not connections:
            del self._waiting[tenant]

    def _grant(self) -> None:
        """Serves waiters with what is free."""
        while (found := self._next()) is not None:
            tenant, (connection, turn, size) = found
            self._waiting.move_to_end(tenant)
            self._waiting[tenant].move_to_end(connection)
            self._leave(tenant, connection, turn)
            if not turn.done():  # else its caller was cancelled
                self.adjust(tenant, size, connection)
                turn.set_result(None)

    def _next(self) -> tuple[str, _Waiter] | None:
        """Returns the next waiter to serve, and its tenant; None when there is none."""
        for tenant in self._waiting:
            first = self._first_of(tenant)
            if first is None:
                continue
            if first.turn.done():
                return tenant, first
            if self._is_within_share(tenant, first.size):
                return (tenant, first) if self.in_use + first.size <= self.limit else None
        return None


class Permit:
    """The part of a budget that one holder has acquired. Used by one task."""

    def __init__(self, budget: FairSemaphore, tenant: str, connection: str = "") -> None:
        """Takes the budget, and the tenant and connection that this counts for; has acquired nothing yet."""
        self.budget = budget
        self.size = 0
        self._tenant, self._connection = tenant, connection

    async def acquire(self, size: int) -> None:
        """Releases what it has, and waits for `size`. Safe to cancel."""
        self.release()
        await self.budget.acquire(self._tenant, size, self._connection)
        self.size = size

    def try_grow(self, size: int) -> bool:
        """Grows to `size` if that is available at once. Returns whether it did."""
        if not self.budget.try_acquire(self._tenant, size - self.size, self._connection):
            return False
        self.size = size
        return True

    def shrink(self, size: int) -> None:
        """Reduces it to `size` if it is larger."""
        if size < self.size:
            by, self.size = size - self.size, size
            self.budget.adjust(self._tenant, by, self._connection)

    def release(self) -> None:
        """Releases all that it has. Idempotent."""
        self.shrink(0)
