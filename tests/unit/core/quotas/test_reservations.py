"""Sessions and bytes that count before they are stored."""

import asyncio

import msgspec
import pytest

from tests.support.fakes.core import FakeStore, make_environment
from tests.support.fakes.domain_values import make_message, make_turn
from turnwire.core.quotas.reservations import Reservations
from turnwire.core.settings import QuotaLimits
from turnwire.domain.accounts import Account
from turnwire.domain.errors import QuotaExceeded
from turnwire.ports.commit import PutFile

MESSAGE = make_message("msg_1", "hello")
SIZE = len(msgspec.json.encode(MESSAGE))


def _reservations(account: Account, **limits: int) -> tuple[Reservations, FakeStore]:
    store = FakeStore(accounted=account)
    return Reservations(make_environment(store, settings={"quotas": QuotaLimits(**limits)})), store


async def test_two_requests_do_not_share_the_last_place() -> None:
    """It is taken until its commit is done, whether or not that succeeds."""
    reservations, store = _reservations(Account(sessions=1), max_sessions=2)
    storing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with reservations.reserve("acme", is_new_session=True) as first:
        first.until(storing)
    with pytest.raises(QuotaExceeded) as refused, reservations.reserve("acme", is_new_session=True):
        pass
    assert refused.value.metadata == {"quota": "sessions", "limit": "2", "used": "2"}
    storing.set_exception(OSError())
    await asyncio.wait((storing,))
    with reservations.reserve("acme", is_new_session=True):
        store.accounted = Account(sessions=2)
    with pytest.raises(QuotaExceeded), reservations.reserve("acme", is_new_session=True):
        pass


async def test_what_is_stored_is_not_counted_twice() -> None:
    """From the moment in which the account has it, also when other requests come before the loop runs anything else."""
    reservations, store = _reservations(Account(), max_sessions=3)
    storing: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future() for _ in range(2)]
    for future in storing:
        with reservations.reserve("acme", is_new_session=True) as reserved:
            reserved.until(future)
    store.accounted = Account(sessions=2)
    for future in storing:
        future.set_result(None)
    with reservations.reserve("acme", is_new_session=True):
        pass
    assert not reservations._counts
    await asyncio.sleep(0)
    assert not reservations._counts


def test_a_request_that_fails_before_its_commit_gives_its_place_back() -> None:
    """And so does one that ends before it."""
    reservations, _ = _reservations(Account(), max_sessions=1)
    with pytest.raises(OSError), reservations.reserve("acme", is_new_session=True):
        raise OSError
    for _ in range(2):
        with reservations.reserve("acme", is_new_session=True):
            pass
    assert not reservations._counts


def test_a_message_counts_with_its_files() -> None:
    """As they will be stored, together with what is on its way."""
    file = PutFile("0" * 64, b"12345")
    reservations, _ = _reservations(Account(stored_bytes=10), max_stored_bytes=10 + 2 * SIZE + 5)
    with reservations.reserve("acme", (MESSAGE,), (file,)), reservations.reserve("acme", (MESSAGE,)):
        with pytest.raises(QuotaExceeded) as refused, reservations.reserve("acme", (MESSAGE,)):
            pass
        with reservations.reserve("other", (MESSAGE,)):
            pass
    assert refused.value.metadata == {
        "quota": "stored_bytes",
        "limit": str(15 + 2 * SIZE),
        "used": str(15 + 2 * SIZE),
    }


def test_what_events_carry_counts_too() -> None:
    """They are stored as well."""
    reservations, _ = _reservations(Account(), max_stored_bytes=2 * SIZE)
    with reservations.reserve("acme", (MESSAGE,), told=(MESSAGE,)):
        assert reservations._counts.total() == 2 * SIZE
    turn = make_turn(system="x" * SIZE)
    with pytest.raises(QuotaExceeded), reservations.reserve("acme", (turn, MESSAGE), told=(MESSAGE,)):
        pass


def test_nothing_is_counted_without_a_limit() -> None:
    """A message is not measured for nobody."""
    reservations, _ = _reservations(Account(sessions=10**6, stored_bytes=10**12))
    with reservations.reserve("acme", (MESSAGE,), is_new_session=True):
        assert not reservations._counts
