"""A named request is carried out once, however often and whenever it is sent."""

import asyncio

import msgspec

from tests.support.fakes.core import FakeStore
from tests.support.fakes.loop import settled
from turnwire.core.detached import DetachedTasks
from turnwire.core.intake.requests import NamedRequests, NewMessage, NewText, Receipt, receipt_record
from turnwire.domain.errors import StorageBusy
from turnwire.domain.principal import BUILT_IN, Principal, Role
from turnwire.ports.commit import Work
from turnwire.ports.store import StoredRequest

RECEIPT = Receipt(session_id="ses_1", message_id="msg_1", turn_id="trn_1", queued=True, queue_position=2)


def _new(request_id: str = "req", fingerprint: str = "f") -> NewMessage:
    return NewMessage(session_id="ses_1", parts=(NewText("a"),), request_id=request_id, fingerprint=fingerprint)


class Carrier:
    """Carries requests out when the test says so, and counts."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self.calls = 0
        self.may_finish = asyncio.Event()
        self.failure: Exception | None = None

    async def __call__(self) -> Receipt:
        """Stores the request's record as the use cases do."""
        self.calls += 1
        await self.may_finish.wait()
        if self.failure is not None:
            raise self.failure
        self._store.requests["req"] = StoredRequest("f", msgspec.json.encode(RECEIPT).decode(), before_sequence=7)
        return msgspec.structs.replace(RECEIPT, sequence=7)


async def _once(requests: NamedRequests, new: NewMessage, carrier: Carrier, principal: Principal = BUILT_IN) -> Receipt:
    return await requests.once(principal, new, carrier)


async def test_other_names_do_not_wait() -> None:
    """A slow request holds up only its own repetitions."""
    store = FakeStore()
    requests, slow, quick = NamedRequests(store, DetachedTasks()), Carrier(store), Carrier(store)
    task = asyncio.create_task(_once(requests, _new(), slow))
    quick.may_finish.set()
    assert (await _once(requests, _new("other"), quick)).message_id == "msg_1"
    assert not task.done()
    slow.may_finish.set()
    await task


async def test_other_principals_do_not_wait() -> None:
    """Each may use the name; the same caller in another role waits for it."""
    requests, slow = NamedRequests(FakeStore(), DetachedTasks()), Carrier(FakeStore())
    first = asyncio.create_task(_once(requests, _new(), slow))
    await settled()
    for tenant, subject in (("default", "eve"), ("acme", "")):
        quick = Carrier(FakeStore())
        quick.may_finish.set()
        await _once(requests, _new(), quick, Principal(tenant=tenant, subject=subject, role=Role.ADMIN))
        assert quick.calls == 1
    reading = Carrier(FakeStore())
    waiting = asyncio.create_task(_once(requests, _new(), reading, msgspec.structs.replace(BUILT_IN, role=Role.READER)))
    await settled()
    assert reading.calls == 0
    reading.may_finish.set()
    slow.may_finish.set()
    await asyncio.gather(first, waiting)
    assert reading.calls == 1


async def test_a_failed_try_leaves_the_name_free() -> None:
    """Those who waited try themselves, one after the other."""
    store = FakeStore()
    requests, carrier = NamedRequests(store, DetachedTasks()), Carrier(store)
    carrier.failure = StorageBusy("busy")
    tasks = [asyncio.create_task(_once(requests, _new(), carrier)) for _ in range(3)]
    await settled()
    carrier.may_finish.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StorageBusy] * 3
    assert carrier.calls == 3
    carrier.failure = None
    assert await _once(requests, _new(), carrier) == msgspec.structs.replace(RECEIPT, sequence=7)


async def test_who_is_cancelled_while_waiting_takes_no_name() -> None:
    """The next one gets it."""
    store = FakeStore()
    requests, carrier = NamedRequests(store, DetachedTasks()), Carrier(store)
    carrier.failure = StorageBusy("busy")
    first, cancelled, next_one = (asyncio.create_task(_once(requests, _new(), carrier)) for _ in range(3))
    await settled()
    cancelled.cancel()
    carrier.may_finish.set()
    answers = await asyncio.wait_for(asyncio.gather(first, cancelled, next_one, return_exceptions=True), 1)
    assert [type(answer) for answer in answers] == [StorageBusy, asyncio.CancelledError, StorageBusy]
    assert carrier.calls == 2


async def test_a_request_continues_without_its_caller() -> None:
    """A retry gets the answer of the first attempt."""
    store = FakeStore()
    requests, carrier = NamedRequests(store, DetachedTasks()), Carrier(store)
    first = asyncio.create_task(requests.once(BUILT_IN, _new(), carrier))
    await settled()
    first.cancel()
    carrier.may_finish.set()
    retry = await _once(requests, _new(), carrier)
    assert (retry.duplicate, carrier.calls) == (True, 1)


def test_a_request_without_a_name_is_not_recorded() -> None:
    """There is nothing to find it by."""
    assert receipt_record(BUILT_IN, _new(""), RECEIPT) == Work()
