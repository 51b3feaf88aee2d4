"""Questions of calls: how they are asked, answered, expire and end, and what of them is stored."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.fakes.core import FakeStore, ManualClock, make_environment
from tests.support.fakes.domain_values import make_answer, make_turn
from tests.support.fakes.loop import begun, cancelled, elapse, settled
from tests.support.fakes.turns import make_calls
from turnwire.core.tools.calls import ToolCalls, count_requests
from turnwire.core.tools.questions import MAX_QUESTIONS_OF_CALL, AnswerQuestion
from turnwire.core.tools.results import CallResult
from turnwire.core.tools.server_calls import EndCall
from turnwire.domain.conversation.events import QuestionAnswered, QuestionAsked, ToolCallUpdated
from turnwire.domain.conversation.messages import ToolUse
from turnwire.domain.conversation.questions import QuestionAction, QuestionAnswer, QuestionReply, SchemaForm
from turnwire.domain.errors import QuestionAlreadyAnswered, StorageBusy
from turnwire.domain.limits import Limits
from turnwire.ports.commit import PutQuestion
from turnwire.ports.tools import MAX_OPEN_OF_CALL, NewQuestion, QuestionRefused, ToolPause

ACCEPT, DECLINE = QuestionAnswer(QuestionAction.ACCEPT), QuestionAnswer(QuestionAction.DECLINE)
RED = '{"colour": "red"}'
FORM = '{"type": "object", "properties": {"colour": {"type": "string"}}}'
NEW = NewQuestion(prompt="Which?", form=SchemaForm(schema_json=FORM))
MINUTE = timedelta(minutes=1)


class Asker:
    """The questions of two calls, and everything around them."""

    def __init__(self, *, automatic: bool = True) -> None:
        self.store = FakeStore(automatic=automatic)
        self.clock = ManualClock()
        limits = {"limits": Limits(question_timeout_seconds=60.0)}
        self.environment = make_environment(self.store, clock=self.clock, settings=limits)
        message = make_answer("msg_1", ToolUse(name="ask.one", input_json="{}"), ToolUse(name="two", input_json="{}"))
        self.calls = make_calls(self.environment, make_turn(), message, frozenset())
        self.watching = asyncio.create_task(self.calls._watch_time())

    async def ask(self, index: int = 0, new: NewQuestion = NEW) -> "asyncio.Task[QuestionReply]":
        """Asks, and returns when that waits for something."""
        return await begun(self.calls._questions.ask(index, new))

    def after_restart(self) -> ToolCalls:
        """Returns the calls as the next process finds them."""
        pending = self.calls.state.pending_questions
        return make_calls(self.environment, make_turn(), self.calls.message, frozenset(), questions=pending)

    def is_paused(self) -> bool:
        """Returns whether the first call has paused."""
        return any(one.hold is not None for one in self.calls.state.pending_questions)

    def events(self) -> list[object]:
        """Returns what was told."""
        return [event.kind for commit in self.store.commits for event in commit.events]

    def stored(self) -> list[PutQuestion]:
        """Returns what was stored of questions."""
        return [one for commit in self.store.commits for one in commit.changes if isinstance(one, PutQuestion)]

    async def passes(self, time: timedelta) -> None:
        """Lets time pass, of day and of the loop."""
        self.clock.now += time
        await elapse(time)


async def answer(calls: ToolCalls, question_id: str, given: QuestionAnswer, content_json: str = "") -> bool:
    """Answers a question. Returns whether that changed anything."""
    return (await asyncio.shield(calls.ask(AnswerQuestion(question_id, given, content_json)))).has_changed


async def test_a_question_is_stored_with_its_event_before_it_is_answered() -> None:
    """It names who asks and when it ends. What is filled in goes to the tool and is neither stored nor told."""
    asker = Asker()
    asked = await asker.ask()
    (question,) = asker.calls.state.open_questions
    assert (question.question_id, question.source, question.tool) == ("que_1", "ask", "ask.one")
    assert question.expires_at - question.created_at == MINUTE
    assert asker.events() == [QuestionAsked(question)]
    assert await answer(asker.calls, "que_1", ACCEPT, RED)
    assert await asked == QuestionReply(QuestionAction.ACCEPT, RED)
    assert asker.events()[1:] == [QuestionAnswered("que_1", question.tool_call_id, ACCEPT)]
    assert RED not in repr(asker.store.commits)
    assert asker.calls.state.open_questions == ()


@pytest.mark.parametrize("jump", [timedelta(days=365), timedelta(days=-365)])
async def test_a_clock_that_is_set_neither_ends_nor_extends_a_question(jump: timedelta) -> None:
    """Its time is that of a clock which never jumps; after a restart it has no more than its whole time."""
    asker = Asker()
    reply = await asker.ask()
    asker.clock.now += jump
    await elapse(timedelta(seconds=59))
    assert not reply.done()
    after = asker.after_restart()
    await elapse(timedelta(seconds=2))
    assert (await reply).action is QuestionAction.EXPIRED
    assert len(after.state.open_questions) == 1


async def test_a_question_expires_when_its_time_is_over() -> None:
    """Not before; the tool hears it, and an answer is too late."""
    asker = Asker()
    asked = await asker.ask()
    await asker.passes(MINUTE - timedelta(seconds=1))
    assert not asked.done()
    await asker.passes(timedelta(seconds=1))
    assert (await asked).action is QuestionAction.EXPIRED
    with pytest.raises(QuestionAlreadyAnswered, match="expired"):
        await answer(asker.calls, "que_1", ACCEPT, RED)


async def test_an_expiry_that_cannot_be_stored_is_tried_again() -> None:
    """A full disk does not keep a question open for ever."""
    asker = Asker()
    asked = await asker.ask()
    asker.store.automatic = False
    await asker.passes(MINUTE)
    asker.store.futures[-1].set_exception(StorageBusy("busy"))
    await settled()
    assert [one.question_id for one in asker.calls.state.open_questions] == ["que_1"]
    asker.store.automatic = True
    await asker.passes(timedelta(seconds=1))
    assert (await asked).action is QuestionAction.EXPIRED


async def test_a_question_that_could_not_be_stored_was_never_asked() -> None:
    """Its place is free again."""
    asker = Asker(automatic=False)
    asked = await asker.ask()
    assert "que_1" not in asker.calls.state.questions
    asker.store.futures[0].set_exception(StorageBusy("busy"))
    with pytest.raises(StorageBusy):
        await asked
    assert "que_1" not in asker.calls.state.questions
    assert asker.environment.open_questions == {}


async def test_a_call_that_is_cancelled_withdraws_its_question() -> None:
    """Watchers hear CANCEL; at the end of the turn it is left to that, and counts until then."""
    asker = Asker()
    first, second = await asker.ask(), await asker.ask()
    await cancelled(first)
    (told,) = (kind for kind in asker.events() if isinstance(kind, QuestionAnswered))
    assert (told.question_id, told.answer.action) == ("que_1", QuestionAction.CANCEL)
    asker.calls._questions.end()
    await cancelled(second)
    assert [one.question_id for one in asker.calls.state.open_questions] == ["que_2"]
    assert asker.environment.open_questions == {"default": 1}
    count_requests(asker.environment, "default", asker.calls.state, None)
    assert asker.environment.open_questions == {}


async def test_a_call_asks_a_bounded_number_of_questions() -> None:
    """At once and in all; another call has its own numbers, and what cannot be shown is refused."""
    asker = Asker()
    tasks = [await asker.ask() for _ in range(MAX_OPEN_OF_CALL)]
    with pytest.raises(QuestionRefused, match="are open"):
        await asker.calls._questions.ask(0, NEW)
    other = await asker.ask(1)
    for number in range(1, MAX_QUESTIONS_OF_CALL + 1):
        if number > MAX_OPEN_OF_CALL:
            tasks.append(await asker.ask())
        opened = [one for one in asker.calls.state.open_questions if one.part_index == 0]
        await answer(asker.calls, opened[0].question_id, DECLINE)
    with pytest.raises(QuestionRefused, match="may ask no more"):
        await asker.calls._questions.ask(0, NEW)
    with pytest.raises(QuestionRefused, match="empty"):
        await asker.calls._questions.ask(1, NewQuestion(prompt=" ", form=NEW.form))
    assert not other.done()
    other.cancel()
    await asyncio.wait((*tasks, other))


async def test_a_paused_call_goes_on_once_and_after_a_restart_too() -> None:
    """Its state is stored until the commit that lets it go on, and not longer."""
    asker = Asker()
    paused = asyncio.create_task(
        asker.calls._questions.pause(0, ToolPause(questions=(("a", NEW), ("b", NEW)), state="s"))
    )
    await settled()
    assert asker.is_paused()
    await answer(asker.calls, "que_1", ACCEPT, RED)
    assert any(one.hold is not None and one.hold.content_json == RED for one in asker.stored())
    await cancelled(paused)
    again = asker.after_restart()
    resuming = await begun(again._questions.resumption(0))
    await answer(again, "que_2", DECLINE)
    resumption = await resuming
    assert resumption.state == "s"
    assert resumption.replies == (
        ("a", QuestionReply(QuestionAction.ACCEPT, RED)),
        ("b", QuestionReply(QuestionAction.DECLINE)),
    )
    assert [one.hold for one in asker.stored()[-2:]] == [None, None]
    assert again.state.pending_questions == ()


async def test_a_paused_call_has_a_bounded_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stored with each question."""
    monkeypatch.setattr("turnwire.core.tools.questions.MAX_STATE_CHARS", 3)
    asker = Asker()
    with pytest.raises(QuestionRefused, match="longer than 3"):
        await asker.calls._questions.pause(0, ToolPause(questions=(("a", NEW),), state="long"))
    assert asker.store.commits == []


async def test_the_end_of_a_call_ends_its_questions_in_the_same_commit() -> None:
    """Those of other calls stay open; when the commit fails, so do these."""
    asker = Asker()
    first, second = await asker.ask(0), await asker.ask(1)
    asker.store.automatic = False
    ending = asker.calls._owner.ask(EndCall(0, CallResult(output="over")))
    kinds = [type(event.kind) for event in asker.store.commits[-1].events]
    assert kinds == [QuestionAnswered, ToolCallUpdated]
    asker.store.futures[-1].set_exception(StorageBusy("busy"))
    with pytest.raises(StorageBusy):
        await ending
    assert [one.question_id for one in asker.calls.state.open_questions] == ["que_1", "que_2"]
    asker.store.automatic = True
    await asker.calls._owner.ask(EndCall(0, CallResult(output="over")))
    assert [one.question_id for one in asker.calls.state.open_questions] == ["que_2"]
    assert (await first).action is QuestionAction.CANCEL
    asker.calls._questions.end()
    await cancelled(second)
