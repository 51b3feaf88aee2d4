"""A budget that tenants share: bytes of memory, or a number of things that may happen at the same time."""

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator


class FairSemaphore:
    """A weighted semaphore with a limit on the share of each tenant.

    What a tenant waits for goes in its order, and tenants take turns. A waiter that the share of its own tenant holds
    back holds up nobody else; one that waits for others is overtaken by nobody, so a large one does not wait for ever.
    The first that a tenant has may be as large as all of the budget. Used on the event loop only.

    `_waiting` has the sizes of those that wait, by tenant, the tenant whose turn is next first. `_is_shared` is set
    when a second tenant comes and stays so: until then the only one has all, unless its limit was given.
    """

    def __init__(self, limit: int, tenant_limit: int | None = None) -> None:
        """Args:
        limit: What all may have together.
        tenant_limit: What one tenant may have; if it is left out, half as soon as there are several.
        """
        self.limit = limit
        self.in_use = 0
        self._tenant_limit = limit // 2 if tenant_limit is None else tenant_limit
        self._halves = tenant_limit is None
        self._first_tenant: str | None = None
        self._is_shared = tenant_limit is not None
        self._in_use_of = Counter[str]()
        self._waiting = OrderedDict[str, OrderedDict[asyncio.Future[None], int]]()

    def try_acquire(self, tenant: str, size: int) -> bool:
        """Acquires `size` if it is available at once and no waiter is overtaken. Returns whether it did."""
        if self._first_tenant is None:
            self._first_tenant = tenant
        self._is_shared |= tenant != self._first_tenant
        if tenant in self._waiting or not self._is_within_share(tenant, size) or self.in_use + size > self.limit:
            return False
        if any(self._is_within_share(other, next(iter(turns.values()))) for other, turns in self._waiting.items()):
            return False
        self.adjust(tenant, size)
        return True

    async def acquire(self, tenant: str, size: int) -> None:
        """Acquires so much, at most `limit`; waits for it. Safe to cancel."""
        if self.try_acquire(tenant, size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, OrderedDict())[turn] = size
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.adjust(tenant, -size)
            elif turn in self._waiting.get(tenant, ()):
                self._leave(tenant, turn)
                self._grant()  # it may have held up others
            raise

    def release(self, tenant: str, size: int) -> None:
        """Gives back what a tenant has acquired, to those that wait."""
        self.adjust(tenant, -size)

    def adjust(self, tenant: str, by: int) -> None:
        """Counts more or less of a tenant, without asking whether there is so much."""
        self.in_use += by
        self._in_use_of[tenant] += by
        if not self._in_use_of[tenant]:
            del self._in_use_of[tenant]
        if by < 0:
            self._grant()

    def resize(self, limit: int) -> None:
        """Changes what all may have together. What is in use stays in use, and those that wait get what fits."""
        self.limit = limit
        if self._halves:
            self._tenant_limit = limit // 2
        self._grant()

    @contextlib.asynccontextmanager
    async def held(self, tenant: str, size: int) -> AsyncIterator["Permit"]:
        """Acquires so much, and gives back in the end what its permit has then."""
        permit = Permit(self, tenant)
        await permit.acquire(size)
        try:
            yield permit
        finally:
            permit.release()

    def _is_within_share(self, tenant: str, size: int) -> bool:
        used = self._in_use_of[tenant]
        return not used or not self._is_shared or used + size <= self._tenant_limit

    def _leave(self, tenant: str, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting[tenant]
        del turns[turn]
        if not turns:
            del self._waiting[tenant]

    def _grant(self) -> None:
        """Gives what is free to those that wait."""
        while (tenant := self._next()) is not None:
            turn, size = next(iter(self._waiting[tenant].items()))
            self._waiting.move_to_end(tenant)
            self._leave(tenant, turn)
            if not turn.done():  # else its caller was cancelled
                self.adjust(tenant, size)
                turn.set_result(None)

    def _next(self) -> str | None:
        """Returns the tenant that is granted what it waits for; None when there is none."""
        for tenant, turns in self._waiting.items():
            turn, size = next(iter(turns.items()))
            if turn.done():
                return tenant
            if self._is_within_share(tenant, size):
                return tenant if self.in_use + size <= self.limit else None
        return None


class Permit:
    """The part of a budget that one holder has acquired. Used by one task."""

    def __init__(self, budget: FairSemaphore, tenant: str) -> None:
        """Takes the budget, and whose part this counts for; has nothing yet."""
        self.budget = budget
        self.size = 0
        self._tenant = tenant

    async def acquire(self, size: int) -> None:
        """Gives up what it has, and waits until it has so much. Safe to cancel."""
        self.release()
        await self.budget.acquire(self._tenant, size)
        self.size = size

    def try_grow(self, size: int) -> bool:
        """Makes it as large as this if that can be had at once. Returns whether it did."""
        if not self.budget.try_acquire(self._tenant, size - self.size):
            return False
        self.size = size
        return True

    def shrink(self, size: int) -> None:
        """Makes it no larger than this."""
        if size < self.size:
            by, self.size = size - self.size, size
            self.budget.adjust(self._tenant, by)

    def release(self) -> None:
        """Gives back all that it has. Idempotent."""
        self.shrink(0)
