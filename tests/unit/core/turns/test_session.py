"""The turns of sessions: accepted, run one after the other, aborted, and left at a stop."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.fakes.core import (
    FakeProvider,
    FakeProviders,
    FakeServerTools,
    FakeStore,
    RecordingObserver,
    make_environment,
    server_tool,
)
from tests.support.fakes.domain_values import make_session
from tests.support.fakes.loop import begun, elapse, settled
from tests.support.fakes.turns import deliver, send
from turnwire.core.ending import Ending
from turnwire.core.tools.results import CallResult
from turnwire.core.turns.registry import TurnCounts, Turns
from turnwire.core.turns.session import RETRY_SECONDS
from turnwire.domain.conversation.messages import FinishReason, MessageStatus
from turnwire.domain.conversation.questions import QuestionReply, SchemaForm
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.domain.errors import (
    SessionMoving,
    SessionNotFound,
    ShuttingDown,
    StorageBusy,
    StorageFull,
    ToolCallAlreadySettled,
    TurnInProgress,
)
from turnwire.ports.commit import Commit, Committed, PutMessage, RemoveMessage, Work
from turnwire.ports.provider import PartEnded, PreparedRequest, StepFinished, StreamItem, TextDelta, ToolCallDelta
from turnwire.ports.tools import NewQuestion

FORM = '{"type": "object", "properties": {"colour": {"type": "string"}}}'
SESSIONS: dict[str, Session] = {"ses_1": make_session()}


def _calling(tool: str) -> tuple[StreamItem, ...]:
    return ToolCallDelta(0, tool, "c1", "{}"), PartEnded(0), StepFinished(FinishReason.STOP, "")


def _store(*, automatic: bool = True) -> FakeStore:
    return FakeStore(automatic=automatic, sessions_by_id=SESSIONS)


def _turns(store: FakeStore | None = None, model: FakeProvider | None = None, **parts: Any) -> Turns:
    """Returns the turns of sessions; their model never answers unless another one is given."""
    return Turns(make_environment(store or _store(), FakeProviders(model or FakeProvider([None])), **parts))


async def _sent(turns: Turns, *names: str) -> None:
    """Sends messages, and returns when nothing is ready to run."""
    for name in names:
        await send(turns, name)
    await settled()


async def _asking(turns: Turns, tools: FakeServerTools) -> "asyncio.Future[QuestionReply]":
    """Sends a message, whose call of a tool asks a question. Returns what waits for the answer."""
    await _sent(turns, "a")
    await tools.until_called(1)
    asking = asyncio.ensure_future(tools.asks[0](NewQuestion(prompt="Which?", form=SchemaForm(schema_json=FORM))))
    await settled()
    return asking


async def test_a_session_that_is_being_deleted_takes_no_message() -> None:
    """Until each of its deletions is over, for one may fail; other sessions go on."""
    turns, gates = _turns(), [asyncio.Event(), asyncio.Event()]

    async def refuse(gate: asyncio.Event) -> None:
        await gate.wait()
        raise StorageFull("full")

    async def delete(gate: asyncio.Event) -> None:
        with turns.held("default", "ses_1") as owner, pytest.raises(StorageFull):
            await owner.delete(lambda _: refuse(gate))

    deleting = [asyncio.create_task(delete(gate)) for gate in gates]
    await settled()
    with turns.held("default", "ses_1"):  # somebody reads settings meanwhile
        for gate, one in zip(gates, deleting, strict=True):
            with pytest.raises(SessionNotFound):
                await send(turns, "a")
            assert (await send(turns, one.get_name(), session_id="ses_2")).reply is not None
            gate.set()
            await one
        assert (await send(turns, "a")).reply.queue_position == 0
    await turns.aclose()


async def test_what_is_on_its_way_counts_for_the_quotas() -> None:
    """Else two requests at the same time would both take the last place."""
    turns = _turns(store := _store(automatic=False))
    send(turns, "a")
    send(turns, "b")
    assert (turns.running("default"), turns.queued("default")) == (1, 1)
    store.automatic = True
    store.futures[0].set_result(Committed(0, 1))
    await settled()
    assert (turns.running("default"), turns.queued("default")) == (1, 1)
    await turns.aclose()


async def test_nothing_begins_beside_a_change_of_the_conversation() -> None:
    """A message that comes meanwhile waits for its commit; the change is refused beside a turn, and one that begins."""
    turns = _turns(store := _store(automatic=False))
    mark = Work((RemoveMessage("mark"),))
    changing = await begun(turns.change_idle("default", "ses_1", mark))
    sending = send(turns, "a")
    refused = await begun(turns.change_idle("default", "ses_1", mark))
    assert [commit.changes for commit in store.commits] == [mark.changes]
    store.automatic = True
    store.futures[0].set_result(Committed(0, 1))
    assert await changing == Committed(0, 1)
    await sending
    with pytest.raises(TurnInProgress):
        await refused
    await turns.aclose()


class AnswersOnce(FakeProvider):
    """Answers the first request and no other."""

    async def stream(self, prepared: PreparedRequest) -> AsyncGenerator[StreamItem]:
        """Yields the end of an answer, or waits for ever."""
        self._items = [None] if self.requests else [StepFinished(FinishReason.STOP, "")]
        async for item in super().stream(prepared):
            yield item


@pytest.mark.slow
async def test_an_abort_while_one_turn_follows_the_other_leaves_none() -> None:
    """Whichever of them runs at that moment, it ends, and nothing waits any more."""
    for steps in range(60):
        turns = _turns(model=AnswersOnce([]))
        send(turns, "a")
        send(turns, "b")
        for _ in range(steps):
            await asyncio.sleep(0)
        aborting = await begun(turns.abort("ses_1", "", keep_queue=False))
        assert (aborting.done(), turns.live("ses_1")) == (True, None), steps
        assert turns._owners == {}, steps


async def test_turns_are_reported_when_they_run_and_when_their_end_is_stored() -> None:
    """Each once; a message that is dropped from the queue ends a turn that never ran."""
    observer = RecordingObserver()
    turns = _turns(observer=observer)
    await _sent(turns, "a", "b")
    assert [(what, turn.turn_id) for what, turn in observer.turns] == [("started", "trn_a")]
    assert turns.counts() == TurnCounts(running=1, waiting=0, queued=1)
    await turns.abort("ses_1", "", keep_queue=False)
    await settled()
    ended = {turn.turn_id: turn.finish_reason for what, turn in observer.turns if what == "ended"}
    assert ended == {"trn_a": FinishReason.ABORTED, "trn_b": FinishReason.ABORTED}
    assert [what for what, _ in observer.turns] == ["started", "ended", "ended"]
    assert turns.counts() == TurnCounts(running=0, waiting=0, queued=0)


async def test_an_end_that_is_not_stored_yet_is_not_reported() -> None:
    """A full disk delays it."""
    store, observer = _store(automatic=False), RecordingObserver()
    turns = _turns(store, FakeProvider([StepFinished(FinishReason.STOP, "stop")]), observer=observer)
    send(turns, "a")
    store.futures[0].set_result(Committed(0, 1))
    await settled()
    store.futures[1].set_result(Committed(1, 2))  # the assistant message
    await settled()
    store.futures[2].set_exception(StorageBusy("held"))
    await settled()
    assert [what for what, _ in observer.turns] == ["started"]
    await elapse(timedelta(seconds=RETRY_SECONDS[0]))
    store.futures[3].set_result(Committed(2, 3))
    await settled()
    assert [what for what, _ in observer.turns] == ["started", "ended"]


async def test_what_a_stop_leaves_is_counted() -> None:
    """A turn whose model has not begun goes on at the next start, and so do the messages behind it."""
    turns = _turns()
    await _sent(turns, *"abc")
    assert await turns.aclose() == TurnCounts(running=1, waiting=0, queued=2)


async def test_a_turn_whose_end_the_stop_has_no_time_for_is_left() -> None:
    """It has not ended, and the next start ends it."""
    store, observer = _store(), RecordingObserver()
    turns = _turns(store, FakeProvider([TextDelta(0, "so far"), None]), observer=observer)
    await _sent(turns, "a")
    store.automatic = False
    closing = asyncio.create_task(turns.aclose())
    while not closing.done():
        for waiting in (one for one in store.futures if not one.done()):
            waiting.set_exception(ShuttingDown())
        await asyncio.sleep(0)
    assert await closing == TurnCounts(running=1, waiting=0, queued=0)
    assert [what for what, _ in observer.turns] == ["started"]


async def test_an_abort_does_not_claim_what_a_stop_prevented() -> None:
    """The turn goes on at the next start, so whoever aborts it is to try again then."""
    turns = _turns()
    await _sent(turns, "a")
    closing = asyncio.create_task(turns.aclose())
    await asyncio.sleep(0)
    for _ in range(2):  # while it stops, and then
        with pytest.raises(ShuttingDown):
            await turns.abort("ses_1", "", keep_queue=False)
        await closing
    assert turns.counts().running == 1


class FullDisk(FakeStore):
    """Stores nothing more once it is full."""

    is_full = False
    error: Exception = StorageFull("full")

    def commit(self, commit: Commit) -> "asyncio.Future[Committed]":
        """Remembers the commit, or fails."""
        if not self.is_full:
            return super().commit(commit)
        failed: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        failed.set_exception(self.error)
        return failed


async def _delete(turns: Turns) -> None:
    async def nothing(_: str) -> None:
        """Ends nothing."""

    with turns.held("default", "ses_1") as owner:
        await owner.delete(nothing)


async def test_a_deletion_ends_with_the_server() -> None:
    """Also one that waits for the end of a turn on a full disk, which the stop leaves to the next start."""
    store = FullDisk(sessions_by_id=SESSIONS)
    turns = _turns(store)
    await send(turns, "a")
    store.is_full = True
    deleting = await begun(_delete(turns))
    assert not deleting.done()
    await turns.aclose()
    with pytest.raises(ShuttingDown):
        await deleting


async def test_a_turn_that_another_server_goes_on_with_is_no_error() -> None:
    """Nothing went wrong here, so nobody is called: the other one stores the end."""
    store = FullDisk(sessions_by_id=SESSIONS)
    store.error = SessionMoving()
    turns = _turns(store, AnswersOnce([]))
    with capture_logs() as lines:
        await send(turns, "a")
        store.is_full = True
        await settled()
        await turns.aclose()
    assert [line for line in lines if line["log_level"] == "error"] == []


async def test_a_deletion_waits_for_the_commit_on_its_way() -> None:
    """And lets its owner go."""
    turns = _turns(store := _store(automatic=False))
    changing = await begun(turns.change_idle("default", "ses_1", Work((RemoveMessage("msg_1"),))))
    deleting = await begun(_delete(turns))
    assert len(store.commits) == 1
    store.automatic = True
    store.futures[-1].set_result(Committed(0, 1))
    await changing
    await deleting
    assert turns._owners == {}


async def test_a_stop_waits_for_messages_that_an_abort_puts_back() -> None:
    """Also when the turn has ended by then: the next start would answer what was aborted."""
    turns = _turns()
    await send(turns, "a")
    await send(turns, "b", is_late=True)
    await settled()
    environment = turns._environment
    await environment.reads.acquire("default", environment.reads.limit)
    aborting = await begun(turns.abort("ses_1", "", keep_queue=False))
    assert turns.counts().running == 0
    closing = await begun(turns.aclose())
    assert not closing.done()
    environment.reads.release("default", environment.reads.limit)
    await closing
    assert (await aborting).dropped_message_ids == ("msg_b",)
    assert turns._owners == {}


async def test_a_turn_that_begins_in_the_commit_that_ends_another_runs() -> None:
    """Both waited for a commit that left nothing waiting."""
    store, observer = _store(), RecordingObserver()
    turns = _turns(store, observer=observer)
    await _sent(turns, "a", "b")
    owner = turns.waiting_in("ses_1", "msg_b")
    store.automatic = False
    removing = await begun(owner.remove("msg_b", Work()))
    owner.run.stop(Ending(FinishReason.ABORTED))
    await settled()
    sending = send(turns, "c")
    store.automatic = True
    store.futures[-1].set_result(Committed(0, 9))
    await removing
    assert (await sending).reply.queue_position == 0
    await settled()
    assert turns.view(SESSIONS["ses_1"]).active_turn_id == "trn_c"
    assert [(what, turn.turn_id) for what, turn in observer.turns][-2:] == [("ended", "trn_a"), ("started", "trn_c")]
    await turns.aclose()


async def test_an_abort_goes_on_without_its_caller() -> None:
    """The messages of late turns go back too, which is stored behind the others; else nobody would ever answer them."""
    turns = _turns(store := _store())
    await send(turns, "a")
    await send(turns, "b")
    await send(turns, "c", is_late=True)
    await settled()
    store.automatic = False
    aborting = await begun(turns.abort("ses_1", "", keep_queue=False))
    aborting.cancel()
    await settled()
    store.automatic = True
    store.futures[-1].set_result(Committed(0, 9))
    await settled()
    stored = [change for commit in store.commits for change in commit.changes if isinstance(change, PutMessage)]
    assert [one.message.status for one in stored if one.message.message_id == "msg_c"][-1] is MessageStatus.COMPLETE
    assert turns._owners == {}


async def test_a_turn_that_begins_at_once_behind_another_runs_once() -> None:
    """Its commit is done before the task of the one before it has seen that this one's end is stored."""
    store, observer = _store(), RecordingObserver()
    turns = _turns(store, observer=observer)
    await _sent(turns, "a")
    store.automatic = False
    aborting = await begun(turns.abort("ses_1", "", keep_queue=False))
    sending = send(turns, "b")
    store.automatic = True
    store.futures[-1].set_result(Committed(0, 9))
    assert (await sending).reply.queue_position == 0
    await aborting
    await settled()
    assert [(what, turn.turn_id) for what, turn in observer.turns][-2:] == [("ended", "trn_a"), ("started", "trn_b")]
    await turns.aclose()
    assert turns._slots.in_use == 0


@pytest.mark.parametrize("comes", ["before the end", "behind the end", "behind an end that is lost"])
async def test_a_result_and_the_end_of_its_turn_have_an_order(comes: str) -> None:
    """A result before the end is stored, and not written over; one behind it is refused. A lost end ends nothing."""
    store = _store()
    turns = _turns(store, FakeProvider(_calling("look")))
    await send(turns, "a", tools=(ToolDefinition("look", "", "{}"),))
    while (calls := turns.calls("ses_1")) is None:
        await settled()
    store.conversation, store.automatic = (calls.message,), False
    [(part, _)] = calls.message.tool_calls()
    result = deliver(turns, part.part_id, CallResult(output="seen"))
    ending = turns.abort("ses_1", "", keep_queue=False)
    in_order = (result, ending) if comes == "before the end" else (ending, result)
    asked = list[asyncio.Task[object]]()
    for one in in_order:
        asked.append(asyncio.create_task(one))
        await settled()
    store.automatic = True
    if comes == "behind an end that is lost":
        store.futures[-1].set_exception(StorageFull("full"))
        await elapse(timedelta(seconds=RETRY_SECONDS[0]))
    else:
        store.futures[-1].set_result(Committed(0, 1))
    if comes == "behind the end":
        with pytest.raises(ToolCallAlreadySettled):
            await asked[1]
    await asyncio.wait(asked)
    written = [
        change.message
        for commit, storing in zip(store.commits, store.futures, strict=True)
        for change in commit.changes
        if storing.exception() is None and isinstance(change, PutMessage)
    ]
    last = next(one for one in reversed(written) if one.message_id == calls.message.message_id)
    assert [call.output for _, call in last.tool_calls()] == [None if comes == "behind the end" else "seen"]


async def test_questions_count_while_their_calls_wait() -> None:
    """However the turn ends."""
    tools = FakeServerTools(server_tool("fs.read"))
    turns = _turns(model=FakeProvider(_calling("fs.read")), tools=tools)
    environment, asking = turns._environment, await _asking(turns, tools)
    assert len(turns.open_questions("default", None)) == 1
    assert environment.open_questions == {"default": 1}
    await turns.abort("ses_1", "", keep_queue=False)
    assert environment.open_questions == {}
    asking.cancel()
    await turns.aclose()


async def test_turns_of_sessions_that_go_to_another_node_stop_and_are_forgotten() -> None:
    """Those of others go on."""
    turns = _turns(FakeStore(sessions_by_id={name: make_session(name) for name in ("ses_1", "ses_2")}))
    await send(turns, "a")
    await send(turns, "b")
    await send(turns, "c", session_id="ses_2")
    await settled()
    await turns.leave(lambda session_id: session_id == "ses_1")
    assert turns.counts() == TurnCounts(running=1, waiting=0, queued=0)
    assert turns.is_idle(lambda session_id: session_id == "ses_1")
    assert not turns.is_idle(lambda session_id: session_id == "ses_2")
    assert turns.running("default") == 1
    await turns.aclose()


async def test_sessions_that_are_lost_are_forgotten_though_nothing_can_be_stored() -> None:
    """Their turns stay as they are stored, for the node that has them now; their questions are its own."""
    store = FullDisk(sessions_by_id=SESSIONS)
    tools = FakeServerTools(server_tool("fs.read"))
    turns = _turns(store, FakeProvider(_calling("fs.read")), tools=tools)
    environment, asking = turns._environment, await _asking(turns, tools)
    assert environment.open_questions == {"default": 1}
    store.is_full, stored = True, len(store.commits)
    await turns.leave(lambda _: True)
    assert (turns.counts(), len(store.commits)) == (TurnCounts(0, 0, 0), stored)
    assert environment.open_questions == {}
    store.is_full = False
    assert (await send(turns, "b")).reply.queue_position == 0
    asking.cancel()
    await turns.aclose()
