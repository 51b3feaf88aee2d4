"""Requests with a name (AIP-155): a retry gets the answer of the first attempt, even after a restart.

Names are separate for each principal: callers that differ in tenant or subject may use the same name.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from turnwire.core.detached import DetachedTasks
from turnwire.core.intake.inputs import NamedRequest
from turnwire.core.intake.receipts import Receipt
from turnwire.core.work import Work
from turnwire.domain.errors import RequestIdReused
from turnwire.domain.principal import Principal
from turnwire.ports.commit import RecordRequest
from turnwire.ports.store import Store

T = TypeVar("T")

_Name = tuple[str, str, str]
"""Tenant, subject and request_id."""


class NamedRequests:
    """Ensures that each named request is carried out once.

    `_claimed` maps the name of each request that is being carried out to the event that its end sets. It is bounded by
    the calls in flight. Used on the event loop only.
    """

    def __init__(self, store: Store, detached: DetachedTasks) -> None:
        """Takes the store that has the receipts, and who owns requests when their callers are gone."""
        self._store = store
        self._detached = detached
        self._claimed: dict[_Name, asyncio.Event] = {}

    async def once(
        self,
        principal: Principal,
        new: NamedRequest,
        carry_out: Callable[[], Coroutine[Any, Any, T]],
    ) -> T | Receipt:
        """Carries a request out, unless it has a name and was carried out before.

        Requests of the same name wait for each other; one that fails leaves the name to the next. Safe to cancel while
        it waits. From then on it continues without its caller, so that a retry finds the receipt.

        Args:
            principal: Who sent the request.
            new: The request.
            carry_out: Does the work, and stores `receipt_record` in the same commit.

        Returns:
            What `carry_out` returned; for a retry the receipt of the first attempt, marked as a duplicate.

        Raises:
            RequestIdReused: the name was used for a request with different content.
        """
        if not new.request_id:
            return await self._detached.run(carry_out())
        name = principal.tenant, principal.subject, new.request_id
        while name in self._claimed:
            await self._claimed[name].wait()
        self._claimed[name] = asyncio.Event()
        return await self._detached.run(self._carry_out(name, principal, new, carry_out))

    async def _carry_out(
        self, name: _Name, principal: Principal, new: NamedRequest, carry_out: Callable[[], Coroutine[Any, Any, T]]
    ) -> T | Receipt:
        try:
            return await self._first_receipt(principal, new) or await carry_out()
        finally:
            self._claimed.pop(name).set()

    async def _first_receipt(self, principal: Principal, new: NamedRequest) -> Receipt | None:
        """Returns the receipt of the first attempt; None when this is the first. Raises RequestIdReused."""
        stored = await self._store.request(principal, new.request_id)
        if stored is None:
            return None
        if stored.fingerprint != new.fingerprint:
            raise RequestIdReused.of("request_id", "was used for another request", requestId=new.request_id)
        receipt = msgspec.json.decode(stored.receipt_json, type=Receipt)
        return msgspec.structs.replace(receipt, sequence=stored.before_sequence, duplicate=True)


def receipt_record(principal: Principal, new: NamedRequest, receipt: Receipt) -> Work:
    """Returns the work that stores the receipt; empty for a request without a name."""
    if not new.request_id:
        return Work()
    receipt_json = msgspec.json.encode(receipt).decode()
    return Work((RecordRequest(principal, new.request_id, new.fingerprint, receipt_json),))
