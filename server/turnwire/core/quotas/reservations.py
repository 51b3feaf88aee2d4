"""Reservations: sessions and bytes that count for a quota before they are stored.

Without them, two requests at the same time would both take the last place.
"""

import contextlib
from asyncio import Future
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.quotas.checks import check_count
from turnwire.domain.accounts import QuotaName
from turnwire.ports.commit import FileChange, PutFile


class Reservation:
    """Sessions and bytes of one request that are not stored yet."""

    def __init__(
        self,
        counts: Counter[tuple[str, QuotaName]],
        held: Counter[tuple[str, QuotaName]],
        stored: "deque[Reservation]",
    ) -> None:
        """Adds what is held to the counts; called by `Reservations.reserve`.

        Args:
            counts: What all reservations hold.
            held: What this one holds.
            stored: Gets the reservation when a commit holds it.
        """
        self._counts = counts
        self._held = held
        self._stored = stored
        self._storing: Future[Any] | None = None
        counts.update(held)

    @property
    def is_stored(self) -> bool:
        """True once the commit that holds it is done: the account has it since the same moment."""
        return self._storing is not None and self._storing.done()

    def until(self, storing: "Future[Any]") -> None:
        """Holds the reservation until a commit is done, also when the caller is cancelled.

        Args:
            storing: The store's own future, which nobody may cancel.
        """
        self._storing = storing
        if self._held:
            self._stored.append(self)
            storing.add_done_callback(lambda _: self.release())

    def leave(self) -> None:
        """Releases the reservation unless a commit holds it."""
        if self._storing is None:
            self.release()

    def release(self) -> None:
        """Gives back what it holds. Idempotent."""
        held, self._held = self._held, Counter()
        for key, count in held.items():
            self._counts[key] -= count
            if not self._counts[key]:
                del self._counts[key]


class Reservations:
    """What is on its way to the store, of all tenants. Bounded by the calls in flight. Used on the event loop only.

    `_storing` has the reservations that commits hold, in the order of their commits, which is the order in which they
    end. Callbacks of a future run later than its account changes: a request that comes between them would count both.
    """

    def __init__(self, environment: Environment) -> None:
        """Takes the settings and the store."""
        self._environment = environment
        self._counts: Counter[tuple[str, QuotaName]] = Counter()
        self._storing: deque[Reservation] = deque()

    @contextlib.contextmanager
    def reserve(
        self,
        tenant: str,
        stored: Iterable[Struct] = (),
        files: Iterable[FileChange] = (),
        *,
        told: Iterable[Struct] = (),
        is_new_session: bool = False,
        copied_bytes: int = 0,
    ) -> Iterator[Reservation]:
        """Reserves what a request is about to store. Leaving the context releases it unless `until` was called.

        Args:
            tenant: Who stores it.
            stored: The values that are stored.
            files: Their files. They count as if the tenant had none of them yet; uploads count already.
            told: The values that events carry; an event is about as long as its value.
            is_new_session: Whether a session is created.
            copied_bytes: Bytes of the messages and turns that are copied to it, or of an upload.

        Raises:
            QuotaExceeded: a quota of the tenant has no room for it.
        """
        self._release_stored()
        environment = self._environment
        limits = environment.settings.quotas_of(tenant)
        account = environment.store.of(tenant).account(environment.clock())
        held = Counter[tuple[str, QuotaName]]()
        if is_new_session and limits.max_sessions:
            held[tenant, QuotaName.SESSIONS] = 1
            used = account.sessions + self._counts[tenant, QuotaName.SESSIONS]
            check_count(tenant, QuotaName.SESSIONS, limits.max_sessions, used)
        if limits.max_stored_bytes:
            values = (*stored, *told)
            size = copied_bytes + sum(len(msgspec.json.encode(value)) for value in values)
            size += sum(len(file.content) for file in files if isinstance(file, PutFile))
            held[tenant, QuotaName.STORED_BYTES] = size
            used = account.stored_bytes + self._counts[tenant, QuotaName.STORED_BYTES]
            check_count(tenant, QuotaName.STORED_BYTES, limits.max_stored_bytes, used, size)
        reservation = Reservation(self._counts, held, self._storing)
        try:
            yield reservation
        finally:
            reservation.leave()

    def _release_stored(self) -> None:
        while self._storing and self._storing[0].is_stored:
            self._storing.popleft().release()
