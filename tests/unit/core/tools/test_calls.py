"""Tool calls of one step: answered by the client, or at once when nobody can."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from tests.support.fakes.core import (
    FakeServerTools,
    FakeStore,
    PlainCodec,
    RecordingFeed,
    make_environment,
    server_tool,
)
from tests.support.fakes.domain_values import NOW, make_answer
from tests.support.fakes.loop import elapse, settled
from turnwire.core.settings import Agent, Limits, PermissionRule
from turnwire.core.tools.calls import INTERRUPTED_RUN, RESULT_RETRY_SECONDS, ToolCalls
from turnwire.core.tools.results import CallResult, cut_to_bytes, server_result
from turnwire.domain.conversation.events import PermissionReplied, ToolLog
from turnwire.domain.conversation.messages import Message, ToolStatus, ToolUse
from turnwire.domain.conversation.permissions import (
    PermissionAction,
    PermissionAnswer,
    PermissionChoice,
    PermissionRequest,
)
from turnwire.domain.errors import (
    PermissionAlreadyAnswered,
    StorageBusy,
    StorageError,
    StorageFull,
    ToolCallAlreadySettled,
    ToolCallNotReady,
)
from turnwire.ports.commit import Committed, PutMessage
from turnwire.ports.tools import ToolOutcome

READ = ToolUse(name="read", call_id="c1", input_json="{}")
CLIENT_TOOLS = frozenset({"read"})
NEVER = timedelta(hours=1)


def _calls(*calls: ToolUse, store: FakeStore | None = None, timeout: timedelta = NEVER) -> ToolCalls:
    environment = make_environment(
        store, settings={"limits": Limits(client_tool_timeout_seconds=timeout.total_seconds())}
    )
    return ToolCalls(environment, make_answer("msg_1", *calls), CLIENT_TOOLS)


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
    assert last == PutMessage(expected, (0,))


async def test_a_client_that_does_not_answer_is_answered_for() -> None:
    """After the limit the open calls get an error; those with a result keep it."""
    calls = _calls(READ, READ, timeout=timedelta(seconds=5))
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


async def test_the_first_result_wins() -> None:
    """Another one is refused while the first is being stored; the same one waits with it."""
    store = FakeStore(automatic=False)
    calls = _calls(READ, store=store)
    first = asyncio.create_task(calls.submit(0, CallResult(output="first")))
    await settled()
    with pytest.raises(ToolCallAlreadySettled):
        await calls.submit(0, CallResult(output="second"))
    again = asyncio.create_task(calls.submit(0, CallResult(output="first")))
    await settled()
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
    await settled()
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
    assert len(store.futures) == 1
    await elapse(timedelta(seconds=5))
    assert len(store.futures) == 2
    for future in store.futures:
        future.set_result(Committed(0, 1))
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


def _server_calls(
    count: int, store: FakeStore | None = None, **limits: int
) -> tuple[ToolCalls, FakeServerTools, RecordingFeed]:
    tools, feed = FakeServerTools(server_tool("fs.read")), RecordingFeed(PlainCodec())
    environment = make_environment(store, feed=feed, settings={"limits": Limits(**limits)}, tools=tools)
    call = ToolUse(name="fs.read", call_id="c1", input_json="{}")
    return ToolCalls(environment, make_answer("msg_1", *[call] * count), frozenset()), tools, feed


async def _until(count: int, tools: FakeServerTools) -> None:
    await settled()
    assert len(tools.calls) == count


async def test_calls_of_the_servers_tools_run_up_to_the_limit_at_once() -> None:
    """Each is stored as running, then with its result, as it comes."""
    store = FakeStore()
    calls, tools, _ = _server_calls(3, store, max_parallel_tool_calls=2)
    settling = asyncio.create_task(calls.settle())
    await _until(2, tools)
    await settled()
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
    with pytest.raises(ToolCallAlreadySettled):
        await calls.submit(0, CallResult(output="mine"))
    tools.calls[0][3].set_result(ToolOutcome(output="true"))
    await settling
    assert _results(calls.message) == [(ToolStatus.SUCCESS, "true", None)]


async def test_the_result_of_a_tool_that_ran_is_not_lost_on_a_full_disk() -> None:
    """It is written again until there is room; the tool runs once."""
    store = FakeStore()
    calls, tools, _ = _server_calls(1, store)
    settling = asyncio.create_task(calls.settle())
    await _until(1, tools)
    store.automatic = False
    tools.calls[0][3].set_result(ToolOutcome(output="done"))
    await settled()
    store.futures[1].set_exception(StorageFull("full"))
    await elapse(timedelta(seconds=RESULT_RETRY_SECONDS))
    store.futures[2].set_exception(StorageFull("full"))
    store.automatic = True
    await elapse(timedelta(seconds=RESULT_RETRY_SECONDS))
    await settling
    assert _results(calls.message) == [(ToolStatus.SUCCESS, "done", None)]
    assert len(tools.calls) == 1


async def test_a_result_that_cannot_be_stored_ends_the_step() -> None:
    """With the store's error, and the other calls are cancelled."""
    store = FakeStore(automatic=False)
    calls, tools, _ = _server_calls(2, store)
    settling = asyncio.create_task(calls.settle())
    await settled()
    assert len(store.futures) == 2
    assert tools.calls == []  # what runs is marked durably first
    for future in store.futures:
        future.set_result(Committed(0, 1))
    await _until(2, tools)
    tools.calls[0][3].set_result(ToolOutcome(output="lost"))
    await settled()
    assert len(store.futures) == 3
    store.futures[2].set_exception(StorageError("broken"))
    with pytest.raises(StorageError):
        await settling
    assert tools.calls[1][3].cancelled()


def test_long_output_is_cut_between_characters() -> None:
    """A note says how much there was."""
    assert cut_to_bytes("é" * 10, 20) == "é" * 10
    assert cut_to_bytes("é" * 11, 21) == "é" * 10 + "\n[cut: the output has 22 bytes, these are the first 21]"


async def test_what_a_tool_says_after_its_call_was_cancelled_is_not_told() -> None:
    """An MCP server may report progress until it reads that nobody waits; by then the turn has ended for watchers."""
    feed = RecordingFeed(PlainCodec())
    tools = FakeServerTools(server_tool("fs.read"))
    call = ToolUse(name="fs.read", call_id="c1", input_json="{}")
    calls = ToolCalls(make_environment(feed=feed, tools=tools), make_answer("msg_1", call), frozenset())
    settling = asyncio.create_task(calls.settle())
    await _until(1, tools)
    tools.calls[0][2]("in time")
    settling.cancel()
    await asyncio.wait((settling,))
    tools.calls[0][2]("late")
    assert [event.kind for event in feed.published] == [ToolLog("msg_1", 0, 0, "in time")]
    assert [call.logs for _, call in calls.message.tool_calls()] == [("in time",)]


async def test_lines_that_could_not_be_saved_are_saved_the_next_time() -> None:
    """A reader who asks for what was said is answered with what is stored: it does not fail for that."""
    store = FakeStore(automatic=False)
    calls, tools, _ = _server_calls(1, store)
    settling = asyncio.create_task(calls.settle())
    await settled()
    store.futures[0].set_result(Committed(0, 1))
    await _until(1, tools)
    tools.calls[0][2]("a line")
    flushing = asyncio.create_task(calls.flush())
    await settled()
    store.futures[1].set_exception(StorageFull("full"))
    await flushing
    store.automatic = True
    await calls.flush()
    assert [commit.changes for commit in store.commits[1:]] == [(PutMessage(calls.message, (0,)),)] * 2
    settling.cancel()
    await asyncio.wait((settling,))


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


async def test_a_tool_that_ran_when_the_process_died_is_not_run_again() -> None:
    """The model reads that nobody knows; the calls beside it that had not begun are run."""
    tools = FakeServerTools(server_tool("fs.read"))
    ran = ToolUse(name="fs.read", call_id="c1", input_json="{}", status=ToolStatus.RUNNING)
    waits = msgspec.structs.replace(ran, status=ToolStatus.PENDING)
    calls = ToolCalls(make_environment(tools=tools), make_answer("msg_1", ran, waits), frozenset())
    settling = asyncio.create_task(calls.settle())
    await _until(1, tools)
    tools.calls[0][3].set_result(ToolOutcome(output="done"))
    await settling
    assert _results(calls.message) == [
        (ToolStatus.ERROR, None, INTERRUPTED_RUN),
        (ToolStatus.SUCCESS, "done", None),
    ]


@pytest.mark.parametrize(
    ("name", "agent"),
    [("fs.write", ""), ("fs.write", "careful"), ("fs.read", "careful"), ("fs.list", "careful")],
)
async def test_a_call_of_before_a_restart_obeys_the_rules_of_now(name: str, agent: str) -> None:
    """A tool that is denied by now, or that the agent may not use any more, does not run."""
    tools = FakeServerTools(*map(server_tool, ("fs.list", "fs.read", "fs.write")))
    careful = Agent(tools=("fs.[rw]*",), permissions=(PermissionRule("fs.read", PermissionAction.DENY),))
    settings = {"permissions": (PermissionRule("fs.write", PermissionAction.DENY),), "agents": {"careful": careful}}
    call = ToolUse(name=name, call_id="c1", input_json="{}")
    environment = make_environment(settings=settings, tools=tools)
    calls = ToolCalls(environment, make_answer("msg_1", call), frozenset(), (), agent)
    await asyncio.wait_for(calls.settle(), 1)
    assert tools.calls == []
    assert _results(calls.message) == [(ToolStatus.ERROR, None, f"the tool {name!r} is not permitted")]


def _asking(
    *names: str, store: FakeStore | None = None, timeout: timedelta = NEVER
) -> tuple[ToolCalls, FakeServerTools]:
    """Returns calls that each wait for a permission per_0, per_1 and so on."""
    tools = FakeServerTools(*map(server_tool, sorted(set(names))))
    calls = [ToolUse(name=name, input_json="{}", permission_id=f"per_{i}") for i, name in enumerate(names)]
    message = make_answer("msg_1", *calls)
    permissions = [
        PermissionRequest(
            permission_id=f"per_{index}",
            session_id="ses_1",
            turn_id="trn_1",
            message_id="msg_1",
            part_index=index,
            tool_call_id=message.parts[index].part_id,
            tool=name,
            patterns=(name,),
            title=name,
            created_at=NOW,
        )
        for index, name in enumerate(names)
    ]
    environment = make_environment(
        store, settings={"limits": Limits(client_tool_timeout_seconds=timeout.total_seconds())}, tools=tools
    )
    return ToolCalls(environment, message, CLIENT_TOOLS, permissions), tools


ONCE, ALWAYS, REJECT = map(PermissionAnswer, (PermissionChoice.ONCE, PermissionChoice.ALWAYS, PermissionChoice.REJECT))


async def test_a_call_runs_only_when_it_was_allowed_durably() -> None:
    """Not while the question is open, nor while the answer is on its way to the disk."""
    store = FakeStore(automatic=False)
    calls, tools = _asking("fs.read", store=store)
    settling = asyncio.create_task(calls.settle())
    replying = asyncio.create_task(calls.reply("per_0", ONCE))
    await settled()
    assert (len(store.futures), tools.calls) == (1, [])
    store.automatic = True
    store.futures[0].set_result(Committed(0, 1))
    await replying
    await _until(1, tools)
    tools.calls[0][3].set_result(ToolOutcome(output="done"))
    await settling
    assert _results(calls.message) == [(ToolStatus.SUCCESS, "done", None)]
    assert calls.open_permissions == ()


async def test_an_answer_that_could_not_be_stored_leaves_the_question_open() -> None:
    """The call does not run; the next answer counts."""
    store = FakeStore(automatic=False)
    calls, tools = _asking("fs.read", store=store)
    settling = asyncio.create_task(calls.settle())
    replying = asyncio.create_task(calls.reply("per_0", ONCE))
    await settled()
    store.futures[0].set_exception(StorageBusy("busy"))
    with pytest.raises(StorageBusy):
        await replying
    assert [permission.permission_id for permission in calls.open_permissions] == ["per_0"]
    store.automatic = True
    await calls.reply("per_0", REJECT)
    await settling
    assert tools.calls == []
    assert _results(calls.message) == [(ToolStatus.ERROR, None, "The user did not allow this call.")]


async def test_the_first_answer_wins() -> None:
    """The same one again is confirmed, another one is refused."""
    calls, _ = _asking("fs.read")
    await calls.reply("per_0", REJECT)
    await calls.reply("per_0", REJECT)
    with pytest.raises(PermissionAlreadyAnswered, match="reject"):
        await calls.reply("per_0", ONCE)


async def test_always_answers_what_else_its_patterns_match() -> None:
    """Other tools are still asked for; one commit tells of all that was answered."""
    store = FakeStore()
    calls, tools = _asking("fs.read", "fs.read", "fs.write", store=store)
    settling = asyncio.create_task(calls.settle())
    await calls.reply("per_0", ALWAYS)
    assert [p.permission_id for p in calls.open_permissions] == ["per_2"]
    replies = [event.kind for event in store.commits[0].events if isinstance(event.kind, PermissionReplied)]
    assert replies == [PermissionReplied(f"per_{n}", calls.message.parts[n].part_id, ALWAYS) for n in (0, 1)]
    await _until(2, tools)
    settling.cancel()
    await asyncio.wait((settling,))


async def test_a_client_tool_waits_for_its_permission_too() -> None:
    """Its result is not taken before, its time limit begins after, and a reason reaches the model."""
    calls, _ = _asking("read", "read")
    settling = asyncio.create_task(calls.settle())
    with pytest.raises(ToolCallNotReady, match="per_0"):
        await calls.submit(0, CallResult(output="early"))
    await calls.reply("per_0", ONCE)
    await calls.submit(0, CallResult(output="in time"))
    await calls.reply("per_1", PermissionAnswer(PermissionChoice.REJECT, "use the other one"))
    await settling
    assert _results(calls.message) == [
        (ToolStatus.SUCCESS, "in time", None),
        (ToolStatus.ERROR, None, "The user did not allow this call. The user said: use the other one"),
    ]


async def test_a_client_cannot_answer_before_its_permission_is_stored() -> None:
    """Neither can its time limit run out: a result on top of an answer that fails would leave the request open."""
    store = FakeStore(automatic=False)
    calls, _ = _asking("read", store=store, timeout=timedelta())
    settling = asyncio.create_task(calls.settle())
    replying = asyncio.create_task(calls.reply("per_0", ONCE))
    await settled()
    with pytest.raises(ToolCallNotReady):
        await calls.submit(0, CallResult(output="early"))
    store.futures[0].set_exception(StorageBusy("busy"))
    with pytest.raises(ToolCallNotReady):
        await calls.submit(0, CallResult(output="early"))
    with pytest.raises(StorageBusy):
        await replying
    assert (len(store.commits), len(calls.open_permissions), settling.done()) == (1, 1, False)
    store.automatic = True
    await calls.reply("per_0", ONCE)
    await settling
    assert calls.open_permissions == ()
    assert _results(calls.message) == [(ToolStatus.ERROR, None, "the client did not answer within 0 seconds")]


def test_all_of_a_cut_output_is_kept_as_a_file() -> None:
    """Unless it is larger than a file may be."""
    outcome = ToolOutcome(output="é" * 11)
    kept = server_result(outcome, 20, 1000)
    assert kept.full_output is not None
    assert (kept.full_output.size_bytes, kept.full_output.mime) == (22, "text/plain")
    assert [file.content.decode() for file in kept.contents] == ["é" * 11]
    assert server_result(outcome, 20, 10).full_output is None
    assert server_result(outcome, 1000, 1000).full_output is None
