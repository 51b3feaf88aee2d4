"""Tool calls of one step: answered by the client, or at once when nobody can."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from tests.support.core_fakes import FakeStore, make_environment
from tests.support.domain_values import NOW, make_answer, make_turn
from turnwire.core.client_tools import CallResult, ClientToolCalls
from turnwire.core.settings import Limits
from turnwire.domain.errors import StorageBusy
from turnwire.domain.messages import Message, ToolStatus, ToolUse
from turnwire.domain.sessions import ToolDefinition
from turnwire.ports.store import Committed, PutMessage

READ = ToolUse(name="read", call_id="c1", input_json="{}")
TURN = make_turn(tools=(ToolDefinition("read", "", ""),))
NEVER = timedelta(hours=1)


def _calls(*calls: ToolUse, store: FakeStore | None = None, timeout: timedelta = NEVER) -> ClientToolCalls:
    environment = make_environment(store, settings={"limits": Limits(client_tool_timeout=timeout)})
    return ClientToolCalls(environment, TURN, make_answer("msg_1", *calls))


def _results(message: Message) -> list[tuple[ToolStatus, str | None, str | None]]:
    return [(call.status, call.output, call.error) for _, call in message.tool_calls()]


async def test_the_turn_goes_on_when_every_call_has_its_result() -> None:
    """Results come in any order; each is stored as it comes."""
    store = FakeStore()
    calls = _calls(READ, READ, store=store)
    settling = asyncio.create_task(calls.settle())
    await asyncio.sleep(0)
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
    assert last == PutMessage(expected, (0,))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (ToolUse(name="write", input_json="{}"), "there is no tool named 'write'"),
        (ToolUse(name="read", input_json="{"), "the arguments are not valid JSON"),
        (ToolUse(name="read", input_json="[" * 100_000), "the arguments are not valid JSON"),
    ],
)
async def test_a_call_that_nobody_can_answer_fails_at_once(call: ToolUse, error: str) -> None:
    """The model reads why; the turn goes on."""
    calls = _calls(call)
    await calls.settle()
    [(status, output, text)] = _results(calls.message)
    assert (status, output, (text or "")[: len(error)]) == (ToolStatus.ERROR, None, error)


async def test_empty_arguments_are_an_empty_object() -> None:
    """Some providers send nothing for a tool without arguments."""
    calls = _calls(ToolUse(name="read"))
    settling = asyncio.create_task(calls.settle())
    await asyncio.sleep(0)
    await calls.submit(0, CallResult(output="ok"))
    await settling
    assert _results(calls.message) == [(ToolStatus.SUCCESS, "ok", None)]


async def test_a_client_that_does_not_answer_is_answered_for() -> None:
    """After the limit the open calls get an error; those with a result keep it."""
    calls = _calls(READ, READ, timeout=timedelta(milliseconds=5))
    settling = asyncio.create_task(calls.settle())
    await asyncio.sleep(0)
    await calls.submit(0, CallResult(output="ok"))
    await settling
    assert _results(calls.message) == [
        (ToolStatus.SUCCESS, "ok", None),
        (ToolStatus.ERROR, None, "the client did not answer within 0.005 seconds"),
    ]


async def test_the_first_result_wins() -> None:
    """Another one is refused while the first is being stored; the same one waits with it."""
    store = FakeStore(automatic=False)
    calls = _calls(READ, store=store)
    first = asyncio.create_task(calls.submit(0, CallResult(output="first")))
    await asyncio.sleep(0)
    assert await calls.submit(0, CallResult(output="second")) is None
    again = asyncio.create_task(calls.submit(0, CallResult(output="first")))
    await asyncio.sleep(0)
    assert not again.done()
    store.futures[0].set_result(Committed(6, 7))
    assert await asyncio.gather(first, again) == [7, 7]
    assert len(store.commits) == 1
    assert _results(calls.message) == [(ToolStatus.SUCCESS, "first", None)]


async def test_a_result_that_could_not_be_stored_opens_the_call_again() -> None:
    """Everyone who waited for it fails; the next result counts, and the turn goes on only then."""
    store = FakeStore(automatic=False)
    calls = _calls(READ, store=store)
    settling = asyncio.create_task(calls.settle())
    submissions = [asyncio.create_task(calls.submit(0, CallResult(output="first"))) for _ in range(2)]
    await asyncio.sleep(0)
    store.futures[0].set_exception(StorageBusy("busy"))
    answers = await asyncio.gather(*submissions, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StorageBusy] * 2
    assert (_results(calls.message), settling.done()) == ([(ToolStatus.PENDING, None, None)], False)
    store.automatic = True
    assert await calls.submit(0, CallResult(output="third")) == 2
    await settling
    assert _results(calls.message) == [(ToolStatus.SUCCESS, "third", None)]


async def test_a_client_that_goes_away_while_its_result_is_stored_has_answered() -> None:
    """The result counts, and the turn goes on when it is durable."""
    store = FakeStore(automatic=False)
    calls = _calls(READ, store=store)
    settling = asyncio.create_task(calls.settle())
    submitting = asyncio.create_task(calls.submit(0, CallResult(output="first")))
    await asyncio.sleep(0)
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
    calls = _calls(READ, READ, store=store, timeout=timedelta(milliseconds=5))
    settling = asyncio.create_task(calls.settle())
    confirmed = asyncio.create_task(calls.submit(1, CallResult(output="in time")))
    while not store.futures:
        await asyncio.sleep(0)
    while len(store.futures) < 2:
        await asyncio.sleep(0.001)
    for future in store.futures:
        future.set_result(Committed(0, 1))
    await confirmed
    await settling
    assert [status for status, _, _ in _results(calls.message)] == [ToolStatus.ERROR, ToolStatus.SUCCESS]


async def test_a_result_that_cannot_be_stored_at_the_limit_is_answered_for() -> None:
    """The turn does not wait for ever for a call that came open again."""
    store = FakeStore(automatic=False)
    calls = _calls(READ, store=store, timeout=timedelta(milliseconds=5))
    settling = asyncio.create_task(calls.settle())
    lost = asyncio.create_task(calls.submit(0, CallResult(output="lost")))
    await asyncio.sleep(0.02)
    store.automatic = True
    store.futures[0].set_exception(StorageBusy("busy"))
    with pytest.raises(StorageBusy):
        await lost
    await settling
    assert [status for status, _, _ in _results(calls.message)] == [ToolStatus.ERROR]
