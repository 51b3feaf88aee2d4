"""Messages that are answered again."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.fakes.core import FakeStore, make_environment
from tests.support.fakes.domain_values import make_message, make_session
from tests.support.fakes.loop import settled
from turnwire.core.intake.requests import NamedRequests, NewTurn, Regeneration
from turnwire.core.quotas import PendingUsage
from turnwire.core.settings import QuotaLimits
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases import choices
from turnwire.core.use_cases.late_turns import LateTurns
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.domain.errors import InvalidRequest, QuotaExceeded, StorageError
from turnwire.domain.principal import BUILT_IN
from turnwire.ports.conversations import AlternativesOf
from turnwire.ports.pages import Page


async def test_a_request_has_no_room_while_its_tools_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may let many schemas wait to be checked, and all tenants share the room."""
    store = FakeStore(conversation=(make_message("msg_1", "x" * 5000),), sessions_by_id={"ses_1": make_session()})
    environment = make_environment(store)
    late_turns = LateTurns(
        environment,
        Turns(environment),
        NamedRequests(environment.store, environment.detached),
        PendingUsage(environment),
    )
    is_checked = asyncio.Event()

    async def problems(_schemas: Sequence[str]) -> tuple[str, ...]:
        await is_checked.wait()
        return ("is no schema",)

    monkeypatch.setattr(choices, "problems_of_schemas", problems)
    asked, answer = (
        Regeneration(session_id="ses_1", message_id="msg_1"),
        NewTurn(tools=(ToolDefinition("look", "", "{"),)),
    )
    regenerating = asyncio.create_task(late_turns.regenerate(BUILT_IN, asked, answer))
    await settled()
    assert environment.reads.in_use == 0
    is_checked.set()
    with pytest.raises(InvalidRequest):
        await regenerating


class _Storing(FakeStore):
    """Has one message, which shares its place with no other, and stores when it is told to."""

    def __init__(self) -> None:
        """Has a long message."""
        question = make_message("msg_1", "x" * 5000)
        super().__init__(automatic=False, conversation=(question,), sessions_by_id={"ses_1": make_session()})

    async def alternatives(self, session_id: str, asked: AlternativesOf, page: Page) -> None:
        """Finds the message on the path."""


async def test_what_a_request_stores_counts_until_it_is_stored() -> None:
    """Else requests at the same time would together store more than the tenant may have."""
    store = _Storing()
    environment = make_environment(store, settings={"quotas": QuotaLimits(max_stored_bytes=20_000)})
    turns, pending = Turns(environment), PendingUsage(environment)
    late_turns = LateTurns(environment, turns, NamedRequests(environment.store, environment.detached), pending)
    asked = Regeneration(session_id="ses_1", message_id="msg_1")
    regenerating = asyncio.create_task(late_turns.regenerate(BUILT_IN, asked, NewTurn()))
    await settled()
    [storing] = store.futures
    with pytest.raises(QuotaExceeded), pending.count(BUILT_IN.tenant, copied_bytes=15_000):
        pass
    storing.set_exception(StorageError("the disk is gone"))
    with pytest.raises(StorageError):
        await regenerating
    with pending.count(BUILT_IN.tenant, copied_bytes=15_000):
        pass
    await turns.aclose()
