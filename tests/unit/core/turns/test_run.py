"""One turn over a given provider: how it ends, and what that stores."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.fakes.core import FakeProvider, FakeProviders, FakeStore, make_environment
from tests.support.fakes.domain_values import make_answer, make_message, make_session, make_turn
from tests.support.fakes.loop import begun, settled
from tests.support.fakes.turns import LoneRun
from turnwire.core.ending import UNANSWERED_CALL, Ending
from turnwire.core.settings import PermissionRule
from turnwire.core.tools.permission_requests import AnswerPermission
from turnwire.core.tools.results import CallResult
from turnwire.core.turns.recovery import ResumePoint
from turnwire.core.turns.run import TurnRun
from turnwire.domain.conversation.events import (
    MessageAdded,
    MessageFinished,
    PartFinished,
    PermissionReplied,
    ToolCallUpdated,
    TurnEnded,
)
from turnwire.domain.conversation.messages import (
    Failure,
    FinishReason,
    Message,
    MessageStatus,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.permissions import PermissionAction, PermissionAnswer, PermissionChoice
from turnwire.domain.conversation.turns import ToolDefinition, Turn
from turnwire.domain.errors import (
    ProviderContextFull,
    ProviderStreamCut,
    ProviderUnavailable,
    StorageError,
    StorageFull,
)
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.limits import Limits
from turnwire.domain.money import Usage
from turnwire.ports.commit import Committed, PutMessage, Work
from turnwire.ports.provider import PartEnded, StepFinished, StreamItem, TextDelta, ToolCallDelta

USAGE = Usage(input_tokens=3, output_tokens=4)
STOP = StepFinished(FinishReason.STOP, "end_turn")
PAUSE = TextDelta(0, "x"), StepFinished(FinishReason.PAUSED, "pause_turn")
LOOK = ToolCallDelta(0, "look", "c1", "{}"), PartEnded(0), STOP
ASKS = (PermissionRule("look", PermissionAction.ASK),)


class Lone(LoneRun):
    """The run of a turn whose client has the tool look, with the store and the model that it has."""

    def __init__(
        self,
        *items: StreamItem | Exception | None,
        automatic: bool = True,
        resume: ResumePoint | None = None,
        take_in: Callable[[TurnRun], Awaitable[None]] | None = None,
        **settings: object,
    ) -> None:
        self.provider = FakeProvider(items)
        user, sessions = make_message("msg_user", "hi"), {"ses_1": make_session()}
        self.store = FakeStore(automatic=automatic, conversation=(user,), sessions_by_id=sessions)
        environment = make_environment(self.store, FakeProviders(self.provider), settings=settings)
        super().__init__(environment, make_turn(tools=(ToolDefinition("look", "", "{}"),)), resume, take_in)

    def start(self) -> asyncio.Task[Work | None]:
        """Begins to run it."""
        return asyncio.create_task(self.run(FairSemaphore(1)))

    async def until_a_step_ends(self) -> None:
        """Stores all but the end of a step, which is under way then."""
        store = self.store
        while MessageFinished not in [type(event.kind) for commit in store.commits for event in commit.events]:
            for future in store.futures:
                future.done() or future.set_result(Committed(0, 1))
            await settled()

    async def abort(self, running: asyncio.Task[Work | None]) -> Work | None:
        """Stops it, and returns how it ends."""
        self.store.automatic = True
        self.stop(Ending(FinishReason.ABORTED))
        return await running


def _ended(work: Work | None) -> Turn:
    return work.events[-1].kind.turn


def _written(work: Work | None) -> list[Message]:
    return [change.message for change in work.changes if isinstance(change, PutMessage)]


async def test_an_answer_that_comes_whole_is_two_commits() -> None:
    """One adds its message, the other ends the part, the message and the turn; each commit costs as much as a send."""
    run = Lone(TextDelta(0, "hello"), PartEnded(0), STOP)
    work = await run.start()
    assert [type(event.kind) for commit in run.store.commits for event in commit.events] == [MessageAdded]
    assert [type(event.kind) for event in work.events] == [PartFinished, MessageFinished, TurnEnded]


@pytest.mark.parametrize(
    ("error", "reason", "failure"),
    [
        (ProviderUnavailable("down"), FinishReason.ERROR, Failure("PROVIDER_UNAVAILABLE", "down")),
        (ProviderStreamCut("cut"), FinishReason.INTERRUPTED, Failure("PROVIDER_STREAM_CUT", "cut")),
        (ProviderContextFull("full"), FinishReason.CONTEXT_FULL, Failure("PROVIDER_CONTEXT_FULL", "full")),
        (ValueError("a bug"), FinishReason.ERROR, Failure("INTERNAL", "the server failed while it ran the turn")),
    ],
)
async def test_whatever_is_raised_ends_the_turn_once(error: Exception, reason: FinishReason, failure: Failure) -> None:
    """The text so far is kept; a bug tells nothing of itself."""
    work = await Lone(TextDelta(0, "so far"), error).start()
    ended = _ended(work)
    assert (ended.finish_reason, ended.failure, ended.steps) == (reason, failure, 1)
    assert sum(isinstance(event.kind, TurnEnded) for event in work.events) == 1
    [message] = _written(work)
    assert message.parts[0].content == Text("so far")
    assert message.status is (
        MessageStatus.INTERRUPTED if isinstance(error, ProviderStreamCut) else MessageStatus.FAILED
    )


async def test_a_stop_that_comes_behind_the_answer_changes_nothing() -> None:
    """The answer is complete, and so is the turn."""
    run = Lone(TextDelta(0, "hello"), PartEnded(0), STOP)
    running = run.start()
    await asyncio.sleep(0)
    run._task.add_done_callback(lambda _: run.stop(Ending(FinishReason.ABORTED)))
    assert _ended(await running).finish_reason is FinishReason.STOP


async def test_a_resumed_turn_that_is_stopped_before_it_runs_ends_all_that_is_open() -> None:
    """The steps that a dead process ended count, and the message that it began is closed."""
    step = make_answer("msg_1", "first", usage=USAGE, finish_reason=FinishReason.PAUSED)
    begun = make_answer("msg_2", status=MessageStatus.STREAMING)
    run = Lone(resume=ResumePoint((step,), begun))
    work = await run.abort(run.start())
    assert _ended(work).steps == 2
    [closed] = _written(work)
    assert (closed.message_id, closed.status) == ("msg_2", MessageStatus.INTERRUPTED)


async def test_a_message_that_an_earlier_process_began_is_not_announced_again() -> None:
    """It was announced when it was begun, also when what this process changes of it cannot be stored."""
    run = Lone(resume=ResumePoint((), make_answer("msg_1", status=MessageStatus.STREAMING)), automatic=False)
    running = run.start()
    await settled()
    run.store.futures[-1].set_exception(StorageFull("full"))
    assert [type(event.kind) for event in (await running).events] == [MessageFinished, TurnEnded]


async def test_a_step_that_is_over_stays_without_its_content() -> None:
    """A turn has up to fifty, of which each may have what its provider sealed, and large results."""
    run = Lone(*PAUSE)
    await run.start()
    assert [step.parts for step in run._settled] == [()] * 10
    assert {step.finish_reason for step in run._settled} == {FinishReason.PAUSED}


async def test_calls_that_a_model_only_announces_ask_it_no_more() -> None:
    """Its next answer would announce them again."""
    run = Lone(TextDelta(0, "I look"), PartEnded(0), StepFinished(FinishReason.TOOL_USE, "tool_calls"))
    assert (_ended(await run.start()).finish_reason, len(run.provider.requests)) == (FinishReason.STOP, 1)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_the_next_step_waits_until_a_pause_is_stored(is_lost: bool) -> None:
    """Else its request would be without the paused answer; when that cannot be stored, the model is not asked again."""
    run = Lone(*PAUSE, automatic=False)
    running = run.start()
    await run.until_a_step_ends()
    assert len(run.provider.requests) == 1
    run.store.automatic = True
    if is_lost:
        run.store.futures[-1].set_exception(StorageError("the disk is gone"))
        ended, failure = _ended(await running), Failure("STORAGE_ERROR", "the disk is gone")
        assert (ended.finish_reason, ended.failure) == (FinishReason.ERROR, failure)
        assert len(run.provider.requests) == 1
    else:
        run.provider._items = (STOP,)
        run.store.futures[-1].set_result(Committed(0, 1))
        assert _ended(await running).steps == 2


async def test_an_answer_has_its_place_once_it_is_stored() -> None:
    """The store tells what is before it, and which alternative it is: while it streams, and when it has ended."""
    run = Lone(TextDelta(0, "so far"), None, automatic=False)
    running = run.start()
    await settled()
    assert run.open_message() is None
    [commit] = run.store.commits
    [change] = [change for change in commit.changes if isinstance(change, PutMessage)]
    message_id = change.message.message_id
    place = {"previous_message_ids": {message_id: "msg_user"}, "alternatives": {message_id: (3, 2)}}
    run.store.futures[0].set_result(Committed(0, 1, **place))
    run.store.automatic = True
    await run.provider.waiting.wait()
    streaming = run.open_message()
    [ended] = _written(await run.abort(running))
    for message in (streaming, ended):
        found = message.previous_message_id, message.alternative_count, message.alternative_index
        assert found == ("msg_user", 3, 2)


async def test_calls_and_requests_are_open_once_the_end_of_their_step_is_stored() -> None:
    """Before, an answer would be lost with the step's end, or be stored and then written over by it."""
    run = Lone(*LOOK, automatic=False, permissions=ASKS)
    running = run.start()
    await run.until_a_step_ends()
    assert run.calls is None
    [part] = run.open_message().parts
    assert run.awaited_call_ids == {"c1", part.part_id}
    run.store.futures[-1].set_result(Committed(1, 2))
    assert [asked.tool for asked in run.calls.state.open_permissions] == ["look"]
    assert run.awaited_call_ids == {"c1", part.part_id}
    await run.abort(running)


async def test_permission_requests_count_until_their_step_has_ended() -> None:
    """A turn whose tools then work for hours does not keep others of its tenant from asking."""
    run = Lone(*LOOK, permissions=ASKS)
    running, counts = run.start(), run.lone_environment.permissions
    while run.calls is None or not run.calls.state.open_permissions:
        await settled()
    assert counts[run.turn.tenant] == 1
    run.provider._items = (None,)
    [asked] = run.calls.state.open_permissions
    await run.calls.ask(AnswerPermission(asked.permission_id, PermissionAnswer(PermissionChoice.REJECT)))
    await run.provider.waiting.wait()
    assert (run.calls, run.actor.state.calls) == (None, None)  # nor does the session keep the answer
    assert counts[run.turn.tenant] == 0
    await run.abort(running)


async def test_readers_see_no_call_to_run_before_the_end_of_its_step_is_stored() -> None:
    """A client that ran it would get TOOL_CALL_NOT_READY, and after a crash the model would be asked again."""
    run = Lone(*LOOK, automatic=False)
    running = run.start()
    await run.until_a_step_ends()

    def shown() -> tuple[MessageStatus, FinishReason | None, bool]:
        message = run.open_message()
        part = run.open_part(message.message_id, 0)
        assert part == message.parts[0]
        return message.status, message.finish_reason, part.content.started_at is not None

    assert shown() == (MessageStatus.STREAMING, None, False)
    run.store.futures[-1].set_result(Committed(1, 2))
    assert shown() == (MessageStatus.COMPLETE, FinishReason.TOOL_USE, True)
    await run.abort(running)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_turn_that_is_stopped_while_a_step_ends_tells_that_once(is_lost: bool) -> None:
    """Readers who flush meanwhile wait for it, and write nothing over it."""
    run = Lone(*PAUSE, automatic=False)
    running, store = run.start(), run.store
    await run.until_a_step_ends()
    commits = len(store.commits)
    flushing = await begun(run.flush())
    assert not flushing.done()
    run.stop(Ending(FinishReason.ABORTED))
    await settled()
    assert len(store.commits) == commits
    if is_lost:
        store.futures[-1].set_exception(StorageError("the disk is gone"))
    else:
        store.futures[-1].set_result(Committed(1, 2))
        await flushing
    work = await running
    flushing.cancel()
    told = [type(event.kind) for event in work.events]
    assert told == ([PartFinished, MessageFinished, TurnEnded] if is_lost else [TurnEnded])


@pytest.mark.parametrize("permissions", [(), ASKS])
async def test_calls_are_only_told_as_ended_when_the_end_of_their_step_is_lost(
    permissions: tuple[PermissionRule, ...],
) -> None:
    """Else a client would run them, and a person would be asked, when their turn ends."""
    run = Lone(*LOOK, automatic=False, permissions=permissions)
    running = run.start()
    await run.until_a_step_ends()
    run.store.futures[-1].set_exception(StorageFull("full"))
    work = await running
    told, closed = [type(event.kind) for event in work.events], [PermissionReplied] * len(permissions)
    assert told == [PartFinished, MessageFinished, ToolCallUpdated, *closed, TurnEnded]
    [update] = [event.kind for event in work.events if isinstance(event.kind, ToolCallUpdated)]
    assert (update.call.status, update.call.error) == (ToolStatus.ERROR, UNANSWERED_CALL)


async def test_a_call_beyond_a_limit_is_only_told_as_refused() -> None:
    """A client that sees it wait would run it."""
    run = Lone(*LOOK, permissions=ASKS, limits=Limits(max_open_permissions=0))
    running = run.start()
    await run.until_a_step_ends()
    updates = [e.kind.call for c in run.store.commits for e in c.events if isinstance(e.kind, ToolCallUpdated)]
    assert {call.status for call in updates} == {ToolStatus.ERROR}
    await run.abort(running)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_stopped_turn_ends_with_the_results_that_are_stored(is_lost: bool) -> None:
    """Also with one whose commit is under way when it is stopped; one that is lost was never given."""
    run = Lone(*LOOK)
    running = run.start()
    while run.calls is None:
        await settled()
    run.store.automatic = False
    submitting = await begun(run.calls.submit(0, CallResult(output="seen")))
    run.stop(Ending(FinishReason.ABORTED))
    await settled()
    storing = run.store.futures[-1]
    if is_lost:
        storing.set_exception(StorageError("the disk is gone"))
        with pytest.raises(StorageError):
            await submitting
    else:
        storing.set_result(Committed(1, 2))
        await submitting
    closed = [call.error for message in _written(await running) for _, call in message.tool_calls()]
    assert closed == ([UNANSWERED_CALL] if is_lost else [])


async def test_a_turn_that_waits_for_results_goes_on_after_a_stop() -> None:
    """All of it is stored; one whose answer has begun ends."""
    waits = Lone(*LOOK)
    running = waits.start()
    while waits.calls is None:
        await settled()
    waits.suspend(Ending(FinishReason.INTERRUPTED))
    assert await running is None
    says = Lone(TextDelta(0, "so far"), None)
    running = says.start()
    await says.provider.waiting.wait()
    says.suspend(Ending(FinishReason.INTERRUPTED))
    assert _ended(await running).finish_reason is FinishReason.INTERRUPTED


async def _joins(*items: StreamItem | Exception | None, resume: ResumePoint | None = None) -> list[int]:
    """Runs a turn, and returns how many requests were sent before each time when messages could join."""
    times: list[int] = []

    async def take_in(_run: TurnRun) -> None:
        times.append(len(run.provider.requests))

    run = Lone(*items, resume=resume, take_in=take_in)
    await run.start()
    return times


async def test_no_message_joins_a_paused_answer() -> None:
    """Its rest belongs to it."""
    assert await _joins(*PAUSE) == [0]


async def test_no_message_joins_a_step_that_an_earlier_process_began() -> None:
    """The place of its answer is before that of the message. A step that follows is open again."""
    call = ToolUse(name="look", call_id="c", input_json="{}", status=ToolStatus.SUCCESS, output="seen")
    step = make_answer("msg_1", call, finish_reason=FinishReason.TOOL_USE)
    begun = make_answer("msg_2", status=MessageStatus.STREAMING)
    assert await _joins(STOP, resume=ResumePoint((step,), begun)) == []
    assert await _joins(STOP, resume=ResumePoint((step,), None)) == [0]
