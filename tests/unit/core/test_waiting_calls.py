"""The memory of answers whose calls wait: of all tenants together, with what comes for the calls."""

import asyncio

import pytest

from tests.support.fakes.core import FakeServerTools, FakeStore, make_environment, server_tool
from tests.support.fakes.domain_values import make_answer, make_part, make_turn
from turnwire.core.environment import Environment
from turnwire.core.settings import PermissionRule
from turnwire.core.tools.calls import ToolCalls
from turnwire.core.tools.permission_requests import ask_permissions
from turnwire.core.tools.results import CallResult
from turnwire.core.waiting_calls import ALWAYS_BYTES, CALL_BYTES, WaitingCalls
from turnwire.domain.conversation.messages import ToolStatus, ToolUse
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.errors import MemoryShort, StorageBusy
from turnwire.domain.limits import Limits
from turnwire.ports.tools import ToolOutcome

READ = ToolUse(name="read", call_id="c1", input_json="{}")
LARGE = 2 * ALWAYS_BYTES


def _environment(max_bytes: int, store: FakeStore | None = None, tools: FakeServerTools | None = None) -> Environment:
    rules = (PermissionRule("*", PermissionAction.ASK), PermissionRule("read", PermissionAction.ALLOW))
    settings = {"permissions": rules, "limits": Limits(max_waiting_calls_bytes=max_bytes)}
    return make_environment(store, settings=settings, tools=tools)


def _waiting(environment: Environment, *calls: ToolUse) -> ToolCalls:
    answer = make_answer("msg_1", *calls)
    assert environment.waiting_calls.hold("default", "trn_1", answer)
    return ToolCalls(environment, make_turn(), answer, frozenset({"read"}))


def test_a_tenant_has_half_of_the_room() -> None:
    """Small answers are not counted, and what has ended makes room."""
    waiting = WaitingCalls(4 * LARGE + 4096)
    large, small = make_answer("msg_1", "x" * LARGE), make_answer("msg_2", "x")
    assert [waiting.hold("one", f"trn_{n}", large) for n in range(3)] == [True, True, False]
    assert [waiting.hold("two", f"trn_{n}", large) for n in range(3, 6)] == [True, True, False]
    assert not waiting.hold("three", "trn_6", large)
    assert waiting.hold("three", "trn_7", small)
    assert waiting.bytes < 4 * LARGE + 4096
    waiting.forget("trn_0")
    assert waiting.hold("three", "trn_6", large)
    for number in range(8):
        waiting.forget(f"trn_{number}")
    assert waiting.bytes == 0


def test_an_answer_counts_in_place_of_the_one_before() -> None:
    """A turn waits for the calls of one step at a time. Of a turn that has ended nothing counts."""
    waiting = WaitingCalls(2 * LARGE + 4096)
    large = make_answer("msg_1", "x" * LARGE)
    assert [waiting.hold("one", "trn_1", large) for _ in range(3)] == [True] * 3
    waiting.forget("trn_1")
    assert waiting.grow("trn_1", 10 * LARGE)
    assert waiting.bytes == 0


def test_what_an_answer_has_for_its_provider_counts_too() -> None:
    """It stays in memory with the rest."""
    waiting = WaitingCalls(2 * LARGE)
    sealed = make_answer("msg_1", make_part(0, READ, provider_state="s" * LARGE))
    assert not waiting.hold("one", "trn_1", sealed)


async def test_permission_requests_of_all_tenants_together_have_a_bound() -> None:
    """A thousand tenants with a hundred calls each: the first are asked, the models of the others read why not."""
    most = 4 * 2**20
    environment = _environment(most)
    calls = [ToolUse(name="look", call_id=f"c{n}", input_json="{}") for n in range(100)]
    asked = 0
    for number in range(1000):
        turn = make_turn(f"trn_{number}", tenant=f"tenant{number}")
        message, requests, beyond = await ask_permissions(environment, turn, make_answer("msg_1", *calls))
        assert len(requests) + len(beyond) == 100
        asked += len(requests)
    assert 0 < asked <= most // CALL_BYTES
    assert requests == ()
    assert [call.permission_id for _, call in message.tool_calls()] == [""] * 100
    assert {call.error for call in beyond.values()} == {
        "the call was not run: too much waits in memory for the results of tool calls:"
        f" limits.max_waiting_calls_bytes is {most}"
    }


async def test_a_result_without_room_is_refused() -> None:
    """It may come again; smaller ones are taken, and one that could not be stored counts no longer."""
    store = FakeStore(automatic=False)
    environment = _environment(4 * LARGE, store)
    calls = _waiting(environment, READ, READ, READ)
    with pytest.raises(MemoryShort) as caught:
        await calls.submit(0, CallResult(output="x" * 2 * LARGE))
    assert (caught.value.metadata["limit"], caught.value.metadata["limitValue"]) == (
        "limits.max_waiting_calls_bytes",
        str(4 * LARGE),
    )
    for number in range(3):
        submitting = asyncio.create_task(calls.submit(1, CallResult(output="x" * LARGE)))
        await asyncio.sleep(0)
        store.futures[number].set_exception(StorageBusy("busy"))
        with pytest.raises(StorageBusy):
            await submitting
    assert environment.waiting_calls.bytes == 0
    store.automatic = True
    await calls.submit(1, CallResult(output="x" * LARGE))
    await calls.submit(2, CallResult(output="small"))
    assert [call.status for _, call in calls.message.tool_calls()] == ["pending", "success", "success"]


async def test_of_a_tool_of_the_server_the_model_reads_that_its_result_was_left_out() -> None:
    """The tool ran, so it is not tried again; its lines are left out too."""
    tools = FakeServerTools(server_tool("read"))
    environment = _environment(2 * LARGE, tools=tools)
    answer = make_answer("msg_1", READ)
    assert environment.waiting_calls.hold("default", "trn_1", answer)
    calls = ToolCalls(environment, make_turn(), answer, frozenset())
    settling = asyncio.create_task(calls.settle())
    await tools.until_called(1)
    assert environment.waiting_calls.grow("trn_1", LARGE - 3 * CALL_BYTES)
    for _ in range(100):
        tools.calls[0][2]("x" * 500)
    tools.calls[0][3].set_result(ToolOutcome(output="x" * LARGE))
    await settling
    [(_, call)] = calls.message.tool_calls()
    assert (call.status, call.output) == (ToolStatus.ERROR, None)
    assert call.error is not None
    assert call.error.startswith("the call ran, and its result was left out: too much waits")
    assert 0 < len(call.logs) < 20
