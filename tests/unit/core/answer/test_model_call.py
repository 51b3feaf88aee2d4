"""Reports of model calls and of the turn that made them: each attempt once, with what follows it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta

import pytest

from tests.support.fakes.context import ScriptedProvider
from tests.support.fakes.core import FakeProvider, FakeProviders, FakeStore, RecordingObserver, make_environment
from tests.support.fakes.domain_values import make_message, make_session, make_turn
from tests.support.fakes.loop import begun, elapse
from tests.support.fakes.turns import LoneRun
from turnwire.core.answer.model_call import delay_before_retry, may_fall_back, note_long_wait
from turnwire.core.ending import Ending
from turnwire.core.settings import Retries
from turnwire.core.turns.run import TurnRun
from turnwire.domain import errors as e
from turnwire.domain.conversation.messages import FinishReason, MessageStatus, ModelRef
from turnwire.domain.errors import ProviderRefusedRequest, ProviderStreamCut, ProviderUnavailable
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.money import Usage
from turnwire.ports.provider import PreparedRequest, StepFinished, StreamItem, TextDelta, UsageReported

DOWN = ProviderUnavailable("down", retry_after=timedelta(seconds=2))
STOP = StepFinished(FinishReason.STOP, "stop")
OTHER = ModelRef("offline", "other")


def _run(observer: RecordingObserver, *answers: Sequence[StreamItem | Exception | None], **settings: object) -> TurnRun:
    store = FakeStore(conversation=(make_message("msg_user", "hi"),), sessions_by_id={"ses_1": make_session()})
    provider = ScriptedProvider(*answers) if len(answers) > 1 else FakeProvider(answers[0])
    environment = make_environment(
        store, FakeProviders(provider), settings={"retries": Retries(max_retries=1), **settings}, observer=observer
    )
    return LoneRun(environment, make_turn())


async def test_each_attempt_is_reported_with_what_follows_it() -> None:
    """A retry after its wait, then a fallback at once, then the answer."""
    observer = RecordingObserver()
    run = _run(observer, [DOWN], [DOWN], [TextDelta(0, "here"), STOP], fallback_models=(OTHER,))
    running = asyncio.create_task(run.run(FairSemaphore(1)))
    await elapse(timedelta(seconds=2))
    await running
    assert [
        (call.model.model_id, call.attempt, call.failure, call.retry_delay, call.fallback)
        for call in observer.model_calls
    ] == [("echo", 1, DOWN, timedelta(seconds=2), None), ("echo", 2, DOWN, None, OTHER), ("other", 1, None, None, None)]
    assert {call.turn for call in observer.model_calls} == {make_turn()}
    first = [call.first_output_seconds is None for call in observer.model_calls]
    assert first == [True, True, False]
    assert run.first_output_seconds >= 2


@pytest.mark.parametrize(
    "answer",
    [(ProviderRefusedRequest("no"),), (TextDelta(0, "half"), ProviderStreamCut("cut"))],
    ids=["refused", "cut"],
)
async def test_a_call_that_is_not_tried_again_is_reported_so(answer: Sequence[StreamItem | Exception]) -> None:
    """Though fallback models are configured: another request would fail as well, or text would be joined."""
    observer = RecordingObserver()
    await _run(observer, answer, fallback_models=(OTHER,)).run(FairSemaphore(1))
    [call] = observer.model_calls
    assert (call.failure, call.retry_delay, call.fallback) == (answer[-1], None, None)


async def test_times_are_those_of_the_loop() -> None:
    """From the request to the first content and to the end."""
    observer, begins, ends = RecordingObserver(), asyncio.Event(), asyncio.Event()

    class Slow(FakeProvider):
        async def stream(self, prepared: PreparedRequest) -> AsyncGenerator[StreamItem]:
            await begins.wait()
            yield TextDelta(0, "word")
            await ends.wait()
            yield STOP

    store = FakeStore(conversation=(make_message("msg_user", "hi"),), sessions_by_id={"ses_1": make_session()})
    run = LoneRun(make_environment(store, FakeProviders(Slow([])), observer=observer), make_turn())
    running = asyncio.create_task(run.run(FairSemaphore(1)))
    await elapse(timedelta(seconds=3))
    begins.set()
    await elapse(timedelta(seconds=4))
    ends.set()
    await running
    [call] = observer.model_calls
    assert call.first_output_seconds is not None
    assert (int(call.first_output_seconds), int(call.seconds)) == (3, 7)
    assert int(run.first_output_seconds) == 3


async def test_every_answer_is_reported_once_with_its_usage() -> None:
    """One that was stopped too, though its attempt is no failure of the provider."""
    observer, usage = RecordingObserver(), Usage(input_tokens=3, output_tokens=4)
    run = _run(observer, [UsageReported(usage), TextDelta(0, "so far"), None])
    running = await begun(run.run(FairSemaphore(1)))
    run.stop(Ending(FinishReason.ABORTED))
    await running
    [(message, is_summary)] = observer.answers
    assert (message.usage, message.cost_pico_usd, message.status, is_summary) == (
        *(usage, 7),
        *(MessageStatus.STREAMING, False),
    )
    assert observer.model_calls == []


async def test_deltas_cost_no_report() -> None:
    """A long answer is reported as often as a short one."""
    reported = []
    for words in (1, 1000):
        observer = RecordingObserver()
        await _run(observer, [*(TextDelta(0, "word ") for _ in range(words)), STOP]).run(FairSemaphore(1))
        reported.append({name: len(kept) for name, kept in vars(observer).items() if isinstance(kept, list)})
    assert reported[0] == reported[1]
    assert reported[1]["model_calls"] == 1


RETRIES = Retries(max_retries=3, first_delay_seconds=1, longest_delay_seconds=3)


@pytest.mark.parametrize(("attempt", "longest"), [(1, 1.0), (2, 2.0), (3, 3.0)])
def test_delays_double_up_to_the_longest(attempt: int, longest: float) -> None:
    """Less up to a half at random."""
    delays = {delay_before_retry(RETRIES, e.ProviderUnavailable("busy"), attempt) for _ in range(50)}
    assert all(delay is not None and longest / 2 <= delay.total_seconds() <= longest for delay in delays)
    assert len(delays) > 1


def test_the_provider_s_own_word_wins() -> None:
    """Its wait is kept to exactly; one that is too long means that it is gone."""
    short, long = timedelta(seconds=2.5), timedelta(seconds=4)
    assert delay_before_retry(RETRIES, e.ProviderRateLimited("wait", retry_after=short), 1) == short
    assert delay_before_retry(RETRIES, e.ProviderRateLimited("wait", retry_after=long), 1) is None


def test_a_wait_that_is_too_long_is_told() -> None:
    """Whoever reads the failure learns how long, and which limit is shorter; of another one nothing is said."""
    long, short = (e.ProviderRateLimited("wait", retry_after=timedelta(seconds=seconds)) for seconds in (4, 2))
    note_long_wait(RETRIES, long)
    assert long.metadata == {"retryAfterSeconds": "4", "limit": "retries.longest_delay_seconds", "limitValue": "3"}
    assert "4 seconds" in long.message
    note_long_wait(RETRIES, short)
    assert (short.message, short.metadata) == ("wait", {})


def test_attempts_are_limited() -> None:
    """After the last retry nobody waits."""
    assert delay_before_retry(RETRIES, e.ProviderTimeout("late"), 4) is None
    assert delay_before_retry(Retries(max_retries=0), e.ProviderTimeout("late"), 1) is None


@pytest.mark.parametrize(
    ("error", "again", "elsewhere"),
    [
        (e.ProviderRateLimited, True, True),
        (e.ProviderUnavailable, True, True),
        (e.ProviderTimeout, True, True),
        (e.ProviderAnswerOverLimit, False, True),
        (e.ProviderStreamCut, True, True),
        (e.ProviderStreamFailed, True, True),
        (e.ProviderCredentialsRejected, False, True),
        (e.ProviderRefusedRequest, False, False),
        (e.ProviderContextFull, False, False),
    ],
)
def test_only_what_may_pass_is_tried_again(error: type[e.ProviderError], again: bool, elsewhere: bool) -> None:
    """A refused request or a full context is the same next time; another model may have another key."""
    raised = error("trouble")
    assert (delay_before_retry(RETRIES, raised, 1) is not None, may_fall_back(raised)) == (again, elsewhere)
