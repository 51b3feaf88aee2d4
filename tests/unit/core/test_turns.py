"""What a dead process left running is ended at the next start."""

from tests.support.core_fakes import FakeStore, make_environment
from tests.support.domain_values import make_answer, make_turn, open_part
from turnwire.core.turns import RESTARTED, Turns
from turnwire.domain.events import SessionStatusChanged, TurnEnded
from turnwire.domain.messages import FinishReason, MessageStatus, ModelRun, Text
from turnwire.domain.money import Usage
from turnwire.ports.store import NewEvent, PutMessage

RUN = ModelRun(provider_id="offline", model_requested="echo")
STEP = make_answer("msg_1", "first step", usage=Usage(input_tokens=5), cost_pico_usd=5)


async def test_a_turn_that_was_left_running_is_ended_in_one_commit() -> None:
    """Its text is kept as interrupted, and the session is idle after its end."""
    streaming = make_answer("msg_2", open_part(0, Text("so far")), status=MessageStatus.STREAMING)
    store = FakeStore(conversation=(STEP, streaming), unfinished=(make_turn(),))
    await Turns(make_environment(store)).recover()
    [commit] = store.commits
    [message] = [change.message for change in commit.changes if isinstance(change, PutMessage)]
    assert (message.message_id, message.status) == ("msg_2", MessageStatus.INTERRUPTED)
    assert message.parts[0].content == Text("so far")
    assert commit.events[-2:] == (
        NewEvent(
            TurnEnded(
                finish_reason=FinishReason.INTERRUPTED,
                failure=RESTARTED.failure,
                usage=Usage(input_tokens=5),
                cost_pico_usd=5,
                steps=2,
            ),
            "trn_1",
        ),
        NewEvent(SessionStatusChanged(False)),
    )


async def test_the_cost_of_a_step_that_died_is_counted() -> None:
    """Its usage is known as far as it was saved, and so is its price: the turn's cost does not become unknown."""
    streaming = make_answer(
        "msg_2",
        open_part(0, Text("so far")),
        status=MessageStatus.STREAMING,
        usage=Usage(input_tokens=2),
        model_run=RUN,
    )
    store = FakeStore(conversation=(STEP, streaming), unfinished=(make_turn(),))
    await Turns(make_environment(store)).recover()
    [message] = [change.message for change in store.commits[0].changes if isinstance(change, PutMessage)]
    ended = store.commits[0].events[-2].kind
    assert isinstance(ended, TurnEnded)
    assert (message.cost_pico_usd, ended.usage, ended.cost_pico_usd) == (2, Usage(input_tokens=7), 7)
