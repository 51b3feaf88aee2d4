"""Leads every watch from the log to live events, without gaps and duplicates.

A watch repeats these steps:

1. It replays the log after its position, a page at a time, until the log ends.
2. It joins the live feed in one step of the event loop, without awaiting anything: it takes the durable events that it
  has not seen yet, and adds a snapshot. Everything published before this step is in the snapshot; everything after it
  comes from the feed.
3. It follows the feed. When it falls behind, it starts again with step 1.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Protocol, TypeVar

from turnwire.core.environment import Environment
from turnwire.core.quotas import SOON
from turnwire.core.servers import PartRequest
from turnwire.domain.accounts import QuotaName, check_count
from turnwire.domain.errors import SequenceInFuture, ShuttingDown
from turnwire.feed.memory import Entry, Subscription
from turnwire.ports.pages import Bounds, EventPage, PrunedSession
from turnwire.ports.store import TenantStore

ENTRIES_AT_ONCE = 512
"""Maximum entries of the feed that a watch processes before it yields to the event loop."""

SETTLING_SECONDS = 0.01
"""Interval between checks whether the log has what the feed has dropped; another server's transaction must end first.
"""

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class Follower(Protocol[Item_co]):
    """Converts what `Join` finds for one kind of watch. Returned items are delivered before the next call."""

    async def opening(self) -> Sequence[Item_co]:
        """Returns the first items of a round."""
        ...

    async def gap(self, bounds: Bounds) -> Sequence[Item_co]:
        """Moves the join's position forward, because events before `bounds.earliest` are no longer kept, or raises.

        Returns the items that report the gap.
        """
        ...

    async def losses(self, sessions: Sequence[PrunedSession]) -> Sequence[Item_co]:
        """Returns the items that report sessions whose events after the position were pruned, or raises.

        Only a watch of all sessions gets this call.
        """
        ...

    def replay(self, page: EventPage) -> Sequence[Item_co]:
        """Returns the items for a page of the log."""
        ...

    async def prepare(self) -> None:
        """Reads from the store what `join` needs. Called right after the end of the log."""
        ...

    def join(self, entries: Sequence[Entry]) -> Iterable[Item_co]:
        """Returns the items for entries published during the replay, and the snapshot of this moment.

        Items that are made as they are taken show the state of the moment when the first one is taken.
        """
        ...

    def take(self) -> Sequence[Item_co]:
        """Returns the items for some pending entries of the feed; empty when there are none, or none is wanted."""
        ...

    async def wait(self) -> Sequence[Item_co]:
        """Waits until there may be pending entries, or returns the items that are due, such as a heartbeat."""
        ...


def subscribe(environment: Environment, tenant: str, session_id: str | None) -> Subscription:
    """Joins the feed of this server within the tenant's quota; see `Feed.subscribe`.

    Raises:
        TooManyWatchers, ShuttingDown: as the feed does.
        QuotaExceeded: as many streams are open as the tenant may have.
    """
    _check_quota(environment, tenant)
    return environment.feed.subscribe(tenant, session_id)


def subscribe_to_all(environment: Environment, tenant: str, request: PartRequest) -> Subscription:
    """Joins what happens in all sessions of a tenant, whichever server has them; raises as `subscribe` does.

    With several servers, what is not stored comes as the request says.
    """
    if environment.servers is None:
        return subscribe(environment, tenant, None)
    _check_quota(environment, tenant)
    return environment.servers.watch_all(tenant, request)


def _check_quota(environment: Environment, tenant: str) -> None:
    limit, used = environment.settings.quotas_of(tenant).max_watchers, environment.feed.watchers(tenant)
    check_count(tenant, QuotaName.WATCHERS, limit, used, retry_after=SOON)


class Join:
    """The position of one watch in the log and in the feed. Used by one task."""

    def __init__(
        self,
        store: TenantStore,
        subscription: Subscription,
        session_id: str | None,
        kinds: frozenset[str] | None = None,
    ) -> None:
        """Args:
        store: The reads of the watcher's tenant, with the log.
        subscription: A subscription to the same session or sessions; its owner closes it.
        session_id: The session; None for all of the tenant.
        kinds: Class names of the durable events to replay; None replays all.
        """
        self._store = store
        self._subscription = subscription
        self._session_id = session_id
        self._kinds = kinds
        self._known_head = 0
        self._reported: dict[str, int] = {}  # reported position of each pruned session
        self.position = 0
        """Sequence of the last durable event that the watch has seen; for all sessions, its position."""

    @property
    def head(self) -> int:
        """The newest sequence; for all sessions, the newest position."""
        return max(self._known_head, self._subscription.head, self.position)

    async def begin(self, after: int | None) -> None:
        """Sets the position after which to begin; None for the newest one.

        Raises:
            SessionNotFound: there is no such session.
            SequenceInFuture: the position is after the newest one.
            StorageError: the log could not be read.
        """
        bounds = await self._bounds()
        self._known_head = bounds.head
        if after is not None and after > bounds.head:
            raise SequenceInFuture(
                f"sequence {after} is after the newest one, {bounds.head}", after, bounds.earliest, bounds.head
            )
        self.position = bounds.head if after is None else after

    async def follow(self, follower: Follower[Item]) -> AsyncGenerator[Item]:
        """Yields the follower's items until the feed closes the subscription.

        Raises:
            ShuttingDown: the server stops.
            StorageError: the log could not be read.
        """
        subscription = self._subscription
        while True:
            if subscription.lagging:
                subscription.skip()  # the feed keeps entries from now on; the log has the earlier ones
            for item in await follower.opening():
                yield item
            async for item in self._replay(follower):
                yield item
            await follower.prepare()
            await subscription.begin(self.position)
            if subscription.lagging:
                continue
            for item in follower.join(self.skip_seen(subscription.take_entries())):
                yield item
            async for item in self._live(follower):
                yield item
            if subscription.closed:
                return

    def skip_seen(self, entries: Iterable[Entry]) -> list[Entry]:
        """Returns the entries without durable ones that were seen already, and moves the position forward."""
        found = []
        for entry in entries:
            if entry.order:
                if entry.order <= self.position:
                    continue
                self.position = entry.order
            found.append(entry)
        return found

    async def _replay(self, follower: Follower[Item]) -> AsyncGenerator[Item]:
        while True:
            page = await self._page()
            if page.earliest > self.position:
                for item in await follower.gap(await self._bounds()):
                    yield item
                continue
            if lost := self._news_of(page.pruned):
                for item in await follower.losses(lost):
                    yield item
            if page.last == self.position:
                if self._session_id is not None or page.settled >= self._subscription.head:
                    return
                await asyncio.sleep(SETTLING_SECONDS)  # what the feed has dropped may be stored behind what is not yet
                continue
            self.position = page.last
            items = follower.replay(page)
            del page  # the page may be large, and the reader slow
            for item in items:
                yield item

    def _news_of(self, pruned: Sequence[PrunedSession]) -> list[PrunedSession]:
        """Returns the sessions that were pruned further since they were last reported."""
        found = [session for session in pruned if session.position > self._reported.get(session.session_id, 0)]
        self._reported |= {session.session_id: session.position for session in found}
        return found

    async def _live(self, follower: Follower[Item]) -> AsyncGenerator[Item]:
        """Yields live items until the watch falls behind or the feed closes the subscription."""
        subscription = self._subscription
        while not subscription.lagging:
            if items := follower.take():
                for item in items:
                    yield item
                if subscription.behind:
                    await subscription.wait()  # so that others get their turn
            elif subscription.closed:
                if subscription.shutting_down:
                    raise ShuttingDown
                return
            else:
                for item in await follower.wait():
                    yield item

    async def _bounds(self) -> Bounds:
        if self._session_id is None:
            return await self._store.log_bounds()
        return await self._store.session_bounds(self._session_id)

    async def _page(self) -> EventPage:
        if self._session_id is None:
            return await self._store.log_events(self.position, self._kinds)
        return await self._store.session_events(self._session_id, self.position, self._kinds)
