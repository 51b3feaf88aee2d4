"""Requests with a name (AIP-155): a retry gets the first answer, across restarts too.

A name belongs to its principal: two callers, told apart by tenant and subject, may use the same one.
"""

import asyncio

import msgspec

from turnwire.core.intake.inputs import NewMessage
from turnwire.core.intake.receipts import Receipt
from turnwire.core.work import Work
from turnwire.domain.errors import RequestIdReused
from turnwire.domain.principal import Principal
from turnwire.ports.commit import RecordRequest
from turnwire.ports.store import Store

_Name = tuple[str, str, str]
"""Tenant, subject and request_id."""


class NamedRequests:
    """Sees to it that each named request is carried out once.

    Whoever carries one out claims its name, asks for the first receipt, and releases the name at the end; the receipt
    is recorded in the commit of the request. `_claimed` holds the names until then, with what wakes those who wait for
    them. It is bounded by the calls in flight. Used on the event loop only.
    """

    def __init__(self, store: Store) -> None:
        """Takes the store that remembers."""
        self._store = store
        self._claimed: dict[_Name, asyncio.Event] = {}

    async def claim(self, principal: Principal, request_id: str) -> None:
        """Takes a name, once nobody else holds it. Safe to cancel: then it is not taken."""
        name = _name(principal, request_id)
        while name in self._claimed:
            await self._claimed[name].wait()
        self._claimed[name] = asyncio.Event()

    def release(self, principal: Principal, request_id: str) -> None:
        """Gives a name up that was claimed; one of those who wait for it gets it."""
        self._claimed.pop(_name(principal, request_id)).set()

    async def first_receipt(self, principal: Principal, new: NewMessage) -> Receipt | None:
        """Returns the answer that the first try got, marked as a duplicate; None when this is the first.

        Raises:
            RequestIdReused: the name was used for a request with another content.
        """
        stored = await self._store.request(principal, new.request_id)
        if stored is None:
            return None
        if stored.fingerprint != new.fingerprint:
            raise RequestIdReused.of("request_id", "was used for another request", requestId=new.request_id)
        receipt = msgspec.json.decode(stored.receipt_json, type=Receipt)
        return msgspec.structs.replace(receipt, sequence=stored.before_sequence, duplicate=True)


def receipt_record(principal: Principal, new: NewMessage, receipt: Receipt) -> Work:
    """Returns the work that remembers the answer; empty for a request without a name."""
    if not new.request_id:
        return Work()
    receipt_json = msgspec.json.encode(receipt).decode()
    return Work((RecordRequest(principal, new.request_id, new.fingerprint, receipt_json),))


def _name(principal: Principal, request_id: str) -> _Name:
    return principal.tenant, principal.subject, request_id
