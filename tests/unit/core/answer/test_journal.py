"""Saving behind the stream: ended parts soon, growing text within the interval, nothing lost by a failed save."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from tests.support.fakes.core import FakeStore, ManualClock, make_environment
from tests.support.fakes.domain_values import NOW, make_answer
from tests.support.fakes.loop import begun, cancelled, elapse, settled
from turnwire.core.answer.journal import ENDED_SECONDS, StepJournal
from turnwire.core.answer.message_stream import MessageStream
from turnwire.domain.conversation.events import PartFinished
from turnwire.domain.conversation.messages import (
    Draft,
    DraftPart,
    MessageStatus,
    Part,
    PartStatus,
    ToolStatus,
    ToolUse,
    texts_of,
    with_drafts,
)
from turnwire.domain.errors import StorageBusy
from turnwire.domain.limits import Limits
from turnwire.ports.commit import Commit, Committed, NewEvent, PutDraft
from turnwire.ports.provider import PartEnded, StreamItem, TextDelta, ToolCallDelta


class Checks:
    """Checks calls when it is told to: the call "fly" cannot run."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.begun: list[str] = []

    async def __call__(self, call: ToolUse) -> str:
        """Returns what is wrong, once it may."""
        self.begun.append(call.name)
        await self.may_go_on.wait()
        if call.name == "break":
            raise RuntimeError("a bug")
        return "no such tool" if call.name == "fly" else ""


class Step:
    """A stream with its journal over a store that waits to be told."""

    def __init__(self, interval: timedelta = timedelta(hours=1)) -> None:
        self.store = FakeStore(automatic=False)
        self.clock = ManualClock()
        environment = make_environment(
            self.store, clock=self.clock, settings={"limits": Limits(flush_interval_seconds=interval.total_seconds())}
        )
        message = make_answer("msg_1", status=MessageStatus.STREAMING)
        self.stream = MessageStream(message, lambda _: None, environment.new_id, Limits())
        self.checks = Checks()
        self.journal = StepJournal(environment, "default", self.stream, self.checks)

    def take(self, *items: StreamItem) -> None:
        """Applies items as the turn runner does."""
        for item in items:
            self.stream.apply(item)
            self.journal.note_change()

    def drafts(self) -> list[Draft]:
        """Returns what each commit saved."""
        changes = [change for commit in self.store.commits for change in commit.changes]
        return [change.draft for change in changes if isinstance(change, PutDraft)]

    def saved_parts(self) -> list[tuple[int, ...]]:
        """Returns which parts each commit wrote."""
        return [tuple(one.part.index for one in draft.parts) for draft in self.drafts()]

    def told(self) -> list[Part]:
        """Returns the parts whose end was told."""
        events = [event.kind for commit in self.store.commits for event in commit.events]
        return [event.part for event in events if isinstance(event, PartFinished)]

    async def all_stored(self, ending: asyncio.Task[None]) -> None:
        """Lets every commit become durable until a task has ended."""
        while not ending.done():
            for number, future in enumerate(self.store.futures):
                if not future.done():
                    future.set_result(Committed(number, number + 1))
            await asyncio.sleep(0)
        await ending

    async def stored(self, index: int = -1) -> None:
        """Lets one commit become durable."""
        self.store.futures[index].set_result(Committed(0, 1))
        await settled()

    async def failed(self, index: int = -1) -> None:
        """Lets one commit fail."""
        self.store.futures[index].set_exception(StorageBusy("busy"))
        await settled()


SOON = timedelta(seconds=ENDED_SECONDS)


async def test_an_ended_part_is_saved_soon_with_its_event() -> None:
    """One commit: the part and the fact; other parts that grew go with it."""
    step = Step()
    step.clock.advance(3)
    step.take(TextDelta(0, "a"), TextDelta(1, "b"))
    assert step.store.commits == []
    step.take(PartEnded(0))
    assert step.store.commits == []
    await elapse(SOON)
    message = step.stream.snapshot()
    draft, ended = Draft(step.stream.message, tuple(map(DraftPart, message.parts))), message.parts[0]
    changes, events = (PutDraft(draft),), (NewEvent(PartFinished("msg_1", ended), "trn_1"),)
    assert step.store.commits == [Commit(session_id="ses_1", at=step.clock.now, changes=changes, events=events)]
    assert (message.updated_at, message.created_at) == (step.clock.now, NOW)
    await step.stored()
    await step.journal.settle()


async def test_growing_text_is_saved_within_the_interval() -> None:
    """Without an event, once for all that came meanwhile."""
    step = Step(timedelta(milliseconds=1))
    step.take(*[TextDelta(0, letter) for letter in "hello"])
    assert step.store.commits == []
    await elapse(timedelta(milliseconds=1))
    draft = Draft(step.stream.message, (DraftPart(step.stream.part(0)),))
    assert step.store.commits == [Commit(session_id="ses_1", at=NOW, changes=(PutDraft(draft),))]
    await step.stored()
    await step.journal.settle()


async def test_text_is_saved_at_most_a_quarter_early() -> None:
    """The intervals of all streams end at common moments, so that saves meet; a stream is not written without need."""
    step = Step(timedelta(seconds=100))
    step.take(TextDelta(0, "a"))
    await elapse(timedelta(seconds=70))
    assert step.store.commits == []
    await elapse(timedelta(seconds=30))
    await step.stored()
    assert step.saved_parts() == [(0,)]
    await step.journal.settle()


async def test_a_save_has_what_is_new() -> None:
    """Text, and arguments of a call, behind what the drafts before have; after a save that failed, all of it."""
    step = Step(timedelta(seconds=0.2))
    step.take(TextDelta(0, "ä"), ToolCallDelta(1, "look", "c1", "{"))
    await elapse(timedelta(seconds=0.2))
    await step.stored()
    step.take(TextDelta(0, "bc"), ToolCallDelta(1, "", "", "}"))
    await elapse(timedelta(seconds=0.2))
    await step.failed()
    step.take(TextDelta(0, "d"))
    await elapse(timedelta(seconds=0.2))
    await step.stored()
    step.take(ToolCallDelta(1, "", "", "]"))
    await elapse(timedelta(seconds=0.2))
    await step.stored()
    saved = [[(one.continues, texts_of(one.part).text) for one in draft.parts] for draft in step.drafts()]
    assert saved == [
        [(False, "ä"), (False, "{")],
        [(True, "bc"), (True, "}")],
        [(False, "äbcd"), (False, "{}")],
        [(True, "]")],
    ]
    stored = [draft for number, draft in enumerate(step.drafts()) if number != 1]
    assert with_drafts(make_answer("msg_1", status=MessageStatus.STREAMING), stored) == step.stream.snapshot()
    await step.journal.settle()


async def test_growing_text_waits_for_the_save_before_it() -> None:
    """A save that takes longer than the interval is followed by one with all that came meanwhile, an interval later."""
    step = Step(timedelta(seconds=0.2))
    step.take(TextDelta(0, "a"))
    await elapse(timedelta(seconds=0.2))
    for word in "bcd":
        step.take(TextDelta(0, word))
        await elapse(timedelta(seconds=0.2))
    assert step.saved_parts() == [(0,)]
    await step.stored()
    await elapse(timedelta(seconds=0.2))
    assert step.saved_parts() == [(0,), (0,)]
    ending = asyncio.create_task(step.journal.settle())
    step.take(TextDelta(0, "e"))
    await step.all_stored(ending)
    await elapse(timedelta(seconds=1))
    assert len(step.store.commits) == 2


async def test_a_flush_returns_when_all_is_durable() -> None:
    """It waits for what is under way, which a draft goes on from, and saves what is unsaved then."""
    step = Step()
    step.take(TextDelta(0, "a"), PartEnded(0))
    await elapse(SOON)
    step.take(TextDelta(1, "b"))
    flushing = await begun(step.journal.flush())
    assert step.saved_parts() == [(0,)]
    await step.stored(0)
    assert step.saved_parts() == [(0,), (1,)]
    assert not flushing.done()
    await step.stored(1)
    await flushing
    await step.journal.flush()
    assert step.saved_parts() == [(0,), (1,)]
    await step.journal.settle()


async def test_a_cancelled_flush_cancels_no_commit() -> None:
    """The reader goes; what it began is carried out."""
    step = Step()
    step.take(TextDelta(0, "a"))
    flushing = await begun(step.journal.flush())
    await cancelled(flushing)
    assert [future.cancelled() for future in step.store.futures] == [False]
    await step.stored()
    await step.journal.settle()
    assert not step.stream.has_unsaved


async def test_settling_stops_the_timer() -> None:
    """Nothing is saved any more; what is unsaved stays so for the end of the message."""
    step = Step(timedelta(milliseconds=1))
    step.take(TextDelta(0, "a"))
    await step.journal.settle()
    await elapse(timedelta(seconds=1))
    assert (step.store.commits, step.stream.has_unsaved) == ([], True)


async def test_settling_waits_for_the_save_that_is_under_way() -> None:
    """What ended meanwhile is saved behind it: never two at once."""
    step = Step()
    step.take(TextDelta(0, "a"), PartEnded(0))
    await elapse(SOON)
    step.take(TextDelta(1, "b"), PartEnded(1))
    settling = await begun(step.journal.settle())
    assert step.saved_parts() == [(0,)]
    await step.stored(0)
    assert step.saved_parts() == [(0,), (1,)]
    await step.stored(1)
    await settling


async def test_a_failed_save_counts_as_unsaved() -> None:
    """Its parts are taken again, and the ended one counts as open, so that the end of the message tells of it."""
    step = Step()
    step.take(TextDelta(0, "a"), PartEnded(0))
    settling = await begun(step.journal.settle())
    await step.failed()
    await settling
    assert [one.part.index for one in step.stream.take_draft().parts] == [0]
    assert step.stream.snapshot().parts[0].status is PartStatus.STREAMING


@pytest.mark.parametrize("item", [TextDelta(0, ""), TextDelta(0, "b")])
async def test_a_flush_with_nothing_new_stores_nothing(item: StreamItem) -> None:
    """Reading again and again costs no writes."""
    step = Step()
    step.take(item)
    flushing = await begun(step.journal.flush())
    await step.stored()
    await flushing
    for _ in range(3):
        await step.journal.flush()
    assert step.saved_parts() == [(0,)]


async def test_parts_that_end_during_a_save_are_saved_together() -> None:
    """A thousand parts in one packet are two saves, not a thousand."""
    step = Step()
    step.take(TextDelta(0, "a"), PartEnded(0))
    await elapse(SOON)
    for key in range(1, 50):
        step.take(TextDelta(key, "a"), PartEnded(key))
    assert [len(commit.events) for commit in step.store.commits] == [1]
    settling = asyncio.create_task(step.journal.settle())
    await step.stored(0)
    await step.stored(1)
    await settling
    assert [len(commit.events) for commit in step.store.commits] == [1, 49]


async def test_a_call_ends_once_it_is_checked() -> None:
    """With its error when it cannot run; text goes on meanwhile and ends before it."""
    step = Step()
    step.take(ToolCallDelta(0, "fly", "c1", "{}"), PartEnded(0), ToolCallDelta(1, "look", "c2", "{}"), PartEnded(1))
    step.take(TextDelta(2, "a"), PartEnded(2))
    await elapse(SOON)
    finishing = asyncio.create_task(step.journal.finish())
    await step.stored()
    assert [part.index for part in step.told()] == [2]
    assert [part.status for part in step.stream.snapshot().parts[:2]] == [PartStatus.STREAMING] * 2
    assert not finishing.done()
    step.clock.advance(3)
    step.checks.may_go_on.set()
    await step.all_stored(finishing)
    now, fly = step.clock.now, ToolUse(name="fly", call_id="c1", input_json="{}")
    refusal = {"status": ToolStatus.ERROR, "error": "no such tool", "started_at": now, "finished_at": now}
    calls = [msgspec.structs.replace(fly, **refusal), ToolUse(name="look", call_id="c2", input_json="{}")]
    told = [event.kind.part for event in step.journal.unpublished().events if isinstance(event.kind, PartFinished)]
    assert [(part.content, part.status) for part in told] == [(c, PartStatus.COMPLETE) for c in calls]
    assert len(step.told()) == 1
    assert step.checks.begun == ["fly", "look"]


async def test_settling_gives_up_checks() -> None:
    """A turn that is aborted does not wait for them; the calls stay open, and no event shows them."""
    step = Step()
    step.take(ToolCallDelta(0, "fly", "c1", "{}"), PartEnded(0))
    finishing = asyncio.create_task(step.journal.finish())
    while not step.checks.begun:
        await asyncio.sleep(0)
    await cancelled(finishing)
    await step.journal.settle()
    step.checks.may_go_on.set()
    await asyncio.sleep(0)
    assert (step.told(), step.stream.snapshot().parts[0].status) == ([], PartStatus.STREAMING)


async def test_a_check_that_breaks_is_told_to_whoever_finishes() -> None:
    """The turn ends with it; nothing runs unchecked."""
    step = Step()
    step.checks.may_go_on.set()
    step.take(ToolCallDelta(0, "break", "c1", "{}"), PartEnded(0), ToolCallDelta(1, "look", "c2", "{}"), PartEnded(1))
    with pytest.raises(RuntimeError, match="a bug"):
        await step.journal.finish()
    await step.journal.settle()
    assert step.told() == []


async def test_a_thousand_calls_at_the_end_of_an_answer_are_no_save() -> None:
    """Their ends are told by the commit that ends the message."""
    step = Step()
    step.checks.may_go_on.set()
    for key in range(1000):
        step.take(ToolCallDelta(key, "look", f"c{key}", "{}"), PartEnded(key))
    await step.journal.finish()
    assert (step.store.commits, len(step.journal.unpublished().events)) == ([], 1000)


async def test_parts_that_wait_for_the_end_are_saved_when_it_does_not_come() -> None:
    """A turn that is stopped in between settles: then they are told, and no longer unpublished."""
    step = Step()
    step.take(TextDelta(0, "a"), PartEnded(0))
    await step.journal.finish()
    await elapse(timedelta(seconds=1))
    assert (step.store.commits, len(step.journal.unpublished().events)) == ([], 1)
    settling = await begun(step.journal.settle())
    await step.stored()
    await settling
    assert [part.index for part in step.told()] == [0]
    assert step.journal.unpublished().events == ()


async def test_what_ends_during_a_save_is_left_to_the_end_of_the_answer() -> None:
    """Finishing waits for saves that are under way and begins none."""
    step = Step()
    step.take(TextDelta(0, "a"), PartEnded(0))
    await elapse(SOON)
    step.take(TextDelta(1, "b"), PartEnded(1))
    finishing = await begun(step.journal.finish())
    await step.stored()
    await finishing
    assert (len(step.store.commits), len(step.journal.unpublished().events)) == (1, 1)


async def test_a_reader_at_the_end_of_an_answer_sees_no_end_before_its_event() -> None:
    """It waits for the save under way as the end does. What it saves then is open: the end tells which parts ended."""
    step = Step()
    step.take(TextDelta(0, "a"), PartEnded(0, None))
    await elapse(timedelta(seconds=ENDED_SECONDS))
    step.take(TextDelta(1, "b"), PartEnded(1, None))
    unpublished = list[NewEvent]()

    async def end() -> None:
        await step.journal.finish()
        unpublished.extend(step.journal.unpublished().events)

    ending, reading = asyncio.create_task(end()), asyncio.create_task(step.journal.flush())
    await settled()
    await step.all_stored(reading)
    await ending
    assert step.saved_parts() == [(0,), (1,)]
    statuses = [one.part.status for draft in step.drafts() for one in draft.parts]
    assert statuses == [PartStatus.COMPLETE, PartStatus.STREAMING]
    assert [part.index for part in step.told()] == [0]
    assert [event.kind.part.index for event in unpublished] == [1]  # type: ignore[union-attr]
    settling = asyncio.create_task(step.journal.settle())  # what ends the message could not be stored
    await settled()
    await step.all_stored(settling)
    assert [one.index for one in step.told()] == [0, 1]
    assert step.drafts()[-1].parts[-1].part.status is PartStatus.COMPLETE
