"""Turns that a dead process left running go on at the next start, or are ended."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import pytest

from tests.support.fakes.core import FakeProvider, FakeProviders, FakeStore, RecordingObserver, make_environment
from tests.support.fakes.domain_values import make_answer, make_message, make_session, make_turn, open_part, outcome
from tests.support.fakes.loop import begun, elapse, settled
from tests.support.fakes.turns import deliver, send
from turnwire.core.tools.results import CallResult
from turnwire.core.turns.recovery import RESTARTED
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.run import TurnRun
from turnwire.core.turns.session import RETRY_SECONDS
from turnwire.domain.conversation.events import MessageAdded, SessionStatusChanged, TurnEnded
from turnwire.domain.conversation.messages import (
    FinishReason,
    Message,
    MessageStatus,
    MessageType,
    ModelRun,
    Text,
    ToolStatus,
    ToolUse,
)
from turnwire.domain.conversation.turns import BusyPolicy, ToolDefinition, Turn, TurnStatus
from turnwire.domain.errors import SessionMoving, StorageError, ToolCallNotReady
from turnwire.domain.money import Usage
from turnwire.domain.principal import DEFAULT_TENANT
from turnwire.ports.commit import Commit, Committed, NewEvent, PutMessage, PutTurn, Work
from turnwire.ports.provider import StepFinished, TextDelta, ToolCallDelta

CALL = ToolUse(name="read", call_id="c1", input_json="{}")
RUN = ModelRun(provider_id="offline", model_requested="echo")
STEP = make_answer("msg_1", "first step", usage=Usage(input_tokens=5), cost_pico_usd=5)
ASKED = make_message("msg_user", turn_id="trn_1")
CALLING = make_answer("msg_1", CALL, finish_reason=FinishReason.TOOL_USE)
STREAMING = make_answer("msg_2", open_part(0, Text("so far")), status=MessageStatus.STREAMING)
TOOLS = (ToolDefinition("read", "", ""),)
SESSIONS = {"ses_1": make_session()}


def _waiting_turn(name: str, **settings: object) -> Turn:
    return make_turn(f"trn_{name}", user_message_id=f"msg_{name}", status=TurnStatus.QUEUED, **settings)


def _waiting_message(name: str, text: str = "now") -> Message:
    return make_message(f"msg_{name}", text, turn_id=f"trn_{name}", status=MessageStatus.QUEUED)


def _puts(commit: Commit) -> list[Message]:
    return [change.message for change in commit.changes if isinstance(change, PutMessage)]


def _ends(store: FakeStore) -> list[Turn]:
    return [e.kind.turn for commit in store.commits for e in commit.events if isinstance(e.kind, TurnEnded)]


async def test_a_turn_that_was_left_running_is_ended_in_one_commit() -> None:
    """Its text is kept as interrupted, and the session is idle after its end."""
    store = FakeStore(conversation=(STEP, STREAMING), unfinished=(make_turn(),))
    await Turns(make_environment(store)).recover()
    [commit] = store.commits
    [message] = _puts(commit)
    assert (message.message_id, message.status) == ("msg_2", MessageStatus.INTERRUPTED)
    assert message.parts[0].content == Text("so far")
    ended, idle = commit.events[-2:]
    assert outcome(ended.kind) == {
        "finish_reason": FinishReason.INTERRUPTED,
        "failure": RESTARTED.failure,
        "usage": Usage(input_tokens=5),
        "cost_pico_usd": 5,
        "steps": 2,
    }
    assert (ended.turn_id, idle) == ("trn_1", NewEvent(SessionStatusChanged(False)))


async def test_the_cost_of_a_step_that_died_is_counted() -> None:
    """Its usage is known as far as it was saved, and so is its price: the turn's cost does not become unknown."""
    streaming = msgspec.structs.replace(STREAMING, usage=Usage(input_tokens=2), model_run=RUN)
    store, observer = FakeStore(conversation=(STEP, streaming), unfinished=(make_turn(),)), RecordingObserver()
    await Turns(make_environment(store, observer=observer)).recover()
    assert [(what, turn.turn_id) for what, turn in observer.turns] == [("ended", "trn_1")]
    [message], [ended] = _puts(store.commits[0]), _ends(store)
    assert (message.cost_pico_usd, ended.usage, ended.cost_pico_usd) == (2, Usage(input_tokens=7), 7)


async def test_the_end_of_a_dead_turn_is_noted_for_people() -> None:
    """A host message says what happened, before the turn's end."""
    store = FakeStore(conversation=(STREAMING,), unfinished=(make_turn(),))
    await Turns(make_environment(store, settings={"host_messages": True})).recover()
    [commit] = store.commits
    added = [event.kind.message for event in commit.events if isinstance(event.kind, MessageAdded)]
    assert [(m.type, m.parts[0].content, m.metadata_json) for m in added] == [
        (
            MessageType.HOST,
            Text("The answer was cut off: the server was restarted during the turn"),
            '{"event": "turn_interrupted", "reason": "SERVER_RESTARTED"}',
        )
    ]
    assert isinstance(commit.events[-2].kind, TurnEnded)


async def test_a_turn_whose_call_is_open_waits_on() -> None:
    """Nothing ends; the session is busy with it, watchers get its message, and its result is taken."""
    turn = make_turn(tools=TOOLS)
    store = FakeStore(conversation=(ASKED, CALLING), unfinished=(turn,))
    turns = Turns(make_environment(store))
    await turns.recover()
    [commit] = store.commits
    assert commit.changes == (PutTurn(msgspec.structs.replace(turn, steps=1)),)
    await settled()
    assert list(turns.open_messages(DEFAULT_TENANT, "ses_1")) == [CALLING]
    assert not [e for c in store.commits for e in c.events if isinstance(e.kind, TurnEnded | SessionStatusChanged)]
    part, _ = await deliver(turns, "prt_0", CallResult(output="42"))
    assert part.content.status is ToolStatus.SUCCESS  # type: ignore[union-attr]
    await turns.aclose()


@dataclass
class SlowToTell(FakeStore):
    """Says which turns have not ended when a test lets it."""

    may_tell: asyncio.Event = field(default_factory=asyncio.Event)

    async def unfinished_turns(self) -> tuple[Turn, ...]:
        """Waits first."""
        await self.may_tell.wait()
        return await super().unfinished_turns()


async def test_a_call_that_comes_while_turns_are_recovered_is_refused() -> None:
    """It began before this node had lost the session, and would take it for an idle one."""
    store = SlowToTell(conversation=(ASKED, CALLING), unfinished=(make_turn(tools=TOOLS),))
    store.sessions_by_id = {name: make_session(name) for name in ("ses_1", "ses_2")}
    turns = Turns(make_environment(store, FakeProviders(FakeProvider([None]))))
    recovering = await begun(turns.recover(lambda session_id: session_id == "ses_1"))
    with pytest.raises(SessionMoving):
        send(turns, "a")
    with pytest.raises(SessionMoving):
        await turns.change_idle(DEFAULT_TENANT, "ses_1", Work())
    with pytest.raises(SessionMoving), turns.held(DEFAULT_TENANT, "ses_1"):
        pass
    await send(turns, "b", session_id="ses_2")
    store.may_tell.set()
    await recovering
    await settled()
    assert list(turns.open_messages(DEFAULT_TENANT, "ses_1")) == [CALLING]
    assert (await send(turns, "c")).reply.queue_position == 1
    await turns.aclose()


@dataclass
class Counting(FakeStore):
    """Notes which turns and messages are read whole."""

    read: list[str] = field(default_factory=list)

    async def turn(self, session_id: str, turn_id: str) -> Turn:
        """Notes it."""
        self.read.append(turn_id)
        return await super().turn(session_id, turn_id)

    async def message(self, session_id: str, message_id: str) -> Message:
        """Notes it."""
        self.read.append(message_id)
        return await super().message(session_id, message_id)


async def test_a_full_queue_stays_on_disk() -> None:
    """A start reads headers of what waits, and whole messages one after the other as their turns begin."""
    tools = (ToolDefinition("read", "x" * 100_000, ""),)
    names = [f"q{number}" for number in range(50)]
    store = Counting(
        conversation=(ASKED, CALLING),
        unfinished=(make_turn(tools=tools), *(_waiting_turn(name, tools=tools) for name in names)),
        waiting=tuple(_waiting_message(name, "x" * 100_000) for name in names),
        sessions_by_id=SESSIONS,
    )
    turns = Turns(make_environment(store, FakeProviders(FakeProvider([None]))))
    await turns.recover()
    await settled()
    assert store.read == ["trn_1"]
    owner = turns._owners["ses_1"]
    assert len(msgspec.json.encode(owner.schedule.waiting)) < 50 * 1000
    await turns.abort("ses_1", "", keep_queue=True)
    await settled()
    # with its message once there is room for both, and its tools again for its request
    assert store.read == ["trn_1", "trn_q0", "msg_q0", "trn_q0"]
    stored = [change.turn for commit in store.commits for change in commit.changes if isinstance(change, PutTurn)]
    assert (stored[-1].turn_id, stored[-1].status, stored[-1].tools) == ("trn_q0", TurnStatus.RUNNING, tools)
    assert len(owner.schedule.waiting) == 49
    assert len((await turns.abort("ses_1", "", keep_queue=False)).dropped_message_ids) == 49
    assert store.read == ["trn_1", "trn_q0", "msg_q0", "trn_q0"]
    await turns.aclose()


async def test_of_two_turns_that_were_left_running_only_the_newer_goes_on() -> None:
    """The end of the older one could not be stored; both at once would answer each other's messages."""
    newer = make_answer("msg_2", CALL, finish_reason=FinishReason.TOOL_USE, turn_id="trn_2")
    store = FakeStore(
        conversation=(ASKED, CALLING, make_message("msg_user_2", turn_id="trn_2"), newer),
        unfinished=(make_turn(tools=TOOLS), make_turn("trn_2", user_message_id="msg_user_2", tools=TOOLS)),
        sessions_by_id=SESSIONS,
    )
    turns = Turns(make_environment(store))
    await turns.recover()
    await settled()
    assert list(turns.open_messages(DEFAULT_TENANT, None)) == [newer]
    ended = [(e.turn_id, type(e.kind)) for c in store.commits for e in c.events if not isinstance(e.kind, MessageAdded)]
    assert ended[-1] == ("trn_1", TurnEnded)
    assert (await turns.abort("ses_1", "", keep_queue=True)).turn_id == "trn_2"
    await settled()
    assert turns.live("ses_1") is None
    told = [(e.turn_id, type(e.kind)) for e in store.commits[-1].events]
    assert told[-2:] == [("trn_2", TurnEnded), ("", SessionStatusChanged)]


async def test_a_result_for_a_call_that_the_model_is_writing_is_refused() -> None:
    """The call waits for nothing yet, and its end would write over the result."""
    store = FakeStore(conversation=(ASKED,), unfinished=(make_turn(tools=TOOLS),), sessions_by_id=SESSIONS)
    provider = FakeProvider([ToolCallDelta(0, "read", "c1", '{"path"'), None])
    turns = Turns(make_environment(store, FakeProviders(provider)))
    await turns.recover()
    await provider.waiting.wait()
    [message] = turns.open_messages(DEFAULT_TENANT, None)
    with pytest.raises(ToolCallNotReady):
        await deliver(turns, message.parts[0].part_id, CallResult(output="42"))
    assert turns.live("ses_1").awaited_call_ids == {"c1", message.parts[0].part_id}
    await turns.aclose()


class Refusing(FakeStore):
    """Takes no commit that writes an answer: the work is at fault, not the disk."""

    def commit(self, commit: Commit) -> asyncio.Future[Committed]:
        """Fails for those, and for ever."""
        future = super().commit(commit)
        if not any(isinstance(change, PutMessage) and change.message.parts for change in commit.changes):
            return future
        self.commits.remove(commit)
        failed = asyncio.get_running_loop().create_future()
        failed.set_exception(StorageError("constraint failed"))
        return failed


def ended(store: FakeStore) -> list[tuple[str, str]]:
    """Returns how turns ended: their finish reason, and the failure's."""
    turns = _ends(store)
    return [(turn.finish_reason.value, turn.failure.reason) for turn in turns if turn.finish_reason and turn.failure]


async def test_a_turn_whose_end_cannot_be_written_does_not_keep_its_session() -> None:
    """After a few attempts it is ended without its answer: nobody waits for ever."""
    streaming = make_answer("msg_2", status=MessageStatus.STREAMING)
    store = Refusing(conversation=(ASKED, streaming), unfinished=(make_turn(),), sessions_by_id=SESSIONS)
    says = FakeProvider([TextDelta(0, "an answer"), StepFinished(FinishReason.STOP, "stop")])
    turns = Turns(make_environment(store, FakeProviders(says)))
    await turns.recover()
    for pause in RETRY_SECONDS:
        assert turns.live("ses_1") is not None
        await elapse(timedelta(seconds=pause))
    assert turns.live("ses_1") is None
    assert ended(store) == [("error", "INTERNAL")]


async def test_a_bug_in_a_turn_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session takes the next message, and watchers read its end."""

    async def fail(_self: TurnRun, _slots: object) -> Work:
        raise ZeroDivisionError

    monkeypatch.setattr(TurnRun, "run", fail)
    store = FakeStore(conversation=(ASKED,), unfinished=(make_turn(),))
    turns = Turns(make_environment(store))
    await turns.recover()
    await settled()
    assert turns.live("ses_1") is None
    assert ended(store) == [("error", "INTERNAL")]


@pytest.mark.parametrize(
    ("aimed_at", "ends", "goes_on"),
    [("trn_1", [("trn_1", FinishReason.ABORTED, "msg_2")], "trn_2"), ("trn_0", [], "trn_1")],
)
async def test_a_turn_that_a_waiting_message_interrupts_does_not_go_on(
    aimed_at: str, ends: list[object], goes_on: str
) -> None:
    """The message came before the crash. A turn at which it was not aimed goes on, in front of it."""
    interrupting = _waiting_turn("2", busy_policy=BusyPolicy.INTERRUPT, aimed_at_turn_id=aimed_at)
    unfinished, waiting = (make_turn(), interrupting), (_waiting_message("2"),)
    store = FakeStore(conversation=(ASKED, CALLING), unfinished=unfinished, waiting=waiting)
    turns = Turns(make_environment(store, FakeProviders(FakeProvider([None]))))
    await turns.recover()
    while (live := turns.live("ses_1")) is None:  # the message is read before its turn begins
        await asyncio.sleep(0)
    assert [(t.turn_id, t.finish_reason, t.ended_by_message_id) for t in _ends(store)] == ends
    assert live.turn.turn_id == goes_on
    await turns.aclose()


async def test_the_queue_is_found_in_its_stored_order() -> None:
    """Not in the order in which the messages were accepted."""
    queued, waits = tuple(map(_waiting_turn, "abc")), tuple(map(_waiting_message, "bca"))
    store = FakeStore(unfinished=queued, waiting=waits, sessions_by_id=SESSIONS)
    turns = Turns(make_environment(store, FakeProviders(FakeProvider([None]))))
    await turns.recover()
    await settled()
    assert turns.live("ses_1").turn.turn_id == "trn_b"
    assert [entry.message_id for entry in turns.view(SESSIONS["ses_1"]).queue] == ["msg_c", "msg_a"]
    await turns.aclose()
