"""One running call: its time, and the questions that it asks."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.fakes.loop import begun, cancelled, elapse, settled
from turnwire.domain.conversation.questions import LinkForm, QuestionAction, QuestionReply
from turnwire.ports.tools import NewQuestion, QuestionRefused
from turnwire.tools.mcp.running_call import CallOverError, RunningCall

QUESTION = NewQuestion(prompt="Go", form=LinkForm(url="https://example.com/"))
REPLY = QuestionReply(QuestionAction.ACCEPT)


async def _seconds(count: float) -> None:
    """Waits on the loop's clock, which the test moves."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(count, over.set_result, None)
    await over


class Person:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.replies: list[asyncio.Future[QuestionReply]] = []

    async def __call__(self, _: NewQuestion) -> QuestionReply:
        """Waits for the reply."""
        self.replies.append(asyncio.get_running_loop().create_future())
        return await self.replies[-1]


async def test_the_time_of_a_call_stands_still_while_a_person_is_asked() -> None:
    """However long that takes; what was used before counts."""
    call = RunningCall(person := Person())

    async def work() -> None:
        await _seconds(6)
        await call.ask(QUESTION)
        await _seconds(6)

    running = asyncio.create_task(call.run(work(), 10.0, "call"))
    await elapse(timedelta(seconds=6))
    await elapse(timedelta(hours=1))
    assert (len(person.replies), running.done()) == (1, False)
    person.replies[0].set_result(REPLY)
    await elapse(timedelta(seconds=3))
    assert not running.done()
    await elapse(timedelta(seconds=2))
    with pytest.raises(TimeoutError):
        await running


async def test_a_call_returns_what_it_says_within_its_time() -> None:
    """With the replies that it got."""
    call = RunningCall(person := Person())
    running = await begun(call.run(call.ask(QUESTION), 10.0, "call"))
    person.replies[0].set_result(REPLY)
    assert await running == REPLY
    assert call.is_over


async def test_the_end_of_a_call_withdraws_its_questions() -> None:
    """A question from another task is refused, and not cancelled; so is one after the end."""
    call, ending = RunningCall(person := Person()), asyncio.Event()
    running = asyncio.create_task(call.run(ending.wait(), 10.0, "call"))
    asking = await begun(call.ask(QUESTION))
    ending.set()
    await running
    for late in (asking, call.ask(QUESTION)):
        with pytest.raises(QuestionRefused, match="has ended"):
            await late
    assert person.replies[0].cancelled()


async def test_a_question_that_is_taken_back_lets_time_go_on() -> None:
    """The server cancels its own request; the call's time is limited again."""
    call = RunningCall(person := Person())
    running = asyncio.create_task(call.run(asyncio.Event().wait(), 10.0, "call"))
    asking = asyncio.create_task(call.ask(QUESTION))
    await elapse(timedelta(hours=1))
    await cancelled(asking)
    assert not running.done()
    await elapse(timedelta(seconds=11))
    with pytest.raises(TimeoutError):
        await running
    assert person.replies[0].cancelled()


async def test_a_cancelled_call_ends_with_its_questions() -> None:
    """As at an abort."""
    call = RunningCall(person := Person())
    running = await begun(call.run(call.ask(QUESTION), 10.0, "call"))
    await cancelled(running)
    await settled()
    assert running.cancelled()
    assert (call.is_over, person.replies[0].cancelled()) == (True, True)


async def test_what_is_read_for_a_call_ends_with_it() -> None:
    """Also in a task of another owner, and what begins afterwards."""
    ends = list[str]()

    async def read() -> None:
        try:
            async with call.reading():
                await asyncio.Event().wait()
        except CallOverError:
            ends.append("over")

    async def run() -> None:
        reading.append(asyncio.create_task(read()))
        await settled()

    call, reading = RunningCall(Person()), list[asyncio.Task[None]]()
    await call.run(run(), 10, "call")
    await reading[0]
    await read()
    assert ends == ["over"] * 2
