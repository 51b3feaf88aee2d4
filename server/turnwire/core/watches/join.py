"""The way of every watch from the log to what happens now: no gap, no duplicate.

A watch goes in rounds:

1. It replays the log after its position, a page at a time, until the log has no more.
2. It joins the live feed in one moment, without an await in between: it takes the durable events that it has not met
   yet, and adds what stands at that moment. What was published before the moment is in what stands; what is published
   after it is behind the cursor.
3. It goes on live. When it falls behind the feed, it begins the next round.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Protocol, TypeVar

from turnwire.domain.errors import SequenceInFuture, ShuttingDown
from turnwire.ports.feed import Entry, Subscription
from turnwire.ports.store import Bounds, EventPage, PrunedSession, Store

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class Follower(Protocol[Item_co]):
    """What one kind of watch makes of what it meets. What it returns is delivered before anything else happens."""

    async def opening(self) -> Sequence[Item_co]:
        """Returns what comes first in a round."""
        ...

    async def gap(self, bounds: Bounds) -> Sequence[Item_co]:
        """Moves the join's position on, as events between it and `bounds.earliest` are no longer kept, or raises.

        Returns what tells of that.
        """
        ...

    async def lost(self, sessions: Sequence[PrunedSession]) -> Sequence[Item_co]:
        """Returns what tells that some sessions of a watch of all lost events after the join's position, or raises."""
        ...

    def replayed(self, page: EventPage) -> Sequence[Item_co]:
        """Returns what a page of the log is made into."""
        ...

    async def ready(self) -> None:
        """Reads what `joined` needs; the log was read just before."""
        ...

    def joined(self, entries: Sequence[Entry]) -> Sequence[Item_co]:
        """Returns what was published during the replay, and what stands at this moment."""
        ...

    def taken(self) -> Sequence[Item_co]:
        """Takes what waits; returns nothing when there is nothing to deliver."""
        ...

    async def idle(self) -> Sequence[Item_co]:
        """Waits until there may be something to take, or returns what the silence asks for."""
        ...


class Join:
    """One watch's place in the log and in the feed. Used by one task."""

    def __init__(
        self, store: Store, subscription: Subscription, session_id: str | None, kinds: frozenset[str] | None = None
    ) -> None:
        """Args:
        store: Has the log.
        subscription: To the same session or sessions; its owner closes it.
        session_id: The session; None for all.
        kinds: Class names of the durable events to replay; None replays all.
        """
        self._store = store
        self._subscription = subscription
        self._session_id = session_id
        self._kinds = kinds
        self._known_head = 0
        self._told: dict[str, int] = {}  # up to where sessions are known to have lost events; those that did, at most
        self.position = 0
        """Sequence, or position for all sessions, up to which the watch has met the durable events."""

    @property
    def head(self) -> int:
        """The newest sequence (or position) there is."""
        return max(self._known_head, self._subscription.head, self.position)

    async def begin(self, after: int | None) -> None:
        """Takes the position after which to begin (exclusive); None for the newest one.

        Raises:
            SessionNotFound: there is no such session.
            SequenceInFuture: that position was never reached.
        """
        bounds = await self._bounds()
        self._known_head = bounds.head
        if after is not None and after > bounds.head:
            raise SequenceInFuture(
                f"position {after} is after the newest, {bounds.head}", after, bounds.earliest, bounds.head
            )
        self.position = bounds.head if after is None else after

    async def follow(self, follower: Follower[Item]) -> AsyncGenerator[Item]:
        """Yields what the follower makes of what happens, until nothing will come any more.

        Raises:
            ShuttingDown: the feed closed.
        """
        subscription = self._subscription
        while True:
            if subscription.lagging:
                subscription.skip()  # what is published from now on is kept; the log has what was before
            for item in await follower.opening():
                yield item
            async for item in self._replay(follower):
                yield item
            await follower.ready()
            if subscription.lagging:
                continue
            for item in follower.joined(self.fresh(subscription.take_entries())):
                yield item
            async for item in self._live(follower):
                yield item
            if subscription.closed:
                return

    def fresh(self, entries: Iterable[Entry]) -> list[Entry]:
        """Returns the entries without the durable ones that were met already, and moves the position."""
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
                for item in await follower.lost(lost):
                    yield item
            if page.last == self.position:
                return
            self.position = page.last
            for item in follower.replayed(page):
                yield item

    def _news_of(self, pruned: Sequence[PrunedSession]) -> list[PrunedSession]:
        """Returns the sessions that lost events since the follower was told of them."""
        found = [session for session in pruned if session.position > self._told.get(session.session_id, 0)]
        self._told |= {session.session_id: session.position for session in found}
        return found

    async def _live(self, follower: Follower[Item]) -> AsyncGenerator[Item]:
        """Yields what comes, until the watch falls behind or nothing will come any more."""
        subscription = self._subscription
        while not subscription.lagging:
            if items := follower.taken():
                for item in items:
                    yield item
            elif subscription.closed:
                if subscription.shutting_down:
                    raise ShuttingDown
                return
            else:
                for item in await follower.idle():
                    yield item

    async def _bounds(self) -> Bounds:
        if self._session_id is None:
            return await self._store.log_bounds()
        return await self._store.session_bounds(self._session_id)

    async def _page(self) -> EventPage:
        if self._session_id is None:
            return await self._store.log_events(self.position, self._kinds)
        return await self._store.session_events(self._session_id, self.position, self._kinds)
