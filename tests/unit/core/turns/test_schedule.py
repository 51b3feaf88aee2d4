"""Commands on the turns of a session: pure decisions."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tests.support.fakes.domain_values import NOW, make_answer, make_message, make_session, make_turn
from tests.support.fakes.turns import make_accept
from turnwire.core.actor import Command, Decision, Now
from turnwire.core.ending import Ending
from turnwire.core.tools.client_calls import SubmitResult
from turnwire.core.tools.open_calls import CallsClosed, OpenCalls
from turnwire.core.tools.results import CallResult
from turnwire.core.turns.schedule import (
    TRANSITIONS,
    AbortTurn,
    AddAnswer,
    AppendMessage,
    ArchiveSession,
    BecomeIdle,
    BeginStep,
    BeginTurn,
    Between,
    ChangeCalls,
    Changed,
    ChangeSettings,
    DropMessage,
    EditWaiting,
    EndStep,
    EndTurn,
    GiveUpTurn,
    Idle,
    JoinTurn,
    LeaveOut,
    MoveWaiting,
    NoteDeletion,
    RemoveWaiting,
    ReturnMessage,
    Running,
    Schedule,
    Waiting,
    WhenIdle,
)
from turnwire.domain.conversation.events import (
    MessageAdded,
    MessageRemoved,
    QueueChanged,
    SessionStatusChanged,
    TurnEnded,
    TurnStarted,
    TurnSteered,
)
from turnwire.domain.conversation.messages import FinishReason, MessageStatus, ToolUse
from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry, TurnStatus
from turnwire.domain.errors import MessageNotWaiting, SessionNotFound, TooManyTurns, TurnInProgress
from turnwire.ports.commit import OrderQueue, PutMessage, RemoveMessage, Work

AT = Now(datetime(2026, 1, 2, tzinfo=UTC), 5.0)
MARK = Work((RemoveMessage("mark"),))


def _after(names: str, schedule: Schedule | None = None) -> Schedule:
    """Returns the schedule after messages came; the first letter of each name is its policy."""
    schedule = schedule or Schedule()
    for name in names.split():
        schedule = make_accept(name).decide(schedule, AT).state
    return schedule


def _names(schedule: Schedule) -> str:
    return " ".join(one.message_id.removeprefix("msg_") for one in schedule.waiting)


def _kinds(decision: Decision[Schedule]) -> list[type]:
    return [type(event.kind) for event in decision.work.events]


def _begin(schedule: Schedule) -> Decision[Schedule]:
    first = schedule.waiting[0]
    turn = msgspec.structs.replace(first.turn, status=TurnStatus.RUNNING)
    return BeginTurn(first, turn, Work()).decide(schedule, AT)


@pytest.mark.parametrize(
    ("coming", "order"),
    [
        ("q1 q2 q3", "q1 q2 q3"),
        ("q1 i1 q2 i2", "i2 i1 q1 q2"),
        ("q1 s1 q2 s2", "s1 s2 q1 q2"),
        ("q1 s1 i1 s2", "i1 s1 s2 q1"),
    ],
)
def test_a_message_comes_where_its_policy_puts_it(coming: str, order: str) -> None:
    """The newest that interrupts first, those that steer in their order, then the others; the store has the order."""
    schedule = _after("a")
    for name in coming.split():
        decision = make_accept(name).decide(schedule, AT)
        schedule, accepted = decision.state, decision.reply
        assert schedule.waiting[accepted.queue_position - 1].message_id == f"msg_{name}"
        ordered = [change for change in decision.work.changes if isinstance(change, OrderQueue)]
        is_last = accepted.queue_position == len(schedule.waiting)
        assert ordered == ([] if is_last else [OrderQueue(tuple(one.message_id for one in schedule.waiting))])
    assert _names(schedule) == order


def test_nothing_comes_before_a_turn_that_is_being_begun() -> None:
    """Its message is being read: one that interrupts ends it as soon as it runs."""
    schedule = EndTurn("trn_a", lambda *_: Work(), is_stopping=False).decide(_after("a q1 q2"), AT).state
    assert schedule.phase == Between("trn_a")
    assert schedule.active_turn_id == "trn_q1"
    schedule = _after("i1 s1", schedule)
    assert _names(schedule) == "q1 i1 s1 q2"
    assert _begin(schedule).state.phase.stop == Ending(FinishReason.ABORTED, ended_by_message_id="msg_i1")


def test_one_that_interrupts_ends_the_running_turn_once() -> None:
    """The first one counts."""
    assert _after("a i1 i2").phase.stop == Ending(FinishReason.ABORTED, ended_by_message_id="msg_i1")


def test_a_turn_begins_only_as_it_was_read() -> None:
    """Not when it was edited, or another one is first by now."""
    schedule = EndTurn("trn_a", lambda *_: Work(), is_stopping=False).decide(_after("a b c"), AT).state
    first = schedule.waiting[0]
    beginning = BeginTurn(first, first.turn, Work())
    edited = _edit(schedule, "b").state
    for changed in (edited, LeaveOut("msg_b").decide(schedule, AT).state, _after("a b")):
        with pytest.raises(Changed):
            beginning.decide(changed, AT)


def test_nothing_follows_when_what_waited_is_gone() -> None:
    """The end is told once. One that comes meanwhile is begun."""
    between = msgspec.structs.replace(_after("a"), phase=Between("trn_a"))
    idle = BecomeIdle().decide(between, AT)
    assert (idle.state, [event.kind for event in idle.work.events]) == (Schedule(), [SessionStatusChanged(False)])
    assert BecomeIdle(is_stored=False).decide(between, AT) == Decision(Schedule())
    assert BecomeIdle().decide(idle.state, AT) == Decision(Schedule())
    waiting = _after("b", between)
    assert BecomeIdle().decide(waiting, AT) == Decision(waiting)
    given_up = GiveUpTurn("trn_a").decide(_after("a b"), AT)
    assert (given_up.state.phase, given_up.work) == (Between("trn_a"), Work())


def test_what_an_earlier_process_left_between_two_turns_ends_with_a_status() -> None:
    """It told that the session runs, and was killed; nobody else tells that it does not any more."""
    left = Schedule(Between(""), _after("a b").waiting)
    assert _kinds(_begin(left))[:2] == [SessionStatusChanged, TurnStarted]
    removed = RemoveWaiting(left.waiting[0], None, MARK).decide(left, AT).state
    idle = BecomeIdle().decide(removed, AT)
    assert (idle.state, [event.kind for event in idle.work.events]) == (Schedule(), [SessionStatusChanged(False)])


def test_the_message_whose_turn_is_being_begun_keeps_its_place() -> None:
    """Whatever is moved; and one that is to interrupt has nothing to interrupt but itself."""
    between = msgspec.structs.replace(_after("a b c d"), phase=Between("trn_a"))
    assert _names(MoveWaiting("msg_b", "", MARK).decide(between, AT).state) == "b c d"
    assert _names(MoveWaiting("msg_b", "msg_d", MARK).decide(between, AT).state) == "b c d"
    moved = MoveWaiting("msg_d", "msg_b", MARK).decide(between, AT)
    assert _names(moved.state) == "b d c"
    assert moved.state.active_turn_id == "trn_b"
    edited = _edit(between, "b", BusyPolicy.INTERRUPT).state
    assert (_names(edited), edited.phase) == ("b c d", Between("trn_a"))
    assert (edited.waiting[0].turn.busy_policy, edited.waiting[0].turn.aimed_at_turn_id) == (BusyPolicy.INTERRUPT, "")


def test_an_abort_takes_late_turns_and_their_messages_go_back() -> None:
    """They are read for that, one after the other, so their end is stored by itself."""
    schedule = make_accept("b", is_late=True).decide(_after("a"), AT).state
    aborted = AbortTurn("", keeps_queue=False).decide(schedule, AT)
    assert (aborted.state.waiting, aborted.work) == ((), Work())
    [late] = aborted.reply.taken
    message = make_message("msg_b", status=MessageStatus.QUEUED)
    returned = ReturnMessage(late, message).decide(aborted.state, AT)
    assert _kinds(returned) == [MessageRemoved, MessageAdded, TurnEnded, QueueChanged]
    [back] = [change for change in returned.work.changes if isinstance(change, PutMessage)]
    assert (back.at_end, back.message.status, back.message.turn_id) == (True, MessageStatus.COMPLETE, "")


def test_a_message_that_cannot_begin_ends_or_is_left_out() -> None:
    """The one is told, the other waits for the next start."""
    schedule = _after("a b c")
    assert _kinds(DropMessage("msg_b").decide(schedule, AT)) == [MessageRemoved, TurnEnded, QueueChanged]
    left = LeaveOut("msg_b").decide(schedule, AT)
    assert (_names(left.state), left.work) == ("c", Work())


def test_messages_join_a_turn_together() -> None:
    """In one commit, each with the end of its own turn; one that was changed since it was read waits on."""
    schedule = _after("a s1 s2")
    joining = tuple((one, one.turn, make_message(one.message_id)) for one in schedule.joining("trn_a"))
    joined = JoinTurn("trn_a", joining).decide(schedule, AT)
    assert joined.state.waiting == ()
    assert _kinds(joined) == [TurnSteered, TurnEnded, TurnSteered, TurnEnded, QueueChanged]
    assert JoinTurn("trn_a", joining[:1]).decide(_edit(schedule, "s1").state, AT).work == Work()
    stopped = schedule.stopped(Ending(FinishReason.ABORTED))
    assert JoinTurn("trn_a", joining).decide(stopped, AT) == Decision(stopped)


def _edit(schedule: Schedule, name: str, policy: BusyPolicy | None = None, **settings: object) -> Decision[Schedule]:
    waiting = schedule.find(f"msg_{name}")
    parts = make_message(waiting.message_id, "edited").parts
    turn = msgspec.structs.replace(waiting.turn, **settings)
    return EditWaiting(waiting, turn, make_message(waiting.message_id), parts, (), policy, MARK).decide(schedule, AT)


def test_what_may_not_happen_beside_a_turn() -> None:
    """It happens when nothing runs or is being begun."""
    assert WhenIdle(MARK).decide(Schedule(), AT) == Decision(Schedule(), MARK)
    for busy in (_after("a"), msgspec.structs.replace(_after("a b"), phase=Between("trn_a"))):
        with pytest.raises(TurnInProgress):
            WhenIdle(MARK).decide(busy, AT)


def test_calls_wait_from_the_end_of_their_step_to_the_next_one() -> None:
    """A command on those of another step is refused."""
    message = make_answer("msg_1", ToolUse(name="read", call_id="c1", input_json="{}"))
    calls = OpenCalls.of(message, frozenset({"read"}), (), (), question_timeout=timedelta(1), now=AT)
    result = SubmitResult(0, CallResult(output="1"))
    waits = EndStep("msg_1", calls, MARK).decide(_after("a"), AT).state
    assert waits.open_requests == 1
    with pytest.raises(CallsClosed):
        ChangeCalls("msg_0", result).decide(waits, AT)
    answered = ChangeCalls("msg_1", result).decide(waits, AT).state
    assert (answered.open_requests, _after("q b", answered).calls) == (0, answered.calls)
    over = BeginStep().decide(answered, AT).state
    assert over.calls is None
    with pytest.raises(CallsClosed):
        ChangeCalls("msg_1", result).decide(over, AT)


def test_a_turn_that_is_to_end_stays_so_through_its_phases() -> None:
    """A step may end, and the next one be begun, before the task of the turn has noticed."""
    message = make_answer("msg_1", ToolUse(name="read", call_id="c1", input_json="{}"))
    calls = OpenCalls.of(message, frozenset({"read"}), (), (), question_timeout=timedelta(1), now=AT)
    stop = Ending(FinishReason.ABORTED)
    stopped = AbortTurn("", keeps_queue=True).decide(_after("a"), AT).state
    for ended in (EndStep("msg_1", calls, MARK), EndStep("msg_1", None, MARK)):
        waits = ended.decide(stopped, AT).state
        again = BeginStep().decide(waits, AT).state
        assert [one.running("trn_a").stop for one in (stopped, waits, again)] == [stop] * 3  # type: ignore[union-attr]


def test_what_waits_keeps_nothing_that_is_large() -> None:
    """Neither its content nor the tools and the system prompt of its turn."""
    accepted = make_accept("b", system="s" * 10_000).decide(_after("a"), AT)
    assert accepted.reply.turn.system
    assert len(msgspec.json.encode(accepted.state)) < 3000


@pytest.mark.parametrize("seed", range(30))
def test_what_is_told_is_what_is(seed: int) -> None:
    """Whatever comes: the last queue that was told is the one that there is, and the status too."""
    queue: tuple[QueueEntry, ...] = ()
    is_running = False
    for schedule, command, decision in _walk(seed):
        changed = decision.state
        if changed.waiting != schedule.waiting and not isinstance(command, LeaveOut):
            assert decision.work.events, command
        for kind in (event.kind for event in decision.work.events):
            queue = kind.entries if isinstance(kind, QueueChanged) else queue
            is_running = kind.running if isinstance(kind, SessionStatusChanged) else is_running
        assert len({one.message_id for one in changed.waiting}) == len(changed.waiting)
        if not isinstance(command, LeaveOut | EndTurn | GiveUpTurn):  # the first is not told to wait no more
            assert queue == changed.entries
        queue = changed.entries
        assert is_running == (not isinstance(changed.phase, Idle))
        assert not (changed.waiting and isinstance(changed.phase, Idle))


def test_the_table_of_transitions_is_what_is_decided() -> None:
    """Nothing else happens, and everything in it does."""
    seen = {
        (type(schedule.phase), type(command), type(decision.state.phase))
        for seed in range(60)
        for schedule, command, decision in _walk(seed)
        if decision.work != Work() or decision.state != schedule
    }
    listed = {
        (phase, command, after)
        for phase, commands in TRANSITIONS.items()
        for command, phases in commands.items()
        for after in phases
    }
    assert seen == listed


def _walk(seed: int) -> Iterator[tuple[Schedule, Command[Schedule], Decision[Schedule]]]:
    """Yields what commands that come by chance make of a schedule, with the schedule before."""
    chance, schedule = random.Random(seed), Schedule()
    for number in range(120):
        command = _any(chance, schedule, number)
        try:
            decision = command.decide(schedule, AT)
        except (MessageNotWaiting, TurnInProgress, TooManyTurns, SessionNotFound, Changed, CallsClosed):
            continue
        yield schedule, command, decision
        schedule = decision.state


def _any(chance: random.Random, schedule: Schedule, number: int) -> Command[Schedule]:
    """Returns a command as it may come next."""
    waits = [one.message_id for one in schedule.waiting] or ["msg_none"]
    match schedule.phase:
        case Between() if not chance.randrange(3):
            if not schedule.waiting:
                return BecomeIdle()
            first = schedule.waiting[0]
            return chance.choice([_beginning(first)] * 4 + [LeaveOut(first.message_id), DropMessage(first.message_id)])
        case Running(turn) if not chance.randrange(4):
            joining = tuple((one, one.turn, make_message(one.message_id)) for one in schedule.joining(turn.turn_id))
            ends = EndTurn(turn.turn_id, lambda *_: Work(), is_stopping=False), GiveUpTurn(turn.turn_id)
            message = make_answer(f"msg_{number}", ToolUse(name="read", call_id="c1", input_json="{}"))
            calls = OpenCalls.of(message, frozenset({"read"}), (), (), question_timeout=timedelta(1), now=AT)
            result = ChangeCalls(schedule.phase.ended_message_id, SubmitResult(0, CallResult(output="1")))
            step = AddAnswer(MARK), EndStep(message.message_id, chance.choice([calls, None]), MARK), BeginStep()
            return chance.choice([*ends, *step, result, JoinTurn(turn.turn_id, joining)])
    chosen = chance.choice(waits)
    found = next((one for one in schedule.waiting if one.message_id == chosen), Waiting("msg_none", make_turn()))
    return chance.choice(
        (
            make_accept(f"{chance.choice('qisr')}{number}", max_waiting=6),
            MoveWaiting(chosen, chance.choice([*waits, ""]), Work()),
            RemoveWaiting(found, None, Work()),
            ReturnMessage(found, make_message(chosen)),
            AbortTurn("", keeps_queue=bool(chance.randrange(2))),
            EditWaiting(found, found.turn, make_message(chosen), (), (), chance.choice([None, *BusyPolicy]), Work()),
            WhenIdle(MARK),
            AppendMessage(MARK, results_version=chance.choice([None, schedule.results_version, -1])),
            ChangeSettings(schedule.settings_version - chance.randrange(2), make_session(), Work()),
            ArchiveSession(bool(chance.randrange(2)), Work()),
            NoteDeletion(has_begun=not schedule.deletions),
        )
    )


def _beginning(first: Waiting) -> BeginTurn:
    return BeginTurn(first, msgspec.structs.replace(first.turn, status=TurnStatus.RUNNING, started_at=NOW), Work())
