"""Copies of sessions: what becomes of one whose caller is gone."""

import asyncio

from tests.support.fakes.core import FakeStore, make_environment
from tests.support.fakes.loop import settled
from turnwire.core.intake.inputs import SessionChange
from turnwire.core.intake.once import NamedRequests
from turnwire.core.quotas.reservations import Reservations
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases.rewriting.forks import SessionForks
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import SessionNotFound
from turnwire.domain.principal import BUILT_IN


class _SlowStore(FakeStore):
    """Looks for a session when it is told to, and finds none."""

    def __init__(self) -> None:
        """Begins without being told."""
        super().__init__()
        self.may_go_on = asyncio.Event()

    async def session(self, session_id: str) -> Session:
        """Waits."""
        await self.may_go_on.wait()
        raise SessionNotFound(session_id)


async def test_the_end_waits_for_a_copy_whose_caller_is_gone() -> None:
    """Else the store would close under it."""
    store = _SlowStore()
    environment = make_environment(store)
    requests, reservations = NamedRequests(environment.store, environment.detached), Reservations(environment)
    forks = SessionForks(environment, Turns(environment), requests, reservations)
    copying = asyncio.create_task(forks.fork(BUILT_IN, "ses_1", "", SessionChange()))
    await settled()
    copying.cancel()
    closing = asyncio.create_task(environment.detached.aclose())
    await settled()
    assert (copying.cancelled(), closing.done()) == (True, False)
    store.may_go_on.set()
    await closing
