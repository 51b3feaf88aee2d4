"""Requests with a name (AIP-155): a retry gets the answer of the first attempt, even after a restart.

Names are separate for each principal: callers that differ in tenant or subject may use the same name.
"""

import asyncio

import msgspec

from turnwire.core.intake.inputs import NamedRequest
from turnwire.core.intake.receipts import Receipt
from turnwire.core.work import Work
from turnwire.domain.errors import RequestIdReused
from turnwire.domain.principal import Principal
from turnwire.ports.commit import RecordRequest
from turnwire.ports.store import Store

_Name = tuple[str, str, str]
"""Tenant, subject and request_id."""


class NamedRequests:
    """Ensures that each named request is carried out once.

    A caller claims the name, looks for the first receipt, stores its own in the commit of the request, and releases
    the name. `_claimed` maps each claimed name to the event that its release sets. It is bounded by the calls in
    flight. Used on the event loop only.
    """

    def __init__(self, store: Store) -> None:
        """Takes the store that has the receipts."""
        self._store = store
        self._claimed: dict[_Name, asyncio.Event] = {}

    async def claim(self, principal: Principal, request_id: str) -> None:
        """Waits until a name is free and claims it. Safe to cancel: then the name is not claimed."""
        name = _name(principal, request_id)
        while name in self._claimed:
            await self._claimed[name].wait()
        self._claimed[name] = asyncio.Event()

    def release(self, principal: Principal, request_id: str) -> None:
        """Releases a claimed name; one of the callers waiting for it gets it."""
        self._claimed.pop(_name(principal, request_id)).set()

    async def first_receipt(self, principal: Principal, new: NamedRequest) -> Receipt | None:
        """Returns the receipt of the first attempt, marked as a duplicate; None when this is the first.

        Raises:
            RequestIdReused: the name was used for a request with different content.
        """
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


def _name(principal: Principal, request_id: str) -> _Name:
    return principal.tenant, principal.subject, request_id
