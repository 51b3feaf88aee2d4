"""Requests with a name (AIP-155): a retry gets the first answer, across restarts too."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from turnwire.core.intake.inputs import NewMessage
from turnwire.core.intake.receipts import Receipt
from turnwire.core.uncancelled import Uncancelled
from turnwire.core.work import Work
from turnwire.domain.errors import RequestIdReused
from turnwire.ports.commit import RecordRequest
from turnwire.ports.store import Store


class NamedRequests:
    """Sees to it that each named request is carried out once.

    `_running` holds the requests under way. Each goes on when its caller is gone: the retry that follows must find its
    answer. It is bounded by the calls in flight. Used on the event loop only.
    """

    def __init__(self, store: Store) -> None:
        """Takes the store that remembers."""
        self._store = store
        self._running: dict[str, asyncio.Event] = {}
        self._uncancelled = Uncancelled()

    async def once(self, new: NewMessage, carry_out: Callable[[], Awaitable[Receipt]]) -> Receipt:
        """Carries the request out, or returns the answer of its first try. Safe to cancel: what was begun goes on.

        Raises:
            RequestIdReused: the name was used for a request with another content.
        """
        name = new.request_id
        if not name:
            return await carry_out()
        while name in self._running:
            await self._running[name].wait()
        self._running[name] = asyncio.Event()
        return await self._uncancelled.run(self._answer(new, carry_out))

    async def aclose(self) -> None:
        """Waits for requests whose callers are gone. Idempotent."""
        await self._uncancelled.settle()

    @staticmethod
    def record(new: NewMessage, receipt: Receipt) -> Work:
        """Returns the work that remembers the answer; empty for a request without a name."""
        if not new.request_id:
            return Work()
        return Work((RecordRequest(new.request_id, new.fingerprint, msgspec.json.encode(receipt).decode()),))

    async def _answer(self, new: NewMessage, carry_out: Callable[[], Awaitable[Receipt]]) -> Receipt:
        try:
            return await self._answered(new) or await carry_out()
        finally:
            self._running.pop(new.request_id).set()

    async def _answered(self, new: NewMessage) -> Receipt | None:
        stored = await self._store.request(new.request_id)
        if stored is None:
            return None
        if stored.fingerprint != new.fingerprint:
            raise RequestIdReused.of("request_id", "was used for another request", requestId=new.request_id)
        receipt = msgspec.json.decode(stored.receipt_json, type=Receipt)
        return msgspec.structs.replace(receipt, sequence=stored.before_sequence, duplicate=True)
