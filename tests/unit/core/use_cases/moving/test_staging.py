"""Sessions that are dropped in steps, and who waits for them."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.support.fakes.domain_values import NOW
from turnwire.core.use_cases.moving.staging import Staging
from turnwire.domain.errors import ShuttingDown
from turnwire.ports.commit import Committed

LATER = 20


class _Store:
    """Has two leftovers; each that is dropped lets one more be dropped, up to some."""

    def __init__(self) -> None:
        self.dropped: list[str] = []
        self.staging: Staging | None = None

    async def staged_sessions(self) -> tuple[tuple[str, str], ...]:
        return ("mine", "stg_1"), ("others", "stg_2")

    async def commit(self, _tenant: str, staged_id: str, *_: object) -> Committed:
        await asyncio.sleep(0)
        self.dropped.append(staged_id)
        assert self.staging is not None
        if len(self.dropped) <= LATER:
            self.staging.drop("mine", f"stg_later_{len(self.dropped)}")
        return Committed(0, 1)


async def test_who_waits_for_leftovers_does_not_wait_for_later_ones() -> None:
    """Else an import would never begin beside a tenant that deletes large sessions all the time."""
    store = _Store()
    environment: Any = SimpleNamespace(store=store, commit=store.commit, clock=lambda: NOW)
    store.staging = staging = Staging(environment)
    await staging.start()
    await staging.settled()
    assert store.dropped[:2] == ["stg_1", "stg_2"]
    assert len(store.dropped) < LATER
    while len(store.dropped) < LATER + 2:
        await staging.settled()
    await staging.aclose()


async def test_a_stop_that_stores_nothing_more_leaves_the_rest_to_the_next_start() -> None:
    """It ends without an error, also when there are more leftovers."""
    asked = list[str]()

    async def commit(_tenant: str, staged_id: str, *_: object) -> Committed:
        asked.append(staged_id)
        raise ShuttingDown

    environment: Any = SimpleNamespace(store=_Store(), commit=commit, clock=lambda: NOW)
    staging = Staging(environment)
    await staging.start()
    await staging.settled()
    assert asked == ["stg_1", "stg_2"]
    await staging.aclose()
