"""Requests while they are received: how many, and for how long.

How large a request is, is known when it is there: gRPC shows no part of it. So each one may be as large as the largest,
and few are received at a time. A request that its client has sent comes at once, so the others hardly wait. One that
does not come soon makes room for others: so many clients may be slow, and none of them stops the quick ones.
Connections that send large requests have half of the places, and longer: else those of a hundred would come together.
Connections with slow requests have few turns beside others, and make room first when there are too many of them.
What connections have sent of slow requests is looked at while there are such, and those that have most make room, too.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import timedelta

from turnwire.api.bounds.connections.unfinished import Unfinished
from turnwire.api.bounds.copying import Copying
from turnwire.api.bounds.peers import Resets
from turnwire.api.turns import Turns
from turnwire.domain.errors import DomainError, RequestTooSlow, TooManyCalls
from turnwire.domain.networks import network_of_peer

QUICK_SECONDS = 0.05
"""How long a request may take to arrive and keep its place. One that its client has sent is there sooner, also when the
processor is busy."""

HURRIED_SECONDS = 0.005
"""How long it keeps its place while quick connections wait for one: with thousands of connections that each begin a
slow request, others would wait for seconds."""

LARGE_BYTES = 2**20
"""A connection that has sent a request of this size has its places among those for large ones."""

SMALL_AGAIN = 16
"""After so many smaller ones it has them among the others again."""

LARGE_SECONDS = 2.0
"""How long a request of such a connection may take to arrive and keep its place."""

LARGE_HURRIED_SECONDS = 0.25
"""How long it keeps its place while such connections of another address wait for one: requests that do not come, which
cost nothing, would hold up theirs."""

_MAX_LARGE = 10_000
"""Connections that are known for large requests; further ones replace the oldest."""

BEHIND = 16
"""One of so many places is for connections with slow requests, so that they do not wait for ever beside one that always
has others. A request that does not come keeps it for `HURRIED_SECONDS`."""

_PASSED = 256
"""Waiting calls that are looked at in one round of the event loop: thousands of callers may leave together."""

MAX_LATE = 4
"""Requests that have come after their call was ended, and wait to be freed. With as many, no further ones are received:
they have no place, and each may be as large as the largest."""

RECEIVE_SECONDS = 600.0
"""How long a request may take to arrive: enough for the largest default request at 28 KB a second."""

MAX_SLOW = 2_000
"""Requests that have lost their place and still come. Each has what its client has sent so far; when memory becomes
short they are ended first. With one more, the newest of the connection that has most of them ends."""

MAX_SLOW_BYTES = 128 * 2**20
"""Of all that connections with slow requests have sent of requests that are not whole. Beyond it, the slow requests of
the connection that has sent most of that end. Only Linux tells it, and not of Unix sockets."""

LOOK_SECONDS = 0.05
"""How often that is looked at while there are slow requests. As much as clients send meanwhile may be there, too."""

RETRY_AFTER = timedelta(seconds=1)
"""When whoever is refused because of too many calls, or too little memory, may try again."""


class CallerGone(Exception):
    """The caller has left its call."""


class _Reading:
    """One request that is being received."""

    __slots__ = ("begun_at", "connection", "error", "has_come", "has_place", "is_large", "scope", "task")

    def __init__(self, connection: str, scope: asyncio.Timeout, *, is_large: bool) -> None:
        self.connection, self.scope, self.is_large = connection, scope, is_large
        self.task = asyncio.current_task()
        self.has_place, self.has_come = True, False
        self.begun_at = asyncio.get_running_loop().time()
        self.error: DomainError | None = None

    def end(self, error: DomainError, now: float) -> None:
        """Ends it with an error, unless the whole request is there."""
        if not self.has_come and not self.scope.expired():
            self.error = error
            self.scope.reschedule(now)


class Receiving:
    """Receives requests. Belongs to the event loop.

    `_waiting` has those that wait for a place: connections have turns, so one with many requests does not hold up
    another one. `_behind` has those of connections that have slow requests; one place of `BEHIND` is for these.
    `_large` has those of connections that send large ones.
    """

    def __init__(
        self,
        max_bytes: int,
        max_message_bytes: int,
        copying: Copying,
        resets: Resets,
        unfinished: Unfinished | None = None,
    ) -> None:
        """Args:
        max_bytes: Of all requests that have a place.
        max_message_bytes: Of the largest one.
        copying: What those that are complete may wait for.
        resets: Counts those whose client leaves before they are there.
        unfinished: Tells what connections have sent of requests that are not whole; by default the system does.
        """
        self._copying = copying
        self._resets = resets
        self._unfinished = unfinished or Unfinished()
        self._max_slow_bytes = max(MAX_SLOW_BYTES, 2 * max_message_bytes)
        self._looking: asyncio.Task[None] | None = None
        """Runs while there are slow requests."""
        self._free = max(2, max_bytes // max_message_bytes)
        self._placed: dict[_Reading, None] = {}
        """Those that have a place, in the order of their beginning."""
        self._hurrying: asyncio.TimerHandle | None = None
        """Takes places back as long as others wait."""
        self._hurries_at = 0.0  # by the loop's clock; timers of uvloop that are due at once do not tell it
        self._waiting = Turns[asyncio.Future[bool]]()
        self._behind = Turns[asyncio.Future[bool]]()
        self._large = Turns[asyncio.Future[bool]]()
        self._free_large = self._free // 2
        """How many of the free places connections with large requests may take."""
        self._sends_large: dict[str, int] = {}
        """Connections with large requests, and how many smaller ones they have to send."""
        self._is_giving = False
        """Whether free places are given in the next round of the event loop."""
        self._given = 0
        """Places that were given to those that waited, and of which these had left."""
        self._slow: dict[_Reading, None] = {}
        self._ending: DomainError | None = None
        """What ends requests that take long to come."""
        self._slow_of: Counter[str] = Counter()

    @property
    def slow(self) -> int:
        """How many requests take long to come."""
        return len(self._slow)

    async def read(self, connection: str, receive: Callable[[], Awaitable[bytes]]) -> bytes:
        """Receives a request. Safe to cancel.

        Args:
            connection: Whose request it is.
            receive: Returns its bytes.

        Raises:
            RequestTooSlow: it did not come in time.
            TooManyCalls: too many are slow, or clients have sent too much of them.
            CallerGone: `receive` has raised it. Such a call counts as reset, as one that is cancelled.
        """
        size: int | None = None
        self._unfinished.begin(connection)
        try:
            request = await self._read(connection, receive)
            size = len(request)
            self._note_size(connection, size)
        except (asyncio.CancelledError, CallerGone):
            self._resets.note(connection)
            raise
        finally:
            self._unfinished.end(connection, size)
        self._resets.forgive(connection)
        return request

    async def _read(self, connection: str, receive: Callable[[], Awaitable[bytes]]) -> bytes:
        is_large = await self._place(connection)
        reading = _Reading(connection, asyncio.timeout(None), is_large=is_large)
        self._placed[reading] = None
        seconds = LARGE_SECONDS if is_large else QUICK_SECONDS
        timer = asyncio.get_running_loop().call_later(seconds, self._is_late, reading)
        try:
            self._hurry()
            async with reading.scope:
                data = await receive()
                reading.has_come = True
                return data
        except TimeoutError:
            if not reading.scope.expired():
                raise
            raise reading.error or RequestTooSlow.at("RECEIVE_SECONDS", RECEIVE_SECONDS) from None
        finally:
            timer.cancel()
            self._leave(reading)
            self._forget(reading)

    def make_room(self, connection: str, error: DomainError) -> bool:
        """Ends a request that is not asked for yet, with an error, so that a call of another connection may begin.

        It is the newest of the connection that has most of them among those that wait behind others because they have
        slow ones, or else among all.

        Args:
            connection: Whose call wants room. One that has slow requests itself gets none, nor one of whom about as
                many wait as of others of its address.
            error: What the ended call is told.

        Returns:
            Whether there was such a request.
        """
        if connection in self._slow_of:
            return False
        while waiting := next((line for line in (self._behind, self._large, self._waiting) if line.count), None):
            most = waiting.owner_of_most()
            has_fewer = waiting.count_of(connection) + 1 < waiting.count_of(most)
            if waiting is not self._behind and not has_fewer and network_of_peer(most) == network_of_peer(connection):
                return False
            turn = waiting.take_newest(most)
            if not turn.done():
                turn.set_exception(error)
                return True
        return False

    def end_slow(self, error: DomainError | None) -> None:
        """Ends all requests that take long to come, also those that will, with an error; None lets them come again."""
        self._ending = error
        for reading in list(self._slow):
            now = asyncio.get_running_loop().time()
            if error is not None and now >= reading.begun_at + QUICK_SECONDS:  # later ones have their time first
                reading.end(error, now)

    def _is_there(self, reading: _Reading) -> bool:
        """Returns whether all of it has come."""
        return reading.has_come or self._copying.has(reading.task)

    def _hurry(self) -> None:
        """Looks after those that have places, while others wait for these."""
        ends = [self._must_come_by(one) for one in self._placed] if self._waiting.count or self._large.count else ()
        end = min((one for one in ends if one is not None), default=None)
        if end is not None and (self._hurrying is None or end < self._hurries_at):
            if self._hurrying is not None:
                self._hurrying.cancel()
            self._hurrying, self._hurries_at = asyncio.get_running_loop().call_at(end, self._end_hurry), end

    def _must_come_by(self, reading: _Reading) -> float | None:
        """Returns when a request loses its place to one that waits; None when it is there, or none waits for it."""
        line = self._large if reading.is_large else self._waiting
        if not line.count or self._is_there(reading) or (reading.is_large and not line.has_others(reading.connection)):
            return None
        return reading.begun_at + (LARGE_HURRIED_SECONDS if reading.is_large else HURRIED_SECONDS)

    def _end_hurry(self) -> None:
        self._hurrying, now = None, asyncio.get_running_loop().time()
        for reading in list(self._placed):
            end = self._must_come_by(reading)
            if end is not None and end <= now:
                self._slow_down(reading)
        self._hurry()

    def _leave(self, reading: _Reading) -> None:
        """Gives back the place of a request. Idempotent."""
        if reading.has_place:
            reading.has_place = False
            del self._placed[reading]
            self._give_back(is_large=reading.is_large)

    def _is_late(self, reading: _Reading) -> None:
        self._slow_down(reading)
        if self._ending is not None and reading in self._slow:
            reading.end(self._ending, asyncio.get_running_loop().time())

    def _slow_down(self, reading: _Reading) -> None:
        """Counts a request as slow, without a place, unless it is there or counts so already."""
        if self._is_there(reading) or not reading.has_place:
            return
        now = asyncio.get_running_loop().time()
        self._slow[reading] = None
        self._slow_of[reading.connection] += 1
        for line in (self._waiting, self._large):
            for turn in line.drop(reading.connection):
                self._behind.add(reading.connection, turn)
        self._leave(reading)
        reading.scope.reschedule(now + RECEIVE_SECONDS)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="slow requests")
        if len(self._slow) > MAX_SLOW:
            [(most, _)] = self._slow_of.most_common(1)
            ended = next(one for one in reversed(self._slow) if one.connection == most)
            self._forget(ended)
            text = "the server has too many requests that come slowly"
            ended.end(TooManyCalls.of("MAX_SLOW", MAX_SLOW, text, RETRY_AFTER), now)

    async def _look(self) -> None:
        """Keeps what is there of slow requests within its bound; ends when there are none."""
        while self._slow:
            await asyncio.sleep(LOOK_SECONDS)
            sent = await self._unfinished.bytes_of(list(self._slow_of))
            for connection, size in sent.items():
                if size >= LARGE_BYTES:
                    self._note_size(connection, size)
            too_much = sum(sent.values()) - self._max_slow_bytes
            while too_much > 0:
                most = max(sent, key=lambda one: sent[one])
                too_much -= sent[most]
                self._unfinished.forgive(most, sent.pop(most))
                text = "the server has too much of requests that come slowly"
                error = TooManyCalls.of("MAX_SLOW_BYTES", self._max_slow_bytes, text, RETRY_AFTER)
                for reading in [one for one in self._slow if one.connection == most]:
                    reading.end(error, asyncio.get_running_loop().time())

    def _forget(self, reading: _Reading) -> None:
        """Counts a slow request no longer. Idempotent."""
        if reading in self._slow:
            del self._slow[reading]
            self._slow_of[reading.connection] -= 1
            if not self._slow_of[reading.connection]:
                del self._slow_of[reading.connection]

    def _note_size(self, connection: str, size: int) -> None:
        """Notes whether a connection sends large requests."""
        rest = SMALL_AGAIN if size >= LARGE_BYTES else self._sends_large.pop(connection, 0) - 1
        if rest > 0:
            self._sends_large[connection] = rest
            if len(self._sends_large) > _MAX_LARGE:
                del self._sends_large[next(iter(self._sends_large))]

    async def _place(self, connection: str) -> bool:
        """Returns when there is a place, which is taken then. Returns whether it is one of those for large requests."""
        is_large = connection in self._sends_large and connection not in self._slow_of
        if not (self._waiting.count or self._behind.count or self._large.count) and self._may_take(is_large=is_large):
            self._take(is_large=is_large)
            return is_large
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        line = self._behind if connection in self._slow_of else self._large if is_large else self._waiting
        line.add(connection, turn)
        self._hurry()
        if not self._is_giving:
            self._give()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # it had got a place, no refusal
                self._give_back(is_large=turn.result())
            raise

    def _may_take(self, *, is_large: bool) -> bool:
        return self._free > 0 and (not is_large or self._free_large > 0) and self._copying.late < MAX_LATE

    def _take(self, *, is_large: bool) -> None:
        self._free -= 1
        self._free_large -= is_large

    def _give_back(self, *, is_large: bool) -> None:
        """Gives a place to who waits for it."""
        self._free += 1
        self._free_large += is_large
        if not self._is_giving:
            self._give()

    def _give(self) -> None:
        """Gives the free places to those that wait; goes on later when many of these have left."""
        self._is_giving = False
        for _ in range(_PASSED):
            line = self._next_line()
            if line is None:
                return
            is_large = line is self._large
            if not self._may_take(is_large=is_large):  # what came late is to be freed first
                self._is_giving = True
                asyncio.get_running_loop().call_later(HURRIED_SECONDS, self._give, context=Context())
                return
            self._given += 1
            _connection, turn = line.take()
            if not turn.done():
                self._take(is_large=is_large)
                turn.set_result(is_large)
        self._is_giving = True
        asyncio.get_running_loop().call_soon(self._give, context=Context())  # as nobody's work

    def _next_line(self) -> Turns[asyncio.Future[bool]] | None:
        """Returns those that wait of whom one is next; None when nobody may have a place now."""
        if self._free <= 0:
            return None
        if self._large.count and self._free_large > 0 and (not self._waiting.count or self._given % 2):
            return self._large
        if self._waiting.count and (not self._behind.count or (1 + self._given) % BEHIND):
            return self._waiting
        return self._behind if self._behind.count else None
