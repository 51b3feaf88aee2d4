"""Calls of the server's tools: how they run, what they say, and what becomes of their results."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.support.fakes.core import (
    FakeServerTools,
    FakeStore,
    PlainCodec,
    RecordingFeed,
    RecordingObserver,
    make_environment,
    server_tool,
)
from tests.support.fakes.domain_values import make_answer, make_turn
from tests.support.fakes.loop import begun, cancelled, elapse, settled
from tests.support.fakes.turns import make_calls
from turnwire.core.actor import RETRY_SECONDS
from turnwire.core.memory import WaitingCalls
from turnwire.core.settings import Agent, PermissionRule
from turnwire.core.tools.calls import ToolCalls
from turnwire.core.tools.server_calls import INTERRUPTED_RUN, cut_to_bytes, server_result
from turnwire.domain.conversation.events import ToolLog
from turnwire.domain.conversation.messages import Message, ToolStatus, ToolUse
from turnwire.domain.conversation.permissions import PermissionAction
from turnwire.domain.conversation.questions import LinkForm
from turnwire.domain.errors import StorageError, StorageFull
from turnwire.domain.limits import Limits
from turnwire.ports.commit import Committed, PutMessage
from turnwire.ports.tools import NewQuestion, ToolFile, ToolOutcome, ToolPause


def _results(message: Message) -> list[tuple[ToolStatus, str | None, str | None]]:
    return [(call.status, call.output, call.error) for _, call in message.tool_calls()]


def _server_calls(
    count: int, store: FakeStore | None = None, observer: RecordingObserver | None = None, **limits: int
) -> tuple[ToolCalls, FakeServerTools, RecordingFeed]:
    tools, feed = FakeServerTools(server_tool("fs.read")), RecordingFeed(PlainCodec())
    environment = make_environment(
        store, feed=feed, settings={"limits": Limits(**limits)}, tools=tools, observer=observer
    )
    call = ToolUse(name="fs.read", call_id="c1", input_json="{}")
    return make_calls(environment, make_turn(), make_answer("msg_1", *[call] * count), frozenset()), tools, feed


async def _running(
    count: int, store: FakeStore | None = None, *, running: int | None = None, **settings: Any
) -> tuple[ToolCalls, FakeServerTools, RecordingFeed, asyncio.Task[None]]:
    """Returns calls that run, all of them unless another number is given, and what waits for them."""
    calls, tools, feed = _server_calls(count, store, **settings)
    settling = asyncio.create_task(calls.settle())
    await tools.until_called(count if running is None else running)
    return calls, tools, feed, settling


async def test_calls_of_the_servers_tools_run_up_to_the_limit_at_once() -> None:
    """Each is stored as running, then with its result, as it comes."""
    store = FakeStore()
    calls, tools, _, settling = await _running(3, store, max_parallel_tool_calls=2, running=2)
    await settled()
    assert [call.status for _, call in calls.message.tool_calls()] == ["running", "running", "pending"]
    tools.calls[1][3].set_result(ToolOutcome(output="second", metadata_json='{"a":1}'))
    await tools.until_called(3)
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
    calls, tools, feed, settling = await _running(1)
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
    calls, tools, _, settling = await _running(3, max_parallel_tool_calls=1, running=1)
    await cancelled(settling)
    assert settling.cancelled()
    assert (len(tools.calls), tools.calls[0][3].cancelled()) == (1, True)
    assert [call.status for _, call in calls.message.tool_calls()] == ["running", "pending", "pending"]


async def test_a_pause_with_a_question_that_cannot_be_asked_is_an_error_of_the_tool() -> None:
    """The model reads why, and the call goes on no more."""
    calls, tools, _, settling = await _running(1)
    empty = NewQuestion(prompt=" ", form=LinkForm(url="https://example.com"))
    tools.calls[0][3].set_result(ToolPause(questions=(("a", empty),), state=""))
    await settling
    [(status, output, error)] = _results(calls.message)
    assert (status, output, len(tools.calls)) == (ToolStatus.ERROR, None, 1)
    assert error.startswith("the tool asked a question that cannot be asked: ")


async def test_the_result_of_a_tool_that_ran_is_not_lost_on_a_full_disk() -> None:
    """It is written again until there is room; the tool runs once."""
    store = FakeStore()
    calls, tools, _, settling = await _running(1, store)
    store.automatic = False
    tools.calls[0][3].set_result(ToolOutcome(output="done"))
    await settled()
    store.futures[1].set_exception(StorageFull("full"))
    await elapse(timedelta(seconds=RETRY_SECONDS))
    store.futures[2].set_exception(StorageFull("full"))
    store.automatic = True
    await elapse(timedelta(seconds=RETRY_SECONDS))
    await settling
    assert _results(calls.message) == [(ToolStatus.SUCCESS, "done", None)]
    assert len(tools.calls) == 1


async def _commits(store: FakeStore, count: int) -> None:
    while len(store.futures) < count:  # a thread may cut and hash the result
        await asyncio.sleep(0)


async def _settling_with_a_file(store: FakeStore, output: str) -> tuple[WaitingCalls, "asyncio.Task[Message]"]:
    """Begins to store a result with a file of a megabyte."""
    calls, tools, _ = _server_calls(1, store)
    room = calls._environment.waiting_calls
    room.hold("default", calls.message.turn_id, calls.message)
    settling = asyncio.create_task(calls.settle())
    await tools.until_called(1)
    store.automatic = False
    file = ToolFile(content=bytes(2**20), mime="image/png")
    tools.calls[0][3].set_result(ToolOutcome(output=output, files=(file,)))
    return room, settling


async def test_a_result_has_its_place_until_it_is_stored() -> None:
    """That of its files; also while the disk is full."""
    store = FakeStore()
    room, settling = await _settling_with_a_file(store, "x" * 2**17)
    for attempt in (1, 2, 3):
        await _commits(store, 1 + attempt)
        assert room.bytes > 2**20 + 2**17
        if attempt < 3:
            store.futures[attempt].set_exception(StorageFull("full"))
            await settled()
            assert room.bytes > 2**20 + 2**17
            await elapse(timedelta(seconds=RETRY_SECONDS))
    store.futures[3].set_result(Committed(2, 3))
    await settling
    assert 2**17 < room.bytes < 2**18


async def test_what_a_cancelled_call_holds_is_given_up() -> None:
    """Its result may never be stored."""
    store = FakeStore()
    room, settling = await _settling_with_a_file(store, "")
    await _commits(store, 2)
    await cancelled(settling)
    assert room.bytes == 0


async def test_a_result_that_cannot_be_stored_ends_the_step() -> None:
    """With the store's error, and the other calls are cancelled."""
    store = FakeStore(automatic=False)
    calls, tools, _ = _server_calls(2, store)
    settling = await begun(calls.settle())
    assert tools.calls == []  # what runs is marked durably first
    store.automatic = True
    store.futures[0].set_result(Committed(0, 1))
    await tools.until_called(2)
    store.automatic = False
    tools.calls[0][3].set_result(ToolOutcome(output="lost"))
    await settled()
    store.futures[-1].set_exception(StorageError("broken"))
    with pytest.raises(StorageError):
        await settling
    assert tools.calls[1][3].cancelled()


def test_long_output_is_cut_between_characters() -> None:
    """A note says how much there was."""
    assert cut_to_bytes("é" * 10, 20) == "é" * 10
    assert cut_to_bytes("é" * 11, 21) == "é" * 10 + "\n[cut: the output has 22 bytes, these are the first 21]"


async def test_what_a_tool_says_after_its_call_was_cancelled_is_not_told() -> None:
    """An MCP server may report progress until it reads that nobody waits; by then the turn has ended for watchers."""
    calls, tools, feed, settling = await _running(1)
    tools.calls[0][2]("in time")
    await cancelled(settling)
    tools.calls[0][2]("late")
    assert [event.kind for event in feed.published] == [ToolLog("msg_1", 0, 0, "in time")]
    assert [call.logs for _, call in calls.message.tool_calls()] == [("in time",)]


async def test_lines_that_could_not_be_saved_are_saved_the_next_time() -> None:
    """A reader who asks for what was said is answered with what is stored: it does not fail for that."""
    store = FakeStore(automatic=False)
    calls, tools, _ = _server_calls(1, store)
    settling = await begun(calls.settle())
    store.futures[0].set_result(Committed(0, 1))
    await tools.until_called(1)
    tools.calls[0][2]("a line")
    flushing = await begun(calls.flush())
    store.futures[1].set_exception(StorageFull("full"))
    await flushing
    store.automatic = True
    await calls.flush()
    assert [commit.changes for commit in store.commits[1:]] == [(PutMessage(calls.message),)] * 2
    await cancelled(settling)


async def test_lines_of_a_call_that_ended_meanwhile_are_not_saved_again() -> None:
    """Its result has them; those of another call, which could not be saved with them, are saved the next time."""
    store = FakeStore()
    calls, tools, _, settling = await _running(2, store)
    await settled()
    store.automatic = False
    tools.calls[0][2]("first")
    tools.calls[1][2]("second")
    flushing = await begun(calls.flush())
    tools.calls[0][3].set_result(ToolOutcome(output="done"))
    await settled()
    store.automatic = True
    store.futures[-1].set_exception(StorageFull("full"))
    await flushing
    await settled()
    await calls.flush()
    found = [(call.status, call.logs) for _, call in calls.message.tool_calls()]
    assert found == [(ToolStatus.SUCCESS, ("first",)), (ToolStatus.RUNNING, ("second",))]
    assert store.commits[-1].changes == (PutMessage(calls.message),)
    await cancelled(settling)


async def test_half_characters_of_a_tool_are_replaced() -> None:
    """Output of a tool can always be stored."""
    calls, tools, _, settling = await _running(1)
    tools.calls[0][2]("line \ud800")
    tools.calls[0][3].set_result(ToolOutcome(output="out \udc00"))
    await settling
    [(_, call)] = calls.message.tool_calls()
    assert (call.output, call.logs) == ("out \ufffd", ("line \ufffd",))


async def test_a_tool_that_ran_when_the_process_died_is_not_run_again() -> None:
    """The model reads that nobody knows; the calls beside it that had not begun are run."""
    tools = FakeServerTools(server_tool("fs.read"))
    ran = ToolUse(name="fs.read", call_id="c1", input_json="{}", status=ToolStatus.RUNNING)
    waits = msgspec.structs.replace(ran, status=ToolStatus.PENDING)
    calls = make_calls(make_environment(tools=tools), make_turn(), make_answer("msg_1", ran, waits), frozenset())
    settling = asyncio.create_task(calls.settle())
    await tools.until_called(1)
    tools.calls[0][3].set_result(ToolOutcome(output="done"))
    await settling
    assert _results(calls.message) == [(ToolStatus.ERROR, None, INTERRUPTED_RUN), (ToolStatus.SUCCESS, "done", None)]


@pytest.mark.parametrize(
    ("name", "agent"), [("fs.write", ""), ("fs.write", "careful"), ("fs.read", "careful"), ("fs.list", "careful")]
)
async def test_a_call_of_before_a_restart_obeys_the_rules_of_now(name: str, agent: str) -> None:
    """A tool that is denied by now, or that the agent may not use any more, does not run."""
    tools = FakeServerTools(*map(server_tool, ("fs.list", "fs.read", "fs.write")))
    careful = Agent(tools=("fs.[rw]*",), permissions=(PermissionRule("fs.read", PermissionAction.DENY),))
    settings = {"permissions": (PermissionRule("fs.write", PermissionAction.DENY),), "agents": {"careful": careful}}
    call = ToolUse(name=name, call_id="c1", input_json="{}")
    environment = make_environment(settings=settings, tools=tools)
    calls = make_calls(environment, make_turn(agent=agent), make_answer("msg_1", call), frozenset())
    await asyncio.wait_for(calls.settle(), 1)
    assert tools.calls == []
    assert _results(calls.message) == [(ToolStatus.ERROR, None, f"the tool {name!r} is not permitted")]


def test_all_of_a_cut_output_is_kept_as_a_file() -> None:
    """Unless it is larger than a file may be."""
    outcome = ToolOutcome(output="é" * 11)
    kept = server_result(outcome, 20, 1000)
    assert (kept.full_output.size_bytes, kept.full_output.mime) == (22, "text/plain")
    assert [file.content.decode() for file in kept.contents] == ["é" * 11]
    assert server_result(outcome, 20, 10).full_output is None
    assert server_result(outcome, 1000, 1000).full_output is None


async def test_each_result_is_reported_with_its_source_and_time() -> None:
    """Calls that were cancelled are not."""
    observer = RecordingObserver()
    _, tools, _, settling = await _running(3, observer=observer)
    tools.calls[0][3].set_result(ToolOutcome(output="first"))
    await elapse(timedelta(seconds=2))
    tools.calls[1][3].set_result(ToolOutcome(output="broken", is_error=True))
    await settled()
    await cancelled(settling)
    found = [(call.source, call.is_error, int(call.seconds)) for call in observer.tool_calls]
    assert found == [("fs", False, 0), ("fs", True, 2)]


async def test_a_line_that_comes_behind_the_result_is_not_told() -> None:
    """Its log is on its way to the disk already, so nobody would find the line there."""
    store = FakeStore()
    calls, tools, feed, settling = await _running(1, store)
    tools.calls[0][2]("in time")
    store.automatic = False
    tools.calls[0][3].set_result(ToolOutcome(output="done"))
    await settled()
    tools.calls[0][2]("late")
    store.futures[-1].set_result(Committed(0, 9))
    await settling
    await calls.flush()
    [(_, call)] = calls.message.tool_calls()
    assert call.logs == ("in time",)
    assert [event.kind.text for event in feed.published if isinstance(event.kind, ToolLog)] == ["in time"]
