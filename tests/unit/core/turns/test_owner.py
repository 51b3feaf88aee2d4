"""Places in a session: taken before a message is stored, used or given up, committed in their order."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta

import msgspec
import pytest

from tests.support.fakes.core import FakeProvider, FakeProviders, FakeStore, RecordingObserver, make_environment
from tests.support.fakes.domain_values import make_message, make_session, make_turn
from tests.support.fakes.loop import elapse, settled
from turnwire.core.turns.live import LeftTurns, TurnCounts
from turnwire.core.turns.owner import RETRY_SECONDS
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.waiting.places import Place
from turnwire.core.work import Work
from turnwire.domain.conversation.events import QueueChanged, SessionStatusChanged, TurnStarted
from turnwire.domain.conversation.messages import FinishReason, MessageStatus
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry, ToolDefinition, TurnStatus
from turnwire.domain.errors import SessionNotFound, ShuttingDown, StorageBusy, TooManyTurns, TurnInProgress
from turnwire.domain.limits import Limits
from turnwire.ports.commit import Committed, PutTurn
from turnwire.ports.provider import PreparedRequest, StepFinished, StreamItem, TextDelta

SESSIONS: dict[str, Session] = {"ses_1": make_session()}


def _turns(store: FakeStore | None = None, max_queued: int = 100) -> Turns:
    """Returns the turns of sessions whose model never answers."""
    store = store or FakeStore(sessions_by_id=SESSIONS)
    settings = {"limits": Limits(max_queued_messages=max_queued)}
    return Turns(make_environment(store, FakeProviders(FakeProvider([None])), settings=settings))


def _send(turns: Turns, name: str, when_busy: BusyPolicy = BusyPolicy.QUEUE) -> tuple[Place, "asyncio.Future[object]"]:
    turn = make_turn(f"trn_{name}", user_message_id=f"msg_{name}")
    with turns.reserve(turn, make_message(f"msg_{name}"), when_busy) as place:
        storing = turns.start(place, Work((PutTurn(place.turn),)) + place.work)
    return place, storing


async def test_the_first_message_starts_and_the_next_ones_wait() -> None:
    """What the place says of it holds for the commit: status, position, and what watchers are told."""
    turns = _turns()
    first, _ = _send(turns, "a")
    second, _ = _send(turns, "b")
    third, _ = _send(turns, "c")
    assert (first.turn.status, first.message.status, first.queue_position) == (
        TurnStatus.RUNNING,
        MessageStatus.COMPLETE,
        0,
    )
    assert [event.kind for event in first.work.events] == [SessionStatusChanged(True), TurnStarted(first.turn)]
    assert (second.turn.status, second.message.status, second.queue_position) == (
        TurnStatus.QUEUED,
        MessageStatus.QUEUED,
        1,
    )
    assert [event.kind for event in third.work.events] == [
        QueueChanged((QueueEntry("msg_b", "trn_b"), QueueEntry("msg_c", "trn_c")))
    ]
    await turns.aclose()


async def test_a_message_is_left_on_disk_as_soon_as_it_is_stored() -> None:
    """Its place keeps neither its content nor its tools, whether it waits or its turn runs."""
    store = FakeStore(automatic=False, sessions_by_id=SESSIONS)
    turns = _turns(store)
    places = []
    for name in "ab":
        tools = (ToolDefinition("look", "x" * 10_000, ""),)
        turn = make_turn(f"trn_{name}", user_message_id=f"msg_{name}", tools=tools, system="x" * 10_000)
        with turns.reserve(turn, make_message(f"msg_{name}", "x" * 10_000), BusyPolicy.QUEUE) as place:
            turns.start(place, Work((PutTurn(place.turn),)) + place.work)
        places.append(place)
    assert all(place.turn.tools for place in places)
    for future in store.futures:
        future.set_result(Committed(0, 1))
    store.automatic = True
    await settled()
    assert all(len(msgspec.json.encode((place.turn, place.message, place.work))) < 2000 for place in places)
    await turns.aclose()


async def test_commits_have_the_order_of_their_places() -> None:
    """However many callers come at once."""
    store = FakeStore(sessions_by_id=SESSIONS)
    turns = _turns(store)

    async def send(name: str) -> int:
        place, storing = _send(turns, name)
        await asyncio.shield(storing)
        return place.queue_position

    positions = await asyncio.gather(*(send(str(i)) for i in range(20)))
    stored = [change.turn for commit in store.commits for change in commit.changes if isinstance(change, PutTurn)]
    assert positions == list(range(20))
    assert [turn.turn_id for turn in stored][:20] == [f"trn_{i}" for i in range(20)]
    await turns.aclose()


async def test_a_place_that_is_not_used_is_given_up() -> None:
    """Whatever goes wrong before the commit: an idle session stays idle, a queue is as it was."""
    turns = _turns()
    with pytest.raises(ZeroDivisionError), turns.reserve(make_turn(), make_message("msg_user"), BusyPolicy.QUEUE):
        raise ZeroDivisionError
    assert turns.live("ses_1") is None
    first, _ = _send(turns, "a")
    with (
        pytest.raises(asyncio.CancelledError),
        turns.reserve(make_turn("trn_b"), make_message("msg_b"), BusyPolicy.QUEUE),
    ):
        raise asyncio.CancelledError
    last, _ = _send(turns, "c")
    assert (first.queue_position, last.queue_position) == (0, 1)
    assert [event.kind for event in last.work.events] == [QueueChanged((QueueEntry("msg_c", "trn_c"),))]
    await turns.aclose()


async def test_places_are_taken_one_at_a_time() -> None:
    """A second one in between would be committed out of order."""
    turns = _turns()
    with turns.reserve(make_turn("trn_a"), make_message("msg_a"), BusyPolicy.QUEUE) as place:
        with pytest.raises(RuntimeError):
            _send(turns, "b")
        turns.start(place, Work((PutTurn(place.turn),)) + place.work)
    assert _send(turns, "b")[0].queue_position == 1
    await turns.aclose()


async def test_a_busy_session_refuses_who_does_not_want_to_wait() -> None:
    """And everybody once its queue is full; nothing is stored, no place is taken."""
    store = FakeStore(sessions_by_id=SESSIONS)
    turns = _turns(store, max_queued=1)
    assert _send(turns, "a", BusyPolicy.REJECT)[0].queue_position == 0
    with pytest.raises(TurnInProgress):
        _send(turns, "b", BusyPolicy.REJECT)
    assert _send(turns, "b")[0].queue_position == 1
    with pytest.raises(TooManyTurns):
        _send(turns, "c")
    assert len(store.commits) == 2
    await turns.aclose()


async def test_a_session_that_is_being_deleted_takes_no_message() -> None:
    """Until each of its deletions is over, for one may fail; other sessions go on."""
    turns = _turns()
    for _ in range(2):
        turns.refuse_messages("ses_1")
    turns.refuse_messages("ses_2")
    for _ in range(2):
        with pytest.raises(SessionNotFound):
            _send(turns, "a")
        turns.accept_messages("ses_1")
    assert _send(turns, "a")[0].queue_position == 0
    await turns.aclose()


async def test_a_place_whose_message_could_not_be_stored_is_given_up() -> None:
    """Also when its caller is gone and nobody sees the error."""
    store = FakeStore(automatic=False, sessions_by_id=SESSIONS)
    turns = _turns(store)
    _send(turns, "a")
    _, storing = _send(turns, "b")
    store.futures[1].set_exception(StorageBusy("busy"))
    await asyncio.wait((storing,))
    view = turns.view(SESSIONS["ses_1"])
    assert view.queue == ()
    store.futures[0].set_result(Committed(0, 1))
    store.automatic = True
    await turns.aclose()


class AnswersOnce(FakeProvider):
    """Answers the first request and no other."""

    async def stream(self, prepared: PreparedRequest) -> AsyncGenerator[StreamItem]:
        """Yields the end of an answer, or waits for ever."""
        self._items = [None] if self.requests else [StepFinished(FinishReason.STOP, "")]
        async for item in super().stream(prepared):
            yield item


async def test_an_abort_while_one_turn_follows_the_other_leaves_none() -> None:
    """Whichever of them runs at that moment, it ends, and nothing waits any more."""
    for steps in range(40):
        turns = Turns(make_environment(FakeStore(sessions_by_id=SESSIONS), FakeProviders(AnswersOnce([]))))
        _send(turns, "a")
        _send(turns, "b")
        for _ in range(steps):
            await asyncio.sleep(0)
        aborting = asyncio.create_task(turns.abort("ses_1", "", keep_queue=False))
        await settled()
        assert (aborting.done(), turns.live("ses_1")) == (True, None), steps


async def test_a_view_shows_only_messages_that_are_stored() -> None:
    """One that is on its way may fail; when it is stored, its event tells it."""
    store = FakeStore(automatic=False, sessions_by_id=SESSIONS)
    turns = _turns(store)
    _send(turns, "a")
    _, storing = _send(turns, "b")
    assert turns.view(SESSIONS["ses_1"]).queue == ()
    store.futures[1].set_result(Committed(1, 2))
    await asyncio.wait((storing,))
    assert turns.view(SESSIONS["ses_1"]).queue == (QueueEntry("msg_b", "trn_b"),)
    store.futures[0].set_result(Committed(0, 1))
    store.automatic = True
    await turns.aclose()


async def test_turns_are_reported_when_they_run_and_when_their_end_is_stored() -> None:
    """Each once; a message that is dropped from the queue ends a turn that never ran."""
    store, observer = FakeStore(sessions_by_id=SESSIONS), RecordingObserver()
    turns = Turns(make_environment(store, FakeProviders(FakeProvider([None])), observer=observer))
    _send(turns, "a")
    _send(turns, "b")
    await settled()
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
    store, observer = FakeStore(automatic=False, sessions_by_id=SESSIONS), RecordingObserver()
    provider = FakeProvider([StepFinished(FinishReason.STOP, "stop")])
    turns = Turns(make_environment(store, FakeProviders(provider), observer=observer))
    _send(turns, "a")
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
    for name in "abc":
        _send(turns, name)
    await settled()
    assert await turns.aclose() == LeftTurns(running=1, queued=2)


async def test_a_turn_whose_end_the_stop_has_no_time_for_is_left() -> None:
    """It has not ended, and the next start ends it."""
    store, observer = FakeStore(sessions_by_id=SESSIONS), RecordingObserver()
    providers = FakeProviders(FakeProvider([TextDelta(0, "so far"), None]))
    turns = Turns(make_environment(store, providers, observer=observer))
    _send(turns, "a")
    await settled()
    store.automatic = False
    closing = asyncio.create_task(turns.aclose())
    while not closing.done():
        for waiting in (one for one in store.futures if not one.done()):
            waiting.set_exception(ShuttingDown())
        await asyncio.sleep(0)
    assert await closing == LeftTurns(running=1, queued=0)
    assert [what for what, _ in observer.turns] == ["started"]
