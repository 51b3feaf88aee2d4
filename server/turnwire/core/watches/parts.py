"""The events that one server of several has of its own sessions, for watches of all sessions at another one.

A part begins with what is open, and goes on with what is published. It has the frames of what is not stored, each in
its place between the positions of stored events: those, the watch reads from the store. The frames are events, or in a
part for a conflated watch the states of what changed.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.servers import PartRequest
from turnwire.core.turns.registry import Turns
from turnwire.core.watches.conflated import ChangedParts, encode_found, open_changes
from turnwire.core.watches.join import ENTRIES_AT_ONCE
from turnwire.core.watches.watch import is_delta, open_now
from turnwire.domain.conversation.events import Event
from turnwire.domain.errors import ShuttingDown
from turnwire.feed.memory import Entry, Subscription
from turnwire.ports.codec import Codec

PART_BYTES = 256 * 1024
"""Approximate size of what is sent together of the beginning."""


class Told(Struct, frozen=True, array_like=True):
    """A frame, or else a position; with neither, the end of the beginning."""

    frame: bytes = b""
    """An event that is not stored, or a state."""
    position: int = 0
    """That of a stored event; the first one: all of this server's up to it are in the frames of the beginning."""


BEGUN = Told()
"""Follows what was open at the beginning."""


def told(data: bytes) -> list[Told]:
    """Returns what a part has sent at once."""
    return _DECODER.decode(data)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Told])


class WatchParts:
    """Makes the parts of this server."""

    def __init__(
        self, environment: Environment, turns: Turns, codec: Codec, *, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        """Args:
        environment: Ports.
        turns: Has what is open.
        codec: Encodes what is open.
        seconds: A monotonic clock.
        """
        self._environment, self._turns, self._codec, self._seconds = environment, turns, codec, seconds

    async def part(self, tenant: str, request: PartRequest) -> AsyncGenerator[bytes]:
        """Yields what `told` takes, about the sessions of a tenant, until the caller closes the iterator.

        What any server had stored before the call is before the beginning.

        Raises:
            ShuttingDown: sessions went to another server, the caller is too slow, or the server stops.
            StorageError: the log could not be read.
        """
        store = self._environment.store
        await store.of(tenant).log_bounds()  # now what was stored before the call is published
        subscription = self._environment.feed.subscribe(tenant, None, is_part=True)
        try:
            first = Told(position=max(1, store.moment(tenant).position))
            teller = self._teller(tenant, request)
            batches = [*_batches(teller.opening()), [BEGUN]]
            yield _ENCODER.encode([first])
            for batch in batches:
                yield _ENCODER.encode(batch)
            del batches
            while not (subscription.lagging or subscription.closed):
                entries = subscription.take_entries(ENTRIES_AT_ONCE)
                if items := teller.items(entries):
                    yield _ENCODER.encode(items)
                del entries
                await teller.wait(subscription)
            raise ShuttingDown
        finally:
            subscription.close()

    def _teller(self, tenant: str, request: PartRequest) -> "_Events | _States":
        if request.is_conflated:
            return _States(self._turns, tenant, request.session_ids, self._seconds)
        environment, turns, codec = self._environment, self._turns, self._codec
        return _Events(environment, turns, codec, tenant, include_deltas=request.include_deltas)


def _batches(frames: Iterable[bytes]) -> list[list[Told]]:
    batches, size = [list[Told]()], 0
    for frame in frames:
        if size + len(frame) > PART_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(Told(frame))
        size += len(frame)
    return batches


class _Events:
    """Tells of events."""

    def __init__(
        self, environment: Environment, turns: Turns, codec: Codec, tenant: str, *, include_deltas: bool
    ) -> None:
        self._environment, self._turns, self._codec = environment, turns, codec
        self._tenant, self._include_deltas = tenant, include_deltas

    def opening(self) -> Iterator[bytes]:
        """Yields what is open."""
        for kind, session_id in open_now(self._turns, self._tenant, None):
            event = Event(session_id=session_id, kind=kind, at=self._environment.clock())
            yield self._codec.encode_event(event)

    def items(self, entries: Sequence[Entry]) -> list[Told]:
        """Returns what to tell of published events."""
        items = []
        for entry in entries:
            if entry.order:
                items.append(Told(position=entry.order))
            elif self._include_deltas or entry.event is None or not is_delta(entry.event.kind):
                items.append(Told(entry.frame))
        return items

    async def wait(self, subscription: Subscription) -> None:
        """Returns when there may be something to tell."""
        await subscription.wait()


class _States:
    """Tells the states of parts, as a conflated watch needs them."""

    def __init__(self, turns: Turns, tenant: str, session_ids: frozenset[str], seconds: Callable[[], float]) -> None:
        self._turns, self._tenant, self._session_ids = turns, tenant, session_ids
        self._parts = ChangedParts(turns, seconds)

    def opening(self) -> Iterator[bytes]:
        """Yields what is open."""
        yield from map(encode_found, open_changes(self._turns, self._tenant, self._session_ids))

    def items(self, entries: Sequence[Entry]) -> list[Told]:
        """Returns what to tell of published events, and the states of parts when an update is due."""
        items = []
        for entry in entries:
            if entry.order:
                items.append(Told(position=entry.order))
            event = entry.event
            if event is not None and (not self._session_ids or event.session_id in self._session_ids):
                self._parts.note(event)
        return items + [Told(encode_found(found)) for found in self._parts.take()]

    async def wait(self, subscription: Subscription) -> None:
        """Returns when there may be something to tell."""
        seconds = self._parts.seconds_left()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await subscription.wait()
