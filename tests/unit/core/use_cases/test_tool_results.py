"""Results of tool calls: submitted to a turn, or folded into the calls that they answer."""

from typing import Any

import msgspec

from tests.support.fakes.core import FakeStore, make_environment
from tests.support.fakes.domain_values import NOW, make_answer, make_message, make_part, make_session
from tests.support.fakes.loop import begun
from turnwire.core.intake.requests import NewToolResult
from turnwire.core.tools.results import CallResult
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases.tool_results import ToolResults
from turnwire.domain.conversation.messages import MessageType, ToolResult, ToolUse
from turnwire.domain.principal import BUILT_IN

CALL = ToolUse(name="read", call_id="c1", input_json="{}")
APPENDED = make_message("msg_r", ToolResult(call_id="c1", output="1"), type=MessageType.TOOL_RESULT)


async def test_a_confirmed_result_has_a_sequence_after_it_was_stored() -> None:
    """The session's head: which event stored it is not known any more."""
    settled = CallResult(output="42").apply_to(CALL)
    store = FakeStore(
        conversation=(make_answer("msg_1", settled),),
        sessions_by_id={"ses_1": msgspec.structs.replace(make_session(), head_sequence=17)},
    )
    environment = make_environment(store)
    results = ToolResults(environment, Turns(environment))
    part, sequence = await results.submit(BUILT_IN, "ses_1", "prt_0", NewToolResult(output="42"))
    assert (part.content, sequence) == (settled, 17)


async def test_messages_that_get_results_have_a_place_in_memory() -> None:
    """Hundreds of sessions may get results at once, and each message with the calls may be large."""
    answer = make_answer("msg_1", "x" * 5_000, make_part(1, CALL))
    store = FakeStore(conversation=(answer,), sessions_by_id={"ses_1": make_session()})
    environment = make_environment(store)
    results, room = ToolResults(environment, Turns(environment)), environment.reads
    await room.acquire("other", room.limit)

    async def store_folded(*_: Any) -> int:
        return room.in_use

    folding = await begun(results.fold(BUILT_IN, APPENDED, NOW, store_folded))
    assert not folding.done()
    room.release("other", room.limit)
    assert await folding >= 5_000
    assert room.in_use == 0
