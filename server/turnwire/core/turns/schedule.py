"""The running turn of a session and the waiting messages: a value, and the effect of each command on it.

Everything here is a pure function. `turnwire.core.turns.session` owns such a value and runs the turns.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime

import msgspec
from msgspec import Struct

from turnwire.core.actor import Command, Decision, Now
from turnwire.core.ending import Ending, end_turn
from turnwire.core.intake.requests import Receipt
from turnwire.core.tools.open_calls import CallsClosed, OpenCalls
from turnwire.domain.conversation.events import (
    ConversationChange,
    ConversationChanged,
    MessageAdded,
    MessageRemoved,
    MessageReplaced,
    QueueChanged,
    SessionStatusChanged,
    SessionUpdated,
    SessionView,
    TurnStarted,
    TurnSteered,
)
from turnwire.domain.conversation.messages import FinishReason, Message, MessageStatus, Part
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry, Turn, TurnStatus
from turnwire.domain.errors import (
    InvalidRequest,
    MessageNotWaiting,
    SessionNotFound,
    TooManyTurns,
    TurnInProgress,
    TurnNotRunning,
)
from turnwire.ports.commit import (
    FileChange,
    MarkArchived,
    NewEvent,
    OrderQueue,
    PathEnd,
    PutMessage,
    PutSession,
    PutTurn,
    RemoveMessage,
    SelectPath,
    Work,
)

ARCHIVING, UNARCHIVING = Work((MarkArchived(True),)), Work((MarkArchived(False),))
"""Archives or restores a session in which nothing runs."""


class Idle(Struct, frozen=True):
    """Nothing runs or waits."""


class Running(Struct, frozen=True):
    """A turn runs: one of the phases `Asking`, `Paused` and `Calling`."""

    turn: Turn
    """As it began; may be a header."""
    stop: Ending | None = None
    """The reason to end the turn before it has finished; None when it continues. Not stored: the end itself is."""

    @property
    def ended_message_id(self) -> str:
        """The message of the newest step, once its end is stored; "" during a model call."""
        return ""


class Asking(Running, frozen=True):
    """A turn runs, and a model is being called, or about to be."""


class Paused(Running, frozen=True, kw_only=True):
    """A turn runs whose provider has paused its answer: that is stored, and the model is called again."""

    message_id: str

    @property
    def ended_message_id(self) -> str:
        """The message of the paused answer."""
        return self.message_id


class Calling(Running, frozen=True, kw_only=True):
    """A turn runs, and the calls of its newest step wait for people, clients and tools."""

    calls: OpenCalls

    @property
    def ended_message_id(self) -> str:
        """The message with the calls."""
        return self.calls.message.message_id


class Between(Struct, frozen=True):
    """A turn has ended, and that of the first waiting message is being begun: the message is being read."""

    turn_id: str
    """The turn that has ended; "" at the start of the server."""
    stopped_turn_id: str = ""
    """The turn that is to end as soon as it has begun; "" for none."""
    stop: Ending | None = None
    """The ending of that turn."""


Phase = Idle | Asking | Paused | Calling | Between


class Waiting(Struct, frozen=True):
    """A message that waits for its turn. Its large parts are left to the store, because many may wait."""

    message_id: str
    """The message. While a turn waits to answer a message again, this one represents that message, unless it is an
    edited form of it."""
    turn: Turn
    """A header."""
    size_bytes: int | None = None
    """Memory of the texts of the message, the tools and the system prompt of the turn; None when an earlier process
    stored them."""
    version: int = 0
    """Grows with every edit, so that a reader can tell that the message has changed since."""

    @property
    def entry(self) -> QueueEntry:
        """The message as clients see it while it waits."""
        return QueueEntry(self.message_id, self.turn.turn_id, self.turn.busy_policy)


class Changed(Exception):
    """A command depends on something that has changed since it was read, or on a message that is no longer first."""


class Schedule(Struct, frozen=True):
    """The turns of one session."""

    phase: Phase = Idle()
    waiting: tuple[Waiting, ...] = ()
    """Next first."""
    is_announced: bool = False
    """Whether the last status event said that the session runs."""
    settings_version: int = 0
    """Grows with every change of the settings, so that a reader can tell that they have changed since."""
    results_version: int = 0
    """Grows with every result of a call for which no turn waits, so that a reader can tell that the call has changed
    since."""
    deletions: int = 0
    """Number of deletions of the session under way; it accepts no message meanwhile."""

    @property
    def active_turn_id(self) -> str:
        """The turn that runs, or is being begun; "" when nothing runs."""
        match self.phase:
            case Running(turn):
                return turn.turn_id
            case Between(turn_id):
                return self.waiting[0].turn.turn_id if self.waiting else turn_id
            case Idle():
                return ""

    def running(self, turn_id: str) -> Running | None:
        """Returns the phase in which a turn runs; None when it does not."""
        running = self.phase
        return running if isinstance(running, Running) and running.turn.turn_id == turn_id else None

    def require(self, *phases: type[Running]) -> Running:
        """Returns the phase, in which a turn runs. Raises Changed unless it is one of these."""
        if not isinstance(self.phase, Running) or not isinstance(self.phase, phases):
            raise Changed
        return self.phase

    @property
    def calls(self) -> OpenCalls | None:
        """The calls for which the running turn waits."""
        return self.phase.calls if isinstance(self.phase, Calling) else None

    def calls_of(self, message_id: str) -> OpenCalls | None:
        """Returns the calls of a message; None when no turn waits for them."""
        calls = self.calls
        return calls if calls is not None and calls.message.message_id == message_id else None

    @property
    def open_requests(self) -> int:
        """Number of requests for which the running turn waits."""
        return 0 if self.calls is None else self.calls.open_requests

    @property
    def entries(self) -> tuple[QueueEntry, ...]:
        """The waiting messages, as clients see them: without the one whose turn is being begun."""
        return tuple(one.entry for one in self.waiting[self.begun :])

    @property
    def begun(self) -> int:
        """Number of waiting messages whose turn is being begun: the first one or none. It keeps its position."""
        return 1 if isinstance(self.phase, Between) and self.waiting else 0

    def find(self, message_id: str) -> Waiting:
        """Returns a waiting message. Raises MessageNotWaiting."""
        for one in self.waiting:
            if one.message_id == message_id:
                return one
        raise MessageNotWaiting(f"message {message_id!r} does not wait", message_id)

    def find_as_read(self, read: Waiting) -> Waiting:
        """Returns a waiting message that was read before. Raises MessageNotWaiting, and Changed when it was edited."""
        found = self.find(read.message_id)
        if found.version != read.version:
            raise Changed
        return found

    def joining(self, turn_id: str) -> tuple[Waiting, ...]:
        """Returns the messages that are to join a turn, in order."""
        steering = (BusyPolicy.STEER, turn_id)
        return tuple(one for one in self.waiting if (one.turn.busy_policy, one.turn.aimed_at_turn_id) == steering)

    def placed(self, new: Waiting) -> tuple["Schedule", int]:
        """Adds a message where its policy puts it; returns its position too, from 1.

        A message that interrupts is answered next, before all earlier ones. One that steers comes before those that
        only wait: it is next when the turn ends first. Both come after one whose turn is being begun.
        """
        first = self.begun
        match new.turn.busy_policy:
            case BusyPolicy.INTERRUPT:
                at = first
            case BusyPolicy.STEER:
                aimed = [at for at, other in enumerate(self.waiting) if at >= first and other.turn.aimed_at_turn_id]
                at = aimed[-1] + 1 if aimed else first
            case _:
                at = len(self.waiting)
        return self.inserted(new, at), at + 1

    def inserted(self, new: Waiting, at: int) -> "Schedule":
        """Adds a message at an index; one that interrupts stops the turn at which it is aimed."""
        stopped, turn = self, new.turn
        if turn.busy_policy is BusyPolicy.INTERRUPT and turn.aimed_at_turn_id == self.active_turn_id:
            stopped = self.stopped(Ending(FinishReason.ABORTED, ended_by_message_id=turn.user_message_id))
        return msgspec.structs.replace(stopped, waiting=(*self.waiting[:at], new, *self.waiting[at:]))

    def stopped(self, ending: Ending) -> "Schedule":
        """Returns the schedule in which the active turn is to end; only the first ending counts."""
        match self.phase:
            case Running(_, None):
                return msgspec.structs.replace(self, phase=msgspec.structs.replace(self.phase, stop=ending))
            case Between(turn_id) if self.waiting and self.phase.stopped_turn_id != self.active_turn_id:
                return msgspec.structs.replace(self, phase=Between(turn_id, self.active_turn_id, ending))
        return self

    def without(self, message_ids: Collection[str]) -> "Schedule":
        """Returns the schedule without some of the waiting messages."""
        left = tuple(one for one in self.waiting if one.message_id not in message_ids)
        return msgspec.structs.replace(self, waiting=left)

    def started(self, turn: Turn) -> tuple["Schedule", tuple[NewEvent, ...]]:
        """Returns the schedule in which a turn runs, and the events that report it."""
        events, stop, before = [NewEvent(TurnStarted(turn), turn.turn_id)], None, self.phase
        if not self.is_announced:
            events.insert(0, NewEvent(SessionStatusChanged(True)))
        if isinstance(before, Between) and before.stopped_turn_id == turn.turn_id:
            stop = before.stop
        return msgspec.structs.replace(self, phase=Asking(turn.header(), stop), is_announced=True), tuple(events)

    def aim_of(self, policy: BusyPolicy) -> str:
        """Returns the turn that a message with a policy acts on; "" when it only waits."""
        return "" if policy is BusyPolicy.QUEUE else self.active_turn_id

    @property
    def queue_changed(self) -> Work:
        """The work that reports the queue; the store reads it when the work is stored."""
        return Work((), (NewEvent(QueueChanged(self.entries)),))

    @property
    def queue_ordered(self) -> Work:
        """The work that stores the order of the queue."""
        return Work((OrderQueue(tuple(one.message_id for one in self.waiting)),))

    def marked(self, *, is_archived: bool) -> Work:
        """Returns the work that archives the session, or takes it out of the archive, unless it is already in that
        state.
        """
        if isinstance(self.phase, Idle):
            return ARCHIVING if is_archived else UNARCHIVING
        return Work((MarkArchived(is_archived, self.active_turn_id, self.entries, self.open_requests),))


class Accepted(Struct, frozen=True):
    """A message whose turn has its position."""

    turn: Turn
    """RUNNING when it starts at once, else QUEUED."""
    message: Message
    """The message; QUEUED when its turn waits."""
    queue_position: int
    """Its position among the waiting messages, from 1; 0 when its turn starts at once."""

    @property
    def receipt(self) -> Receipt:
        """The answer to the caller."""
        waits, is_anew = self.queue_position > 0, bool(self.turn.regenerates)
        return Receipt(
            session_id=self.turn.session_id,
            message_id=self.turn.user_message_id if is_anew else self.message.message_id,
            queued_message_id=self.message.message_id if waits and is_anew else "",
            turn_id=self.turn.turn_id,
            queued=waits,
            queue_position=self.queue_position,
        )


class AcceptMessage(Struct, frozen=True):
    """A message that is to be answered: its turn starts at once, or waits for others."""

    turn: Turn
    message: Message
    when_busy: BusyPolicy
    store: Callable[[Accepted], Work]
    """Returns the work that stores the message and its turn. Pure."""
    max_waiting: int
    """Maximum number of waiting messages."""
    size_bytes: int
    """See `Waiting`."""
    expected_turn_id: str = ""
    """The turn that must run; "" for none."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule with the message; replies with `Accepted`.

        Raises:
            SessionNotFound: the session is being deleted.
            TurnNotRunning: the expected turn does not run.
            TurnInProgress: a turn runs and the policy is REJECT.
            TooManyTurns: too many messages wait.
        """
        if schedule.deletions:
            raise SessionNotFound(self.turn.session_id)
        active = schedule.active_turn_id
        if self.expected_turn_id and self.expected_turn_id != active:
            text = f"turn {self.expected_turn_id!r} does not run in the session"
            raise TurnNotRunning(text, self.expected_turn_id)
        if isinstance(schedule.phase, Idle):
            turn = msgspec.structs.replace(self.turn, status=TurnStatus.RUNNING, started_at=self.turn.created_at)
            message = msgspec.structs.replace(self.message, status=MessageStatus.COMPLETE)
            accepted = Accepted(turn, message, 0)
            changed, events = schedule.started(turn)
            work = changed.marked(is_archived=False) + self.store(accepted) + Work((), events)
            return Decision(changed, work, accepted)
        if self.when_busy is BusyPolicy.REJECT:
            raise TurnInProgress(f"turn {active!r} runs in the session", active)
        if len(schedule.waiting) >= self.max_waiting:
            text = f"no more messages may wait in the session: limits.max_queued_messages is {self.max_waiting}"
            raise TooManyTurns.of("limits.max_queued_messages", self.max_waiting, text)
        aim = schedule.aim_of(self.when_busy)
        turn = msgspec.structs.replace(
            self.turn, status=TurnStatus.QUEUED, busy_policy=self.when_busy, aimed_at_turn_id=aim
        )
        message = msgspec.structs.replace(self.message, status=MessageStatus.QUEUED)
        changed, position = schedule.placed(Waiting(message.message_id, turn.header(), self.size_bytes))
        accepted = Accepted(turn, message, position)
        order = Work() if position == len(changed.waiting) else changed.queue_ordered
        work = schedule.marked(is_archived=False) + self.store(accepted) + order + changed.queue_changed
        return Decision(changed, work, accepted)


class AbortTurn(Struct, frozen=True):
    """The end of the running turn, which drops the waiting messages or lets the next one begin."""

    expected_turn_id: str
    """Ends only this turn; "" ends any."""
    keeps_queue: bool

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule with the turn to be stopped and the queue dropped; replies with `Aborting`.

        Late turns are only taken out of the schedule: `ReturnMessage` stores the outcome of each.
        """
        turn_id = schedule.active_turn_id
        if not turn_id or self.expected_turn_id not in ("", turn_id):
            return Decision(schedule, Work(), Aborting())
        taken = () if self.keeps_queue else schedule.waiting
        if isinstance(schedule.phase, Between):
            taken = taken[1:]  # the first one is being begun
        left = schedule.stopped(Ending(FinishReason.ABORTED)).without([one.message_id for one in taken])
        dropping = sum((_dropping_work(one, now.at) for one in taken if not one.turn.is_late), Work())
        return Decision(left, dropping + left.queue_changed if dropping.changes else Work(), Aborting(turn_id, taken))


class Aborting(Struct, frozen=True):
    """The turns and messages that an abort ends."""

    turn_id: str = ""
    """The turn that is to end; "" when none ran."""
    taken: tuple[Waiting, ...] = ()
    """The messages that waited, in order."""


class ReturnMessage(Struct, frozen=True):
    """The return of a message into the conversation, because its late turn is not to begin any more."""

    waiting: Waiting
    message: Message

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule without it, in case it still has it."""
        left = schedule.without((self.waiting.message_id,))
        return Decision(left, _returning_work(self.waiting, self.message, now.at) + left.queue_changed)


class DropMessage(Struct, frozen=True):
    """The end of a waiting message whose turn can never begin."""

    message_id: str

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule without it. Raises MessageNotWaiting."""
        dropped, left = schedule.find(self.message_id), schedule.without((self.message_id,))
        return Decision(left, _dropping_work(dropped, now.at) + left.queue_changed)


class LeaveOut(Struct, frozen=True):
    """A waiting message that cannot be read, or whose turn cannot begin: it stays stored for the next start."""

    message_id: str

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule without it."""
        return Decision(schedule.without((self.message_id,)))


class AddAnswer(Struct, frozen=True):
    """The message of a step, whose model is being called."""

    work: Work
    """Stores and reports it."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the same schedule, and the work. Raises Changed: no model is to be called."""
        schedule.require(Asking)
        return Decision(schedule, self.work)


class EndStep(Struct, frozen=True):
    """The end of a step that another one follows: its calls wait for results from then on."""

    message_id: str
    calls: OpenCalls | None
    """None when it has no calls."""
    work: Work
    """Stores the end; empty when an earlier process did."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule with the calls. Raises Changed: no model is being called."""
        running = schedule.require(Asking)
        after: Paused | Calling = Paused(running.turn, running.stop, message_id=self.message_id)
        if self.calls is not None:
            after = Calling(running.turn, running.stop, calls=self.calls)
        return Decision(msgspec.structs.replace(schedule, phase=after), self.work)


class BeginStep(Struct, frozen=True):
    """The next step of a turn: nothing waits for the one before."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule in which a model is to be called. Raises Changed: no step has ended."""
        running = schedule.require(Paused, Calling)
        return Decision(msgspec.structs.replace(schedule, phase=Asking(running.turn, running.stop)))


class ChangeCalls(Struct, frozen=True):
    """A command on the calls that wait for their results."""

    message_id: str
    """The message of the calls."""
    command: Command[OpenCalls]

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule with the calls as the command leaves them, and its reply.

        Raises CallsClosed, and what the command does.
        """
        calls = schedule.calls_of(self.message_id)
        if calls is None:
            raise CallsClosed
        decided = self.command.decide(calls, now)
        phase = msgspec.structs.replace(schedule.require(Calling), calls=decided.state)
        return Decision(msgspec.structs.replace(schedule, phase=phase), decided.work, decided.reply)


class EndTurn(Struct, frozen=True):
    """The end of the running turn."""

    turn_id: str
    close: Callable[[Running, datetime], Work | None]
    """Returns the work that ends the stored turn; None leaves it to the next start. Pure."""
    is_stopping: bool
    """Whether the server stops, so that no turn follows."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule without the turn: nothing runs, or the next turn is to begin. Replies with the work."""
        running = schedule.running(self.turn_id)
        if running is None:
            raise Changed
        work = self.close(running, now.at)
        if work is None:
            return Decision(schedule)
        if schedule.waiting and not self.is_stopping:
            return Decision(msgspec.structs.replace(schedule, phase=Between(self.turn_id)), work, work)
        idle = msgspec.structs.replace(schedule, phase=Idle(), is_announced=False)
        return Decision(idle, work + Work((), (NewEvent(SessionStatusChanged(False)),)), work)


class GiveUpTurn(Struct, frozen=True):
    """A turn that no longer runs and whose end cannot be stored: the next start of the server ends it."""

    turn_id: str

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule in which the next turn is to begin; changes nothing when the turn has ended."""
        if schedule.running(self.turn_id) is None:
            return Decision(schedule)
        return Decision(msgspec.structs.replace(schedule, phase=Between(self.turn_id)))


class BecomeIdle(Struct, frozen=True):
    """The session becomes idle, because no message waits for the turn that ended."""

    is_stored: bool = True
    """False does not report it."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule in which nothing runs; changes nothing when a message waits."""
        if schedule.waiting or not isinstance(schedule.phase, Between):
            return Decision(schedule)
        # a process that was killed between two turns had announced that the session runs
        is_running = schedule.is_announced or not schedule.phase.turn_id
        telling = Work((), (NewEvent(SessionStatusChanged(False)),)) if is_running else Work()
        idle = msgspec.structs.replace(schedule, phase=Idle(), is_announced=False)
        return Decision(idle, telling if self.is_stored else Work())


class BeginTurn(Struct, frozen=True):
    """The beginning of the turn of the first waiting message."""

    waiting: Waiting
    """As it was when its message was read."""
    turn: Turn
    """RUNNING, with its tools and its system prompt."""
    work: Work
    """Makes the message part of the conversation."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule in which the turn runs. Raises Changed: another message is first, or it changed."""
        first = schedule.waiting[0] if schedule.waiting else None
        if first != self.waiting or not isinstance(schedule.phase, Between):
            raise Changed
        started, events = schedule.without((first.message_id,)).started(self.turn)
        return Decision(started, self.work + Work((PutTurn(self.turn),), events) + started.queue_changed)


class JoinTurn(Struct, frozen=True):
    """Waiting messages that join the running turn before its next step."""

    turn_id: str
    joining: tuple[tuple[Waiting, Turn, Message], ...]
    """As they were when they were read; turns and messages are complete."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule without them. A message that no longer waits, or was changed, does not join.

        Raises Changed: no model is to be called.
        """
        joining = [one for one in self.joining if one[0] in schedule.waiting]
        if not joining or schedule.require(Asking).stop is not None:
            return Decision(schedule)
        changed = schedule.without([waiting.message_id for waiting, _, _ in joining])
        works = (_joining_work(turn, message, self.turn_id, now.at) for _, turn, message in joining)
        return Decision(changed, sum(works, Work()) + changed.queue_changed)


class EditWaiting(Struct, frozen=True):
    """New content for a waiting message, or another policy."""

    waiting: Waiting
    """As it was when its message was read."""
    turn: Turn
    """With its tools and its system prompt."""
    message: Message
    """As it was read."""
    parts: tuple[Part, ...] | None
    """Its complete new content; None keeps its content."""
    files: tuple[FileChange, ...]
    policy: BusyPolicy | None
    """None keeps its policy."""
    further: Work
    """More work for the same commit."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule with the message as it is now; replies with the message.

        Raises MessageNotWaiting, Changed, and InvalidRequest: a new answer cannot steer.
        """
        found = schedule.find_as_read(self.waiting)
        if self.turn.regenerates and self.policy is BusyPolicy.STEER:
            raise InvalidRequest.of("busy_policy", "is STEER, and a new answer is a turn of its own")
        turn, message, work = self.turn, self.message, Work()
        if self.parts is not None and turn.regenerates:  # an edited question from now on
            turn = msgspec.structs.replace(turn, user_message_id=message.message_id)
        at = schedule.waiting.index(found)
        is_begun = at < schedule.begun
        if self.policy is not None:
            aim = "" if is_begun else schedule.aim_of(self.policy)
            turn = msgspec.structs.replace(turn, busy_policy=self.policy, aimed_at_turn_id=aim)
        if turn is not self.turn:
            work += Work((PutTurn(turn),))
        if self.parts is not None:
            message = msgspec.structs.replace(message, parts=self.parts, updated_at=now.at)
            # removed and written anew, so that no old part stays; then the files, which both versions may have
            changes = (RemoveMessage(message.message_id), *self.files, PutMessage(message))
            work += Work(changes, (NewEvent(MessageReplaced(message), turn.turn_id),))
        size = found.size_bytes if self.parts is None else None
        edited = Waiting(found.message_id, turn.header(), size, found.version + 1)
        rest, stays = schedule.without((found.message_id,)), is_begun or self.policy in (None, BusyPolicy.QUEUE)
        changed = rest.inserted(edited, at) if stays else rest.placed(edited)[0]
        return Decision(changed, work + changed.queue_ordered + self.further + changed.queue_changed, message)


class MoveWaiting(Struct, frozen=True):
    """Another position for a waiting message."""

    message_id: str
    before_message_id: str
    """"" moves it to the end."""
    further: Work
    """More work for the same commit."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule in the new order. Raises MessageNotWaiting."""
        moved = schedule.find(self.message_id)
        before = schedule.find(self.before_message_id) if self.before_message_id else None
        if before is moved or schedule.waiting.index(moved) < schedule.begun:
            changed = schedule
        else:
            rest = schedule.without((moved.message_id,))
            at = len(rest.waiting) if before is None else max(rest.waiting.index(before), schedule.begun)
            changed = msgspec.structs.replace(rest, waiting=(*rest.waiting[:at], moved, *rest.waiting[at:]))
        return Decision(changed, changed.queue_ordered + self.further + changed.queue_changed)


class RemoveWaiting(Struct, frozen=True):
    """The end of a waiting message, and of its turn."""

    waiting: Waiting
    """As it was when its message was read."""
    message: Message | None
    """The message if its turn is late: it goes back into the conversation."""
    further: Work
    """More work for the same commit."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule without it. Raises MessageNotWaiting, and Changed."""
        found = schedule.find_as_read(self.waiting)
        left = schedule.without((found.message_id,))
        back = self.message
        work = _dropping_work(found, now.at) if back is None else _returning_work(found, back, now.at)
        return Decision(left, work + self.further + left.queue_changed)


class WhenIdle(Struct, frozen=True):
    """A change of the conversation that may not happen during a turn."""

    work: Work

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the same schedule, and the work. Raises TurnInProgress."""
        if active := schedule.active_turn_id:
            raise TurnInProgress(f"turn {active!r} runs in the session", active)
        return Decision(schedule, self.work)


class AppendMessage(Struct, frozen=True):
    """A message that starts no turn, or the results of calls that no turn waits for."""

    work: Work
    results_version: int | None = None
    """The schedule's version before the calls that get results were read; None when no call gets one."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule, and the work, which takes the session out of the archive. Raises Changed."""
        work = self.work + schedule.marked(is_archived=False)
        if self.results_version is None:
            return Decision(schedule, work)
        if self.results_version != schedule.results_version:
            raise Changed
        return Decision(msgspec.structs.replace(schedule, results_version=schedule.results_version + 1), work)


class ChangeSettings(Struct, frozen=True):
    """Other settings of the session."""

    settings_version: int
    """The schedule's version before the settings were read."""
    changed: Session | None
    """The session with the new settings; None keeps them as they are."""
    further: Work
    """More work for the same commit."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule, the work that stores and reports the settings, and the session. Raises Changed."""
        if self.settings_version != schedule.settings_version:
            raise Changed
        if self.changed is None:
            return Decision(schedule, self.further)
        changed = msgspec.structs.replace(self.changed, updated_at=now.at)
        view = SessionView(changed, schedule.active_turn_id, schedule.entries, schedule.open_requests)
        work = Work((PutSession(changed),), (NewEvent(SessionUpdated(view)),)) + self.further
        later = msgspec.structs.replace(schedule, settings_version=schedule.settings_version + 1)
        return Decision(later, work, changed)


class ArchiveSession(Struct, frozen=True):
    """The session goes into the archive, or comes out of it."""

    is_archived: bool
    further: Work
    """More work for the same commit."""

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule, and the work, which has no effect if the session is already in that state."""
        later = msgspec.structs.replace(schedule, settings_version=schedule.settings_version + 1)
        return Decision(later, self.further + schedule.marked(is_archived=self.is_archived))


class NoteDeletion(Struct, frozen=True):
    """A deletion of the session begins, or is over, possibly because it failed."""

    has_begun: bool

    def decide(self, schedule: Schedule, now: Now) -> Decision[Schedule]:
        """Returns the schedule that counts it."""
        deletions = schedule.deletions + (1 if self.has_begun else -1)
        return Decision(msgspec.structs.replace(schedule, deletions=deletions))


_AT_ANY_TIME = (AcceptMessage, AppendMessage, ChangeSettings, ArchiveSession, ReturnMessage, NoteDeletion)
_WHILE_BUSY = (*_AT_ANY_TIME, AbortTurn, EditWaiting, MoveWaiting, RemoveWaiting)
_OVER: dict[type, frozenset[type]] = {EndTurn: frozenset({Between, Idle}), GiveUpTurn: frozenset({Between})}


def _staying(phase: type, commands: Iterable[type]) -> dict[type, frozenset[type]]:
    """Returns the transitions of commands that lead to no other phase."""
    return {command: frozenset({phase}) for command in commands}


TRANSITIONS: dict[type, dict[type, frozenset[type]]] = {
    Idle: {**_staying(Idle, (*_AT_ANY_TIME, WhenIdle)), AcceptMessage: frozenset({Asking})},
    Asking: {
        **_staying(Asking, (*_WHILE_BUSY, JoinTurn, AddAnswer)),
        EndStep: frozenset({Paused, Calling}),
        **_OVER,
    },
    Paused: {**_staying(Paused, _WHILE_BUSY), BeginStep: frozenset({Asking}), **_OVER},
    Calling: {**_staying(Calling, (*_WHILE_BUSY, ChangeCalls)), BeginStep: frozenset({Asking}), **_OVER},
    Between: {
        **_staying(Between, (*_WHILE_BUSY, DropMessage, LeaveOut)),
        BeginTurn: frozenset({Asking}),
        BecomeIdle: frozenset({Idle}),
    },
}
"""The commands that change anything in each phase, and the phases to which they lead. A test compares it with the
decisions, and docs/internals/phases.md is made from it."""


def leading_work(turn: Turn, now: datetime, question: Message, stands_in: str = "") -> Work:
    """Returns the work that leads the path to the message that a turn answers again, or before it for an edited form.

    Args:
        turn: The turn.
        now: When it begins.
        question: The message.
        stands_in: The waiting message that represents it and is removed; "" for none.
    """
    event = NewEvent(ConversationChanged(ConversationChange.ALTERNATIVE_SELECTED, None), turn.turn_id)
    if turn.user_message_id != turn.regenerates:
        return Work((SelectPath(turn.regenerates, PathEnd.BEFORE),), (event,))
    answered = msgspec.structs.replace(question, turn_id=turn.turn_id, updated_at=now)
    work = Work(
        (SelectPath(turn.regenerates, PathEnd.HERE), PutMessage(answered)),
        (event, NewEvent(MessageReplaced(answered), turn.turn_id)),
    )
    if not stands_in:
        return work
    return Work((RemoveMessage(stands_in),), (NewEvent(MessageRemoved(stands_in), turn.turn_id),)) + work


def _joining_work(turn: Turn, message: Message, running_turn_id: str, now: datetime) -> Work:
    """Returns the work that moves a message out of the queue into a running turn, and ends its own one."""
    joined = msgspec.structs.replace(message, status=MessageStatus.COMPLETE, updated_at=now)
    event = NewEvent(TurnSteered(joined.message_id, running_turn_id), running_turn_id)
    merged = msgspec.structs.replace(turn, merged_into_turn_id=running_turn_id)
    ended = end_turn(merged, (), Ending(FinishReason.MERGED), now)
    return Work((PutMessage(joined),), (event,)) + ended


def _dropping_work(waiting: Waiting, now: datetime) -> Work:
    """Returns the work that removes a waiting message and ends its turn, which never ran."""
    removed = NewEvent(MessageRemoved(waiting.message_id), waiting.turn.turn_id)
    return Work((RemoveMessage(waiting.message_id),), (removed,)) + _ending_work(waiting.turn, now)


def _returning_work(waiting: Waiting, message: Message, now: datetime) -> Work:
    """Returns the work that puts a waiting message back into the conversation and ends its turn, which never ran."""
    removed = NewEvent(MessageRemoved(waiting.message_id), waiting.turn.turn_id)
    back = msgspec.structs.replace(message, status=MessageStatus.COMPLETE, turn_id="")
    returned = Work((PutMessage(back, at_end=True),), (removed, NewEvent(MessageAdded(back))))
    return returned + _ending_work(waiting.turn, now)


def _ending_work(turn: Turn, now: datetime) -> Work:
    return end_turn(turn, (), Ending(FinishReason.ABORTED), now)
