"""Draws what happens: each rule is one thing that a client does, or that befalls the server."""

import asyncio
import itertools
import tempfile
import traceback
from collections import Counter
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from opencode.message.content_pb2 import MESSAGE_TYPE_ASSISTANT, MESSAGE_TYPE_HOST, MESSAGE_TYPE_USER, SessionMessage
from opencode.message.message_pb2 import AppendMessageRequest, SendMessageRequest
from opencode.session.session_pb2 import (
    ClearSessionRequest,
    CreateSessionRequest,
    ForkSessionRequest,
    RestoreSessionRequest,
    RevertSessionRequest,
)
from opencode.turn.turn_pb2 import (
    BUSY_POLICY_INTERRUPT,
    BUSY_POLICY_QUEUE,
    BUSY_POLICY_REJECT,
    BUSY_POLICY_STEER,
    BusyPolicy,
    TurnSettings,
)
from opencode.turn.turn_service_pb2 import (
    EditQueuedMessageRequest,
    ListAlternativesRequest,
    MoveQueuedMessageRequest,
    RegenerateMessageRequest,
    RemoveQueuedMessageRequest,
    SelectAlternativeRequest,
    StartTurnRequest,
)
from tests.support.clients.conversation import change_of, messages_of, model, model_name, text, tool
from tests.support.delivery.crowd import MOVED_ON
from tests.support.delivery.promises import Named
from tests.support.delivery.readers import Reader
from tests.support.delivery.town import Backup, Town
from tests.support.models.odd_answers import STATUSES, Reply
from tests.support.models.scripts import Call, Refuse, Say, Think
from tests.support.servers.world_models import MODELS
from turnwire.providers.request.wire_names import wire_name

NOWHERE = "ses_nowhere"
"""The id of nothing. A bundle gets something in each run of the same steps, whatever became of them."""

ACTION_SECONDS = 120.0
"""Time after which an action counts as hanging."""

TOOLS = (tool("look"), tool("risky"))

T = TypeVar("T")

numbers = st.integers(0, 7)
policies = st.sampled_from(
    (BUSY_POLICY_QUEUE, BUSY_POLICY_QUEUE, BUSY_POLICY_STEER, BUSY_POLICY_INTERRUPT, BUSY_POLICY_REJECT)
)
pieces = st.one_of(
    st.builds(Say, st.sampled_from(("hi", "more words", "héllo 🎈 " * 40, "\n"))),
    st.builds(Call, st.sampled_from(("look", "look", "risky", wire_name("ask.paint"))), st.just('{"what": "it"}')),
    st.builds(Think, st.sampled_from(("hm", "let me see"))),
    st.builds(Refuse, st.just("No.")),
)
replies = st.builds(
    Reply,
    st.lists(pieces, min_size=1, max_size=3).map(tuple),
    st.sampled_from(("",) * 4 + ("held",) * 4 + ("cut", "failed", "length", "paused")),
    numbers,
    st.sampled_from((200,) * 12 + STATUSES),
)
calling = st.builds(
    Reply,
    st.sampled_from(
        (
            (Say("words " * 200),),
            (Say("look"), Call("look", '{"what": "it"}')),
            (Call("look", "{}"), Call("risky", "{}", "call_2")),
            (Think("hm"), Say("done")),
        )
    ),
    st.sampled_from(("", "", "held")),
    numbers,
)
scripts = st.lists(replies, max_size=3)
rests = st.sampled_from((True, True, False))
"""Whether the next thing happens only when the sessions have come to rest: mostly, so that a failure comes again."""

BUSY = frozenset({"TURN_IN_PROGRESS", "STALE_VERSION"})
OFF_PATH = frozenset({"MESSAGE_NOT_FOUND", "INVALID_REQUEST", "TURN_IN_PROGRESS", "TURN_EXISTS"})


class Delivery(RuleBasedStateMachine):
    """Rules of the actions that may happen. Runs in a thread; all else is on `loop`, in the thread of the test."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    folder: ClassVar[Path]
    failure: ClassVar[str] = ""
    """Description of the first failure, in case that it does not come again."""
    counts: ClassVar[Counter[str]] = Counter()
    """Counts of actions and observations in all runs that ended, for reports."""

    sessions = Bundle("sessions")
    requests = Bundle("requests")
    backups = Bundle("backups")

    def __init__(self) -> None:
        """Makes the town; the server starts with the first step."""
        super().__init__()
        self._names = itertools.count(1)
        self._broken = False
        self._began = False
        self._story: list[str] = []
        self.town = Town(Path(tempfile.mkdtemp(dir=self.folder)))

    def _do(self, action: Coroutine[Any, Any, T]) -> T:
        self._story.append(_told(action))
        try:
            return asyncio.run_coroutine_threadsafe(_bounded(action), self.loop).result()
        except BaseException as error:
            self._broken = True
            machine = type(self)
            if not machine.failure:
                found = traceback.format_exc()
                told = asyncio.run_coroutine_threadsafe(self.town.world.told(), self.loop).result()
                machine.failure = "\n".join([*self._story, found, told])
            if isinstance(error, CancelledError):  # else nobody would be told
                raise AssertionError("what was done was cancelled") from error
            raise

    @initialize(
        target=sessions,
        retained=st.sampled_from((10_000, 10_000, 60)),
        asks_people=st.sampled_from((False,) * 6 + (True,)),
        with_list=st.booleans(),
    )
    def begin(self, retained: int, asks_people: bool, with_list: bool) -> Any:
        """The server starts; there are two sessions, each with a reader, and a reader of all."""
        self._began = True
        self._do(self.town.start(retained=retained, asks_people=asks_people))
        self._do(self.town.watch_all())
        made = [self._made_session(1) for _ in range(2)]
        for session in made:
            self._do(self.town.watch(session, with_list=with_list, deltas=True))
        return multiple(*made)

    def teardown(self) -> None:
        """Lets everything come to its end and compares all; then the doctor looks at the database."""
        if not self._began:
            return
        try:
            if not self._broken:
                self._do(self.town.settle())
                self._do(self.town.stop_for_good())
                self.counts.update(self.town.counts, runs=1)
        finally:
            self._do(self.town.close())

    @invariant()
    def nothing_is_wrong(self) -> None:
        """No reader has found anything, and the server has logged no failure of its own."""
        if self._began and not self._broken:
            self._do(self.town.look())

    def _name(self) -> str:
        return f"name-{next(self._names)}"

    # Sessions and readers.

    @rule(target=sessions, times=st.integers(1, 3))
    def new_session(self, times: int) -> Any:
        """A client makes a session, and may send the request again."""
        return self._made_session(times)

    def _made_session(self, times: int) -> str:
        request = CreateSessionRequest(request_id=self._name())
        named = Named("sessions.CreateSession", request, "", "id")
        self._do(self.town.ask(named, times))
        return named.made

    @rule(session=sessions, with_list=st.booleans(), deltas=st.sampled_from((True, True, False)))
    def watch(self, session: str, with_list: bool, deltas: bool) -> None:
        """A client begins to watch a session, with the list or from the first event."""
        self._do(self.town.watch(session, with_list=with_list, deltas=deltas))

    @rule(which=numbers, lags=st.booleans())
    def lag(self, which: int, lags: bool) -> None:
        """A client stops reading, or goes on."""
        self._do(self.town.lag(self._reader(which), lags))

    @rule(which=numbers, back=st.one_of(st.none(), numbers), fails=st.sampled_from((False, False, False, True)))
    def come_back(self, which: int, back: int | None, fails: bool) -> None:
        """A client leaves, if it still watches, and comes back where it was, or at any place that it ever had."""
        self._do(self.town.come_back(self._reader(which), back, fails=fails))

    def _reader(self, which: int) -> Reader:
        return self.town.readers[which % len(self.town.readers)]

    # Messages.

    @rule(
        target=requests,
        session=sessions,
        script=scripts,
        chosen=st.sampled_from(MODELS),
        policy=policies,
        times=st.sampled_from((1, 1, 2, 5)),
        streams=st.sampled_from((False, False, True)),
        waits=rests,
    )
    def send(
        self, session: str, script: list[Reply], chosen: Any, policy: Any, times: int, streams: bool, waits: bool
    ) -> Named:
        """A user says something; a client that lost the answer sends it again, and again."""
        named = self._message(session, script, chosen, policy)
        self._do(self.town.stream(named) if streams else self.town.ask(named, times))
        self._rest(waits)
        return named

    @rule(target=requests, session=sessions, script=st.lists(calling, min_size=1, max_size=2), waits=rests)
    def say(self, session: str, script: list[Reply], waits: bool) -> Named:
        """A plain message, whose answer is long, is held back or calls a tool."""
        named = self._message(session, script, MODELS[0], BUSY_POLICY_QUEUE)
        self._do(self.town.ask(named))
        self._rest(waits)
        return named

    @rule(
        target=requests,
        session=sessions,
        scripts=st.lists(scripts, min_size=2, max_size=4),
        chosen=st.sampled_from(MODELS),
        policy=policies,
    )
    def send_many(self, session: str, scripts: list[list[Reply]], chosen: Any, policy: Any) -> Any:
        """Several users speak in the same moment."""
        several = [self._message(session, script, chosen, policy) for script in scripts]
        self._do(self.town.ask_all(several))
        return multiple(*several)

    @rule(
        target=requests,
        session=sessions,
        script=scripts,
        chosen=st.sampled_from(MODELS),
        policy=policies,
        count=st.integers(1, 3),
        acknowledged=st.integers(0, 2),
    )
    def send_and_die(
        self, session: str, script: list[Reply], chosen: Any, policy: Any, count: int, acknowledged: int
    ) -> Any:
        """The server is killed while messages come, as soon as so many are acknowledged."""
        several = [self._message(session, script, chosen, policy) for _ in range(count)]
        self._do(self.town.ask_and_die(several, min(acknowledged, count)))
        return multiple(*several)

    @rule(named=requests, times=st.integers(1, 3), waits=rests)
    def send_again(self, named: Named, times: int, waits: bool) -> None:
        """A client sends again what it sent before, whatever happened since."""
        self._do(self.town.ask(named, times))
        self._rest(waits)

    @rule(target=requests, session=sessions, kind=st.sampled_from((MESSAGE_TYPE_HOST, MESSAGE_TYPE_USER)))
    def append(self, session: str, kind: Any) -> Named:
        """A message is stored without a turn."""
        words = self._words([])
        request = AppendMessageRequest(session_id=session, type=kind, parts=[text(words)], request_id=self._name())
        named = Named("messages.AppendMessage", request, session, "message_id", words)
        self._do(self.town.ask(named))
        return named

    def _message(
        self, session: str, script: list[Reply], chosen: tuple[str, str], policy: "BusyPolicy.ValueType"
    ) -> Named:
        words = self._words(script)
        request = SendMessageRequest(
            session_id=session,
            parts=[text(words)],
            model=model(chosen[1], chosen[0]),
            tools=TOOLS,
            busy_policy=policy,
            request_id=self._name(),
        )
        refusals = frozenset({"TURN_IN_PROGRESS"} if policy == BUSY_POLICY_REJECT else ())
        return Named("messages.SendMessage", request, session, "message_id", words, refusals)

    def _words(self, script: list[Reply]) -> str:
        return self.town.world.answers.mark("words", script)

    def _rest(self, waits: bool) -> None:
        if waits:
            self._do(self.town.rest())

    # What turns wait for.

    @rule(number=numbers, waits=rests)
    def let_go(self, number: int, waits: bool) -> None:
        """An answer that was held back comes."""
        self.loop.call_soon_threadsafe(self.town.crowd.let_go, number)
        self._rest(waits)

    @rule(session=sessions, number=numbers, how=st.sampled_from(("alone", "at once", "leased")), waits=rests)
    def answer_tool(self, session: str, number: int, how: str, waits: bool) -> None:
        """A client has run its tool; or two have."""
        self._do(self.town.act(self.town.crowd.answer_tool(session, number, how)))
        self._rest(waits)

    @rule(session=sessions, number=numbers, response=st.sampled_from(("once", "always", "reject")), waits=rests)
    def answer_permission(self, session: str, number: int, response: str, waits: bool) -> None:
        """A person was asked."""
        self._do(self.town.act(self.town.crowd.answer_permission(session, number, response)))
        self._rest(waits)

    @rule(session=sessions, number=numbers, waits=rests)
    def answer_question(self, session: str, number: int, waits: bool) -> None:
        """A tool has asked a person."""
        self._do(self.town.act(self.town.crowd.answer_question(session, number)))
        self._rest(waits)

    @rule(session=sessions, keep_queue=st.booleans(), waits=rests)
    def abort(self, session: str, keep_queue: bool, waits: bool) -> None:
        """A user has read enough."""
        self._do(self.town.act(self.town.crowd.abort(session, keep_queue=keep_queue)))
        self._rest(waits)

    # What changes a conversation.

    @rule(
        session=sessions,
        how=st.sampled_from(("edit", "move", "remove")),
        number=numbers,
        other=numbers,
        policy=policies,
    )
    def change_the_queue(self, session: str, how: str, number: int, other: int, policy: Any) -> None:
        """A user thinks better of a message that waits."""
        waiting = self._do(self.town.crowd.waiting(session))
        if not waiting:
            return
        ids = {"session_id": session, "message_id": waiting[number % len(waiting)], "request_id": self._name()}
        crowd = self.town.crowd
        if how == "remove":
            crowd.note_dropped(session)
            call = crowd.change("turns.RemoveQueuedMessage", RemoveQueuedMessageRequest(**ids), MOVED_ON)
        elif how == "edit":
            crowd.note_edited(session, ids["message_id"])
            policy = policy if policy != BUSY_POLICY_REJECT else BUSY_POLICY_QUEUE
            request = EditQueuedMessageRequest(parts=[text(self._words([]))], busy_policy=policy, **ids)
            call = crowd.change("turns.EditQueuedMessage", request, MOVED_ON | crowd.refusals_of(request))
        else:
            before = waiting[other % len(waiting)]
            ids["before_message_id"] = before if before != ids["message_id"] else ""
            call = crowd.change("turns.MoveQueuedMessage", MoveQueuedMessageRequest(**ids), MOVED_ON)
        self._do(self.town.act(call))

    @rule(
        target=requests,
        session=sessions,
        number=numbers,
        script=scripts,
        edits=st.booleans(),
        chosen=st.sampled_from(MODELS),
        policy=st.sampled_from((BUSY_POLICY_QUEUE, BUSY_POLICY_INTERRUPT, BUSY_POLICY_REJECT)),
        waits=rests,
    )
    def regenerate(
        self, session: str, number: int, script: list[Reply], edits: bool, chosen: Any, policy: Any, waits: bool
    ) -> Any:
        """A user wants another answer, or asks in other words."""
        message = self._one_of(session, number, MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT)
        request = RegenerateMessageRequest(
            session_id=session,
            message_id=NOWHERE if message is None else message.message_id,
            new_parts=[text(self._words(script))] if edits else [],
            settings=TurnSettings(model=model_name(chosen[1], chosen[0]), tools=TOOLS),
            busy_policy=policy,
            request_id=self._name(),
        )
        self.town.crowd.note_dropped(session)  # a copy that waits for its turn goes when it begins
        named = Named("turns.RegenerateMessage", request, session, "turn.turn_id", refusals=OFF_PATH)
        self._do(self.town.ask(named))
        self._rest(waits)
        return named

    @rule(session=sessions, number=numbers, other=numbers)
    def select(self, session: str, number: int, other: int) -> None:
        """A user looks at another alternative."""
        message = self._one_of(session, number, MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT, alternatives=True)
        if message is None:
            return
        listing = ListAlternativesRequest(session_id=session, message_id=message.message_id)
        listed = self._do(self.town.crowd.change("turns.ListAlternatives", listing, MOVED_ON))
        if listed is None or not listed.messages:
            return
        chosen = listed.messages[other % len(listed.messages)].message_id
        request = SelectAlternativeRequest(session_id=session, message_id=chosen, request_id=self._name())
        self._do(self.town.act(self.town.crowd.change("turns.SelectAlternative", request, BUSY | OFF_PATH)))

    @rule(session=sessions, number=numbers, policy=policies, waits=rests)
    def start_turn(self, session: str, number: int, policy: Any, waits: bool) -> None:
        """A message that is stored already is to be answered."""
        message = self._one_of(session, number, MESSAGE_TYPE_USER)
        if message is not None:
            request = StartTurnRequest(
                session_id=session, user_message_id=message.message_id, busy_policy=policy, request_id=self._name()
            )
            request.settings.model.CopyFrom(model_name("gpt-5", "responses"))
            reasons = OFF_PATH
            self._do(self.town.act(self.town.crowd.change("turns.StartTurn", request, reasons)))
            self._rest(waits)

    @rule(session=sessions, number=numbers, how=st.sampled_from(("clear", "revert", "restore", "restore")))
    def rewind(self, session: str, number: int, how: str) -> None:
        """A user takes messages back, or brings them back."""
        ids = {"session_id": session, "request_id": self._name()}
        crowd = self.town.crowd
        if how == "clear":
            call = crowd.change("sessions.ClearSession", ClearSessionRequest(**ids), BUSY)
        elif how == "restore":
            reasons = BUSY | {"NOTHING_TO_RESTORE"}
            call = crowd.change("sessions.RestoreSession", RestoreSessionRequest(**ids), reasons)
        else:
            message = self._one_of(session, number, MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT)
            if message is None:
                return
            request = RevertSessionRequest(before_message_id=message.message_id, **ids)
            call = crowd.change("sessions.RevertSession", request, OFF_PATH)
        self._do(self.town.act(call))

    @rule(session=sessions, count=st.sampled_from((1, 1, 30)))
    def rename(self, session: str, count: int) -> None:
        """A session gets another title, many times: places get old."""
        for number in range(count):
            change = change_of(session, title=f"Title {number}")
            self._do(self.town.act(self.town.crowd.change("sessions.UpdateSession", change, ())))

    @rule(target=sessions, session=sessions, number=st.one_of(st.none(), numbers))
    def fork(self, session: str, number: int | None) -> Any:
        """A user goes on with a copy."""
        request = ForkSessionRequest(session_id=session, request_id=self._name())
        if number is not None:
            through = self._one_of(session, number, MESSAGE_TYPE_USER, MESSAGE_TYPE_ASSISTANT)
            request.through_message_id = NOWHERE if through is None else through.message_id
        named = Named("sessions.ForkSession", request, session, "session.id", refusals=OFF_PATH)
        self._do(self.town.ask(named, 2))
        return named.made or NOWHERE

    @rule(session=sessions)
    def delete(self, session: str) -> None:
        """A session is deleted; what is sent to it after that is refused."""
        if len(self.town.ledger.there()) > 1:
            self._do(self.town.act(self.town.crowd.delete(session)))

    def _one_of(self, session: str, number: int, *kinds: int, alternatives: bool = False) -> SessionMessage | None:
        """Returns one of the newest messages of these types that are listed."""
        if session not in self.town.ledger.there():
            return None
        messages = self._do(messages_of(self.town.world.client, session))
        found = [m for m in messages if m.type in kinds and (m.alternative_count > 1 or not alternatives)]
        return found[-1 - number % len(found)] if found else None

    # What befalls the server.

    @rule(how=st.sampled_from(("kill", "kill", "stop", "")), waits=rests)
    def restart(self, how: str, waits: bool) -> None:
        """The server is killed, or stopped in order, and starts again; or nothing happens."""
        if how:
            self._do(self.town.restart(killed=how == "kill"))
        self._rest(waits)

    @rule(target=backups)
    def back_up(self) -> Backup:
        """The operator makes a backup while the server works."""
        return self._do(self.town.back_up())

    @rule(backup=backups, killed=st.booleans(), waits=rests)
    def restore(self, backup: Backup, killed: bool, waits: bool) -> None:
        """The operator puts a backup in the place of the database."""
        self._do(self.town.restore(backup, killed=killed))
        self._rest(waits)

    @rule(which=numbers)
    def leave(self, which: int) -> None:
        """A client leaves for good, unless it is one of the first."""
        if len(self.town.readers) > 3:
            self._do(self.town.leave(self._reader(which)))

    @rule(all_ends=st.sampled_from((False, False, False, True)))
    def settle(self, all_ends: bool) -> None:
        """The sessions come to rest; or all that waits is answered and comes to its end, and everything is compared."""
        self._do(self.town.settle() if all_ends else self.town.rest())


async def _bounded(action: Coroutine[Any, Any, T]) -> T:
    """Carries an action out. One that takes too long fails, and says where all tasks are."""
    task = asyncio.ensure_future(action)
    await asyncio.wait((task,), timeout=ACTION_SECONDS)
    if not task.done():
        where = StringIO()
        for one in asyncio.all_tasks():
            one.print_stack(file=where)
        task.cancel()
        raise AssertionError(f"it hangs: {where.getvalue()}")
    try:
        return task.result()
    except TimeoutError as error:  # whose traceback would be lost on the way to the other thread
        raise AssertionError("it took too long") from error


def _told(action: Coroutine[Any, Any, Any]) -> str:
    """Returns what is about to be done, in a line."""
    frame = action.cr_frame
    given = {name: value for name, value in (frame.f_locals if frame else {}).items() if name != "self"}
    if isinstance(inner := given.get("action"), Coroutine):
        return _told(inner)
    return f"{action.__qualname__}({given!s:.400})".replace("\n", " ")
