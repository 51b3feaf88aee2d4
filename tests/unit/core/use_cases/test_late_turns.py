"""Messages that are answered again."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.fakes.core import FakeStore, make_environment
from tests.support.fakes.domain_values import make_message, make_session
from tests.support.fakes.loop import begun
from turnwire.core.intake.requests import NamedRequests, NewTurn, Regeneration
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases import choices
from turnwire.core.use_cases.late_turns import LateTurns
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.domain.errors import InvalidRequest
from turnwire.domain.principal import BUILT_IN


async def test_a_request_has_no_room_while_its_tools_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may let many schemas wait to be checked, and all tenants share the room."""
    store = FakeStore(conversation=(make_message("msg_1", "x" * 5000),), sessions_by_id={"ses_1": make_session()})
    environment = make_environment(store)
    late_turns = LateTurns(environment, Turns(environment), NamedRequests(environment.store, environment.detached))
    is_checked = asyncio.Event()

    async def problems(_schemas: Sequence[str]) -> tuple[str, ...]:
        await is_checked.wait()
        return ("is no schema",)

    monkeypatch.setattr(choices, "problems_of_schemas", problems)
    asked, answer = (
        Regeneration(session_id="ses_1", message_id="msg_1"),
        NewTurn(tools=(ToolDefinition("look", "", "{"),)),
    )
    regenerating = await begun(late_turns.regenerate(BUILT_IN, asked, answer))
    assert environment.reads.in_use == 0
    is_checked.set()
    with pytest.raises(InvalidRequest):
        await regenerating
