"""Calls of client tools: the first result wins, and a client that is late is answered for."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.fakes.core import FakeStore, RecordingObserver, make_environment
from tests.support.fakes.domain_values import make_answer, make_turn
from tests.support.fakes.loop import begun, elapse, settled
from tests.support.fakes.turns import make_calls
from turnwire.core.tools.calls import ToolCalls
from turnwire.core.tools.results import CallResult
from turnwire.domain.conversation.messages import Message, ToolStatus, ToolUse
from turnwire.domain.errors import MemoryShort, StorageBusy
from turnwire.domain.limits import Limits
from turnwire.ports.commit import Committed, PutFile

READ = ToolUse(name="read", call_id="c1", input_json="{}")
CLIENT_TOOLS = frozenset({"read"})
NEVER = timedelta(hours=1)


def _calls(
    *calls: ToolUse,
    store: FakeStore | None = None,
    timeout: timedelta = NEVER,
    observer: RecordingObserver | None = None,
) -> ToolCalls:
    limits = Limits(client_tool_timeout_seconds=timeout.total_seconds())
    environment = make_environment(store, settings={"limits": limits}, observer=observer)
    return make_calls(environment, make_turn(), make_answer("msg_1", *calls), CLIENT_TOOLS)


def _results(message: Message) -> list[tuple[ToolStatus, str | None, str | None]]:
    return [(call.status, call.output, call.error) for _, call in message.tool_calls()]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_files_of_a_result_count_until_they_are_stored(is_stored: bool) -> None:
    """They are in memory for as long, also when the client has gone."""
    store = FakeStore(automatic=False)
    calls = _calls(READ, READ, store=store)
    room = calls._environment.waiting_calls
    room.hold("default", calls.message.turn_id, calls.message)
    result = CallResult(output="", contents=(PutFile("0" * 64, bytes(room.max_bytes // 2)),))
    submitting = asyncio.create_task(calls.submit(0, result))
    with pytest.raises(MemoryShort):
        await submitting
    result = CallResult(output="", contents=(PutFile("0" * 64, bytes(room.max_bytes // 2 - 2**16)),))
    submitting = await begun(calls.submit(0, result))
    submitting.cancel()
    await settled()
    assert room.bytes > room.max_bytes // 2 - 2**16
    if is_stored:
        store.futures[0].set_result(Committed(6, 7))
    else:
        store.futures[0].set_exception(StorageBusy("busy"))
    await settled()
    assert room.bytes == 0


async def test_a_confirmed_result_is_not_overwritten_by_the_time_limit() -> None:
    """The limit runs out while one call's error is being stored; a result that comes meanwhile stays."""
    store = FakeStore(automatic=False)
    calls = _calls(READ, READ, store=store, timeout=timedelta(seconds=5))
    settling = asyncio.create_task(calls.settle())
    confirmed = await begun(calls.submit(1, CallResult(output="in time")))
    await elapse(timedelta(seconds=5))
    [storing] = store.futures
    store.automatic = True
    storing.set_result(Committed(0, 1))
    await confirmed
    await settling
    assert [status for status, _, _ in _results(calls.message)] == [ToolStatus.ERROR, ToolStatus.SUCCESS]
