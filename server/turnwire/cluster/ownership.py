"""Which shards this node owns.

A node takes shards that are free, recovers their turns as after a restart, and then carries out their calls. When it
loses the connection that holds its locks it forgets all of them, as a crash would, and begins anew. It gives shards
away when it has more than its share, and all of them when it stops.

    FREE or OTHER -> TAKING (locked, recovering) -> MINE -> GIVING (suspending) -> OTHER
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum
from math import ceil
from typing import Protocol

import structlog

from turnwire.domain.shards import SHARDS, shard_of
from turnwire.ports.ownership import ConnectionLost, Held, Locks

LOOK_SECONDS = 0.3
"""Between two looks for shards that are free."""

SILENT_AFTER = timedelta(seconds=1.2)
"""Silence after which a node no longer answers for its shards: less than the time after which the database ends a
silent connection, so that no node answers from memory for a shard that another one has taken."""

FEW_FREE = 8
"""Number of free shards up to which one node takes them all; of more it takes half, so that nodes share them."""

GIVEN_AT_ONCE = 8
"""Shards that a node with more than its share gives away between two looks."""

log = structlog.get_logger()


class Phase(Enum):
    """The state of a shard on this node, unless it is owned by another node or by none."""

    TAKING = "taking"
    """The lock is held, and the turns that an earlier owner left are being recovered: no call is carried out yet."""
    MINE = "mine"
    """Calls are carried out here."""
    GIVING = "giving"
    """The lock is still held, and turns are being suspended: no call is carried out any more."""


class ShardSessions(Protocol):
    """A node's operations on the sessions of shards."""

    async def recover(self, shards: frozenset[int]) -> None:
        """Continues or ends the turns that an earlier owner left. What fails with the store fails later, too."""
        ...

    async def leave(self, shards: frozenset[int]) -> None:
        """Stops what runs as a stop of the server does, ends the watches, and drops what is in memory.

        What the store refuses, since the shards are lost, is left as it is stored. Returns when nothing that began
        before is left: it could write while its session is recovered later.
        """
        ...

    def is_idle(self, shard: int) -> bool:
        """Returns whether no turn runs or waits in a shard."""
        ...


class Ownership:
    """The shards of this node. Used on the event loop only; `run` is its one task."""

    def __init__(
        self,
        address: str,
        locks: Locks,
        sessions: ShardSessions,
        rng: random.Random | None = None,
        on_gone: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Args:
        address: The address where other nodes reach this one.
        locks: The locks of its writing connection.
        sessions: Operations on the sessions of shards.
        rng: Chooses among free shards.
        on_gone: Called with the address of a node that has no shard any more.
        """
        self._address, self._locks, self._sessions = address, locks, sessions
        self._rng = rng or random.Random()
        self._on_gone = on_gone
        self._phases: dict[int, Phase] = {}
        self._others: Mapping[int, str] = {}
        self._is_stopping = False
        self._changed, self._stopped = asyncio.Event(), asyncio.Event()

    def is_mine(self, shard: int) -> bool:
        """Returns whether calls of a shard are to be carried out here."""
        return self._phases.get(shard) is Phase.MINE and self._locks.silence() < SILENT_AFTER.total_seconds()

    def has_shards(self) -> bool:
        """Returns whether calls of any session are carried out here."""
        return any(map(self.is_mine, self._phases))

    def is_owner(self, address: str) -> bool:
        """Returns whether another node has shards, by its address."""
        return address in self._others.values()

    def addresses(self) -> frozenset[str]:
        """Returns the addresses of all nodes that own shards; "" for this one, whether it does or not."""
        return frozenset(("", *self._others.values()))

    def owner(self, key: str) -> str | None:
        """Returns the address of the node that owns the shard of an id; see `cluster.routing.Owners`."""
        return self.owner_of(shard_of(key))

    def owner_of(self, shard: int) -> str | None:
        """Returns the address of the node that owns a shard, which may be stale; "" for this one, None for none."""
        return "" if self.is_mine(shard) else self._others.get(shard)

    def mine(self) -> frozenset[int]:
        """Returns the shards whose calls are carried out here."""
        return frozenset(shard for shard in self._phases if self.is_mine(shard))

    async def changed(self, seconds: float) -> None:
        """Returns when the owner of a shard may have changed, at the latest after some time."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        """Takes and gives shards until `stop` has returned."""
        while not self._stopped.is_set():
            try:
                if self._is_stopping:
                    await self._locks.leave()
                    await self._give(frozenset(self._phases))
                    self._stopped.set()
                else:
                    await self._look()
                    await self._locks.wait(LOOK_SECONDS)
            except ConnectionLost:
                await self._forget()
                if self._is_stopping:
                    self._stopped.set()
                else:
                    await self._locks.renew()

    async def stop(self) -> None:
        """Has `run` give all shards away, and returns when it has ended; it takes none any more. Idempotent."""
        self._is_stopping = True
        await self._stopped.wait()

    async def _look(self) -> None:
        held = await self._locks.held()
        self._note(held)
        free = [shard for shard in range(SHARDS) if shard not in held.owners and shard not in self._phases]
        missing = ceil(SHARDS / held.nodes) - len(self._phases)
        if free and missing > 0:  # a node with its share leaves the rest, and what it has just given, to the others
            self._rng.shuffle(free)
            wanted = len(free) if len(free) <= FEW_FREE or held.nodes == 1 else ceil(len(free) / 2)
            await self._take(free[: min(wanted, missing)])
        elif missing < 0:
            await self._give(self._surplus(-missing))

    async def _take(self, wanted: list[int]) -> None:
        taken = await self._locks.take(wanted)
        self._phases.update(dict.fromkeys(taken, Phase.TAKING))
        if not taken:
            return
        try:
            await self._sessions.recover(taken)
        except Exception as error:  # somebody else may do better, or the next look
            log.error("shards_not_recovered", count=len(taken), exc_info=error)
            await self._sessions.leave(taken)
            await self._release(taken)
            return
        self._phases.update(dict.fromkeys(taken, Phase.MINE))
        self._tell()
        log.info("shards_taken", count=len(taken), owned=len(self._phases))

    def _surplus(self, too_many: int) -> frozenset[int]:
        """Returns idle shards to give away, of more than this node's share."""
        idle = [shard for shard in self._phases if self._sessions.is_idle(shard)]
        return frozenset(self._rng.sample(idle, min(len(idle), too_many, GIVEN_AT_ONCE)))

    async def _give(self, shards: frozenset[int]) -> None:
        if not shards:
            return
        self._phases.update(dict.fromkeys(shards, Phase.GIVING))
        await self._sessions.leave(shards)
        await self._release(shards)
        log.info("shards_released", count=len(shards), owned=len(self._phases))

    async def _release(self, shards: frozenset[int]) -> None:
        await self._locks.give(shards)
        for shard in shards:
            del self._phases[shard]
        self._tell()

    async def _forget(self) -> None:
        """Forgets everything: another node may own it already, and what was being written may be stored or not."""
        lost = frozenset(self._phases)
        self._phases.clear()
        self._tell()
        await self._sessions.leave(lost)
        log.warning("shards_lost", count=len(lost))

    def _note(self, held: Held) -> None:
        others = {shard: address for shard, address in held.owners.items() if address != self._address}
        if others != self._others:
            gone = set(self._others.values()) - set(others.values())
            self._others = others
            self._tell()
            for address in gone:
                self._on_gone(address)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def own_id(new_id: Callable[[str], str], prefix: str, is_mine: Callable[[str], bool]) -> str:
    """Returns a new id of which the shard is this node's: what a caller makes here lives here.

    Draws until one fits, about as often as there are nodes; an id of any shard when the node owns none.
    """
    for _ in range(SHARDS):
        if is_mine(made := new_id(prefix)):
            return made
    return new_id(prefix)
