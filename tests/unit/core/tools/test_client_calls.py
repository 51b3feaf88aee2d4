"""Calls of client tools: the first result wins, and a client that is late is answered for."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from tests.support.fakes.core import FakeStore, RecordingObserver, make_environment
from tests.support.fakes.domain_values import NOW, make_answer, make_turn
from tests.support.fakes.loop import elapse, settled
from tests.support.fakes.turns import make_calls
from turnwire.core.tools.calls import ToolCalls
from turnwire.core.tools.results import CallResult
from turnwire.domain.conversation.messages import Message, ToolStatus, ToolUse
from turnwire.domain.errors import MemoryShort, StorageBusy, ToolCallAlreadySettled
from turnwire.domain.limits import Limits
from turnwire.ports.commit import Committed, PutFile, PutMessage

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


async def test_the_turn_goes_on_when_every_call_has_its_result() -> None:
    """Results come in any order; each is stored as it comes."""
    store = FakeStore()
    calls = _calls(READ, READ, store=store)
    settling = asyncio.create_task(calls.settle())
    await settled()
    await calls.submit(1, CallResult(output="second"))
    assert not settling.done()
    await calls.submit(0, CallResult(output="broken", is_error=True, metadata_json='{"a":1}'))
    await settling
    expected = make_answer(
        "msg_1",
        msgspec.structs.replace(
            READ, status=ToolStatus.ERROR, error="broken", metadata_json='{"a":1}', finished_at=NOW
        ),
        msgspec.structs.replace(READ, status=ToolStatus.SUCCESS, output="second", finished_at=NOW),
    )
    assert calls.message == expected
    last = store.commits[-1].changes[0]
    assert last == PutMessage(expected)


async def test_a_client_that_does_not_answer_is_answered_for() -> None:
    """After the limit the open calls get an error; those with a result keep it. Both are reported."""
    observer = RecordingObserver()
    calls = _calls(READ, READ, timeout=timedelta(seconds=5), observer=observer)
    settling = asyncio.create_task(calls.settle())
    await settled()
    await calls.submit(0, CallResult(output="ok"))
    await elapse(timedelta(seconds=4))
    assert not settling.done()
    await elapse(timedelta(seconds=1))
    await settling
    assert _results(calls.message) == [
        (ToolStatus.SUCCESS, "ok", None),
        (ToolStatus.ERROR, None, "the client did not answer within 5 seconds"),
    ]
    reported = [(call.source, call.is_error) for call in observer.tool_calls]
    assert reported == [("client", False), ("client", True)]
    assert observer.tool_calls[1].seconds >= 5


async def test_the_first_result_wins() -> None:
    """Those that come while it is being stored wait for it: the same one is confirmed, another one refused."""
    store = FakeStore(automatic=False)
    calls = _calls(READ, store=store)
    first = asyncio.create_task(calls.submit(0, CallResult(output="first")))
    await settled()
    other = asyncio.create_task(calls.submit(0, CallResult(output="second")))
    again = asyncio.create_task(calls.submit(0, CallResult(output="first")))
    await settled()
    assert not again.done()
    store.futures[0].set_result(Committed(6, 7))
    assert await asyncio.gather(first, again) == [7, 7]
    with pytest.raises(ToolCallAlreadySettled):
        await other
    assert len(store.commits) == 1
    assert _results(calls.message) == [(ToolStatus.SUCCESS, "first", None)]


async def test_a_result_that_could_not_be_stored_opens_the_call_again() -> None:
    """Its client hears that; the next result counts, and the turn goes on only then."""
    store = FakeStore(automatic=False)
    calls = _calls(READ, store=store)
    settling = asyncio.create_task(calls.settle())
    submission = asyncio.create_task(calls.submit(0, CallResult(output="first")))
    await settled()
    store.futures[0].set_exception(StorageBusy("busy"))
    with pytest.raises(StorageBusy):
        await submission
    assert (_results(calls.message), settling.done()) == ([(ToolStatus.PENDING, None, None)], False)
    store.automatic = True
    assert await calls.submit(0, CallResult(output="third")) == 2
    await settling
    assert _results(calls.message) == [(ToolStatus.SUCCESS, "third", None)]


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
    submitting = asyncio.create_task(calls.submit(0, result))
    await settled()
    submitting.cancel()
    await settled()
    assert room.bytes > room.max_bytes // 2 - 2**16
    if is_stored:
        store.futures[0].set_result(Committed(6, 7))
    else:
        store.futures[0].set_exception(StorageBusy("busy"))
    await settled()
    assert room.bytes == 0


async def test_a_client_that_goes_away_while_its_result_is_stored_has_answered() -> None:
    """The result counts, and the turn goes on when it is durable."""
    store = FakeStore(automatic=False)
    calls = _calls(READ, store=store)
    settling = asyncio.create_task(calls.settle())
    submitting = asyncio.create_task(calls.submit(0, CallResult(output="first")))
    await settled()
    submitting.cancel()
    await asyncio.wait((submitting,))
    assert (store.futures[0].cancelled(), settling.done()) == (False, False)
    store.futures[0].set_result(Committed(6, 7))
    await settling
    assert _results(calls.message) == [(ToolStatus.SUCCESS, "first", None)]


async def test_a_result_knows_its_call_again() -> None:
    """The same result for the same call is a repetition; any difference is not."""
    result = CallResult(output="1")
    call = result.apply_to(READ)
    assert result.is_of(call)
    assert not CallResult(output="2").is_of(call)
    assert not CallResult(output="1", is_error=True).is_of(call)
    assert not result.is_of(READ)


async def test_a_confirmed_result_is_not_overwritten_by_the_time_limit() -> None:
    """The limit runs out while one call's error is being stored; a result that comes meanwhile stays."""
    store = FakeStore(automatic=False)
    calls = _calls(READ, READ, store=store, timeout=timedelta(seconds=5))
    settling = asyncio.create_task(calls.settle())
    confirmed = asyncio.create_task(calls.submit(1, CallResult(output="in time")))
    await settled()
    await elapse(timedelta(seconds=5))
    [storing] = store.futures
    store.automatic = True
    storing.set_result(Committed(0, 1))
    await confirmed
    await settling
    assert [status for status, _, _ in _results(calls.message)] == [ToolStatus.ERROR, ToolStatus.SUCCESS]


async def test_a_result_that_cannot_be_stored_at_the_limit_is_answered_for() -> None:
    """The turn does not wait for ever for a call that came open again."""
    store = FakeStore(automatic=False)
    calls = _calls(READ, store=store, timeout=timedelta(seconds=5))
    settling = asyncio.create_task(calls.settle())
    lost = asyncio.create_task(calls.submit(0, CallResult(output="lost")))
    await settled()
    await elapse(timedelta(seconds=5))
    store.automatic = True
    store.futures[0].set_exception(StorageBusy("busy"))
    with pytest.raises(StorageBusy):
        await lost
    await settling
    assert [status for status, _, _ in _results(calls.message)] == [ToolStatus.ERROR]
