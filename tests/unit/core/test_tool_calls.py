"""Tool calls of one step: answered by the client, or at once when nobody can."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from tests.support.core_fakes import (
    FakeServerTools,
    FakeStore,
    PlainCodec,
    RecordingFeed,
    make_environment,
    server_tool,
)
from tests.support.domain_values import NOW, make_answer
from turnwire.core.settings import Limits
from turnwire.core.tool_calls import CallResult, ToolCalls, bounded
from turnwire.core.toolbox import Toolbox
from turnwire.domain.errors import StorageBusy
from turnwire.domain.messages import Message, ToolStatus, ToolUse
from turnwire.domain.sessions import ToolDefinition
from turnwire.ports.store import Committed, PutMessage
from turnwire.ports.tools import ToolOutcome

READ = ToolUse(name="read", call_id="c1", input_json="{}")
TOOLBOX = Toolbox((ToolDefinition("read", "", ""),), ())
NEVER = timedelta(hours=1)


def _calls(*calls: ToolUse, store: FakeStore | None = None, timeout: timedelta = NEVER) -> ToolCalls:
    environment = make_environment(store, settings={"limits": Limits(client_tool_timeout=timeout)})
    return ToolCalls(environment, TOOLBOX, make_answer("msg_1", *calls))


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


def _server_calls(
    count: int, store: FakeStore | None = None, **limits: int
) -> tuple[ToolCalls, FakeServerTools, RecordingFeed]:
    tools, feed = FakeServerTools(server_tool("fs.read")), RecordingFeed(PlainCodec())
    environment = make_environment(store, feed=feed, settings={"limits": Limits(**limits)}, tools=tools)
    call = ToolUse(name="fs.read", call_id="c1", input_json="{}")
    return ToolCalls(environment, Toolbox((), tools.tools()), make_answer("msg_1", *[call] * count)), tools, feed


async def _until(count: int, tools: FakeServerTools) -> None:
    while len(tools.calls) < count:
        await asyncio.sleep(0)


async def test_calls_of_the_servers_tools_run_up_to_the_limit_at_once() -> None:
    """Each is stored as running, then with its result, as it comes."""
    store = FakeStore()
    calls, tools, _ = _server_calls(3, store, max_parallel_tool_calls=2)
    settling = asyncio.create_task(calls.settle())
    await _until(2, tools)
    await asyncio.sleep(0.01)
    assert [call.status for _, call in calls.message.tool_calls()] == ["running", "running", "pending"]
    tools.calls[1][3].set_result(ToolOutcome(output="second", metadata_json='{"a":1}'))
    await _until(3, tools)
    tools.calls[2][3].set_result(ToolOutcome(output="broken", is_error=True))
    tools.calls[0][3].set_result(ToolOutcome(output="first"))
    await settling
    assert _results(calls.message) == [
        (ToolStatus.SUCCESS, "first", None),
        (ToolStatus.SUCCESS, "second", None),
        (ToolStatus.ERROR, None, "broken"),
    ]
    assert len(store.commits) == 6


async def test_lines_of_a_tool_are_told_and_kept_up_to_a_limit() -> None:
    """The last one that is kept says that there were more."""
    calls, tools, feed = _server_calls(1)
    settling = asyncio.create_task(calls.settle())
    await _until(1, tools)
    for number in range(1000):
        tools.calls[0][2](f"{number} " + "x" * 1000)
    tools.calls[0][3].set_result(ToolOutcome(output="done"))
    await settling
    tools.calls[0][2]("too late")
    [(_, call)] = calls.message.tool_calls()
    assert (len(call.logs), call.logs[-1], len(call.logs[0])) == (200, "further lines are not kept", 500)
    assert [event.kind.line_index for event in feed.published] == list(range(200))


async def test_an_abort_cancels_what_runs_and_starts_nothing_more() -> None:
    """The calls stay open: the end of the turn settles them."""
    calls, tools, _ = _server_calls(3, max_parallel_tool_calls=1)
    settling = asyncio.create_task(calls.settle())
    await _until(1, tools)
    settling.cancel()
    await asyncio.wait((settling,))
    assert settling.cancelled()
    assert (len(tools.calls), tools.calls[0][3].cancelled()) == (1, True)
    assert [call.status for _, call in calls.message.tool_calls()] == ["running", "pending", "pending"]


async def test_a_client_cannot_answer_for_the_server() -> None:
    """Its result is refused, and the tool's counts."""
    calls, tools, _ = _server_calls(1)
    settling = asyncio.create_task(calls.settle())
    await _until(1, tools)
    assert await calls.submit(0, CallResult(output="mine")) is None
    tools.calls[0][3].set_result(ToolOutcome(output="true"))
    await settling
    assert _results(calls.message) == [(ToolStatus.SUCCESS, "true", None)]


async def test_a_result_that_cannot_be_stored_ends_the_step() -> None:
    """With the store's error, and the other calls are cancelled."""
    store = FakeStore(automatic=False)
    calls, tools, _ = _server_calls(2, store)
    settling = asyncio.create_task(calls.settle())
    await _until(2, tools)
    tools.calls[0][3].set_result(ToolOutcome(output="lost"))
    while len(store.futures) < 3:
        await asyncio.sleep(0)
    store.futures[2].set_exception(StorageBusy("busy"))
    with pytest.raises(StorageBusy):
        await settling
    assert tools.calls[1][3].cancelled()


def test_long_output_is_cut_between_characters() -> None:
    """A note says how much there was."""
    assert bounded("é" * 10, 20) == "é" * 10
    assert bounded("é" * 11, 21) == "é" * 10 + "\n[cut: the output has 22 bytes, these are the first 21]"


async def test_half_characters_of_a_tool_are_replaced() -> None:
    """What a tool says can always be stored."""
    calls, tools, _ = _server_calls(1)
    settling = asyncio.create_task(calls.settle())
    await _until(1, tools)
    tools.calls[0][2]("line \ud800")
    tools.calls[0][3].set_result(ToolOutcome(output="out \udc00"))
    await settling
    [(_, call)] = calls.message.tool_calls()
    assert (call.output, call.logs) == ("out \ufffd", ("line \ufffd",))
