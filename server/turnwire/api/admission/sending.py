"""Answers while they are sent: how many bytes the server keeps for clients that have not read them.

gRPC copies what it sends, and keeps it until its client has read it, for as long as the client likes. So large answers
have a place while they are sent. A unary call that finds none is refused; a stream waits with its next answer, tenants
in turns and of each its connections. Whoever has not read an answer for long is cut off when another wants the place:
nothing else makes gRPC forget what it keeps.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator

from turnwire.api.admission.flow import Client
from turnwire.api.admission.requests import RETRY_AFTER
from turnwire.domain.errors import TooManyCalls
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.networks import network_of_peer

SMALL_BYTES = 16 * 1024
"""Answers up to this size have no place: 10,000 watches may have one each."""

UNREAD_SECONDS = 30.0
"""How long an answer keeps its place while others want one. Without others it may be read as slowly as its client
likes."""

MAX_WAITING_BYTES = 32 * 2**20
"""Of answers that wait for a place; what several of them share counts once."""

TENANT_SHARE = 2
"""A tenant's answers have at most so many times the room that they leave to others, where there are several tenants: so
one that comes later finds some."""

MAX_MADE = 2
"""Answers of many objects that are made at the same time: each is there several times until it is sent."""

_LATER_SECONDS = 0.01
"""So that a timer never comes before its time."""


class Held:
    """The place of one answer."""

    __slots__ = ("end", "is_ended", "since", "size", "tenant")

    def __init__(self, size: int, tenant: str, since: float, end: Callable[[], object]) -> None:
        """Takes the bytes, whose they are, when it got them, and what cuts its client off."""
        self.size, self.tenant, self.since, self.end = size, tenant, since, end
        self.is_ended = False


class _Turn:
    """A stream that waits for a place."""

    def __init__(self, size: int, end: Callable[[], object]) -> None:
        self.size, self.end = size, end
        self.place: asyncio.Future[Held] = asyncio.get_running_loop().create_future()


class Sending:
    """Counts the bytes of large answers that are being sent. Belongs to the event loop.

    `_held` has the answers, the oldest first. `_waiting` has the streams that wait, by tenant and connection.
    """

    def __init__(self, max_bytes: int) -> None:
        """Takes the bound of all answers together, of which one may be larger alone."""
        self._max_bytes = max_bytes
        self._held: dict[Held, None] = {}
        self._bytes_of = Counter[str]()
        """Of the answers of each tenant."""
        self._first_tenant: str | None = None
        self._has_others = False
        """Whether more than one tenant has had a large answer."""
        self._waiting: dict[str, dict[str, deque[_Turn]]] = {}
        self._refused = set[Client]()
        """Who was refused a place since the last one became free."""
        self._timer: asyncio.TimerHandle | None = None
        self._making = FairSemaphore(MAX_MADE, tenant_limit=MAX_MADE)
        """Of answers, each of which counts as one."""
        self.bytes = 0
        """Of the answers that have a place."""
        self.waiting_bytes = 0
        """Of the answers that wait for one."""
        self._shared: dict[int, tuple[int, int]] = {}
        """How many of these share an object, and its bytes, by its id: they have it, so no other has the id."""

    @contextlib.asynccontextmanager
    async def making(self, client: Client) -> AsyncIterator[None]:
        """Is entered while an answer is made that may be large. Addresses have turns. Safe to cancel."""
        async with self._making.held(network_of_peer(client.connection), 1):
            yield

    def check(self, client: Client) -> None:
        """Raises TooManyCalls when a client was refused a place and none became free since.

        So no answer after the other is made in vain.
        """
        if client in self._refused:
            self._end_old()
            raise self._full()

    def hold(self, size: int, client: Client, end: Callable[[], object]) -> Held:
        """Gives an answer a place. Returns what `release` takes.

        Args:
            size: Of the answer in bytes.
            client: Whose answer it is.
            end: Cuts its client off; called once at most, and before `release`.

        Raises:
            TooManyCalls: there is none.
        """
        if not self._fits(size, client.tenant):
            self._end_old()
            self._refused.add(client)
            raise self._full()
        return self._take(size, client.tenant, end)

    def release(self, held: Held) -> None:
        """Takes a place back. Idempotent."""
        if held in self._held:
            del self._held[held]
            self.bytes -= held.size
            self._bytes_of[held.tenant] -= held.size
            if not self._bytes_of[held.tenant]:
                del self._bytes_of[held.tenant]
            self._refused.clear()
            self._wake()

    @contextlib.asynccontextmanager
    async def place(
        self, size: int, client: Client, end: Callable[[], object], shared: object = None
    ) -> AsyncIterator[None]:
        """Has a place for an answer of a stream while the body runs; waits until there is one.

        Args:
            size: Of the answer in bytes.
            client: Whose stream it is.
            end: Cuts the client off; called once at most, while the body runs.
            shared: What holds the bytes of the answer while it waits, if other answers may have the same.

        Raises:
            TooManyCalls: there is no place, and no memory to wait for one.
        """
        if client.tenant in self._waiting or self._is_held_up() or not self._fits(size, client.tenant):
            with self._memory(size, shared):
                held = await self._turn(_Turn(size, end), client)
        else:
            held = self._take(size, client.tenant, end)
        try:
            yield
        finally:
            self.release(held)

    async def _turn(self, turn: "_Turn", client: Client) -> Held:
        self._waiting.setdefault(client.tenant, {}).setdefault(client.connection, deque()).append(turn)
        self._wake()
        try:
            return await turn.place
        except asyncio.CancelledError:
            if turn.place.done() and not turn.place.cancelled():
                self.release(turn.place.result())
            self._wake()
            raise

    @contextlib.contextmanager
    def _memory(self, size: int, shared: object) -> Iterator[None]:
        """Counts an answer while it waits. Raises TooManyCalls: too much waits already."""
        key = None if shared is None else id(shared)
        count, size = self._shared.get(key, (0, size)) if key is not None else (0, size)
        if not count and self.waiting_bytes and self.waiting_bytes + size > MAX_WAITING_BYTES:
            self._end_old()
            raise self._full()
        self._note(key, count + 1, size, more=0 if count else size)
        try:
            yield
        finally:
            count = self._shared[key][0] - 1 if key is not None else 0
            self._note(key, count, size, more=0 if count else -size)

    def _note(self, key: int | None, count: int, size: int, *, more: int) -> None:
        self.waiting_bytes += more
        if key is not None and count:
            self._shared[key] = count, size
        elif key is not None:
            del self._shared[key]

    def _fits(self, size: int, tenant: str) -> bool:
        if self._first_tenant is None:
            self._first_tenant = tenant
        self._has_others |= tenant != self._first_tenant
        left, own = self._max_bytes - self.bytes - size, self._bytes_of.get(tenant, 0)
        if not self._held or (left >= 0 and not (own and self._has_others)):
            return True
        return left >= 0 and own + size <= TENANT_SHARE * left

    def _take(self, size: int, tenant: str, end: Callable[[], object]) -> Held:
        held = Held(size, tenant, asyncio.get_running_loop().time(), end)
        self._held[held] = None
        self.bytes += size
        self._bytes_of[tenant] += size
        return held

    def _full(self) -> TooManyCalls:
        return TooManyCalls.at("limits.max_sending_bytes", self._max_bytes, RETRY_AFTER)

    def _end_old(self) -> float | None:
        """Cuts off who has not read for long. Returns when the next one has not; None if there is none."""
        now = asyncio.get_running_loop().time()
        for held in list(self._held):
            if held.is_ended:
                continue
            if held.since + UNREAD_SECONDS > now:
                return held.since + UNREAD_SECONDS
            held.is_ended = True
            held.end()
        return None

    def _wake(self) -> None:
        """Lets the next streams go on that have room, and comes again when old answers lose theirs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        next_end = self._end_old()
        while self._give_next():
            pass
        if self._waiting and next_end is not None:
            self._timer = asyncio.get_running_loop().call_at(next_end + _LATER_SECONDS, self._wake)

    def _has_none(self, tenant: str) -> bool:
        """Returns whether a tenant that waits has no room, so that nobody overtakes it: else it might wait for ever."""
        return tenant not in self._bytes_of

    def _is_held_up(self) -> bool:
        """Returns whether streams wait behind one whose tenant has no room."""
        return any(map(self._has_none, self._waiting))

    def _give_next(self) -> bool:
        """Gives the next stream its place, or forgets it if it is gone. Returns False when there is room for none."""
        for tenant, connections in self._waiting.items():
            connection, turns = next(iter(connections.items()))
            turn = turns[0]
            if not turn.place.done() and not self._fits(turn.size, tenant):
                if self._has_none(tenant):
                    return False
                continue
            turns.popleft()
            del connections[connection], self._waiting[tenant]  # behind the others, if they have more
            if turns:
                connections[connection] = turns
            if connections:
                self._waiting[tenant] = connections
            if not turn.place.done():
                turn.place.set_result(self._take(turn.size, tenant, turn.end))
            return True
        return False
