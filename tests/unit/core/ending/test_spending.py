"""What ended steps and turns add to the account of their tenant."""

import pytest

from tests.support.fakes.domain_values import NOW, make_answer, make_turn
from turnwire.core.ending.closing import Ending, end_turn
from turnwire.core.ending.spending import spent_by_call, spent_by_turn
from turnwire.domain.accounts import Spending
from turnwire.domain.conversation.messages import FinishReason, Message, MessageStatus, ModelRun
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.money import Consumption, Estimate, Usage
from turnwire.ports.commit import AddSpending

USED = Usage(input_tokens=1, output_tokens=2)
TURN = make_turn(tenant="acme", subject="ann")


def _added(message: Message) -> Spending:
    [change] = spent_by_call(TURN, message, NOW).changes
    assert isinstance(change, AddSpending)
    return change.spending


def test_a_step_is_paid_by_who_asked_for_it() -> None:
    """Under the model that answered, which may be a fallback."""
    run = ModelRun(provider_id="other", model_requested="small")
    spent = _added(make_answer("msg_1", "a", model_run=run, usage=USED, cost_pico_usd=1))
    assert (spent.tenant, spent.subject, spent.session_id) == ("acme", "ann", "ses_1")
    assert (spent.provider_id, spent.model_id, spent.at) == ("other", "small", NOW)
    assert (spent.steps, spent.steps_without_price, spent.turns) == (1, 0, 0)
    assert spent.consumption == Consumption(3, 1)


@pytest.mark.parametrize(
    ("message", "unpriced"),
    [
        (make_answer("msg_1", "a", usage=USED), 1),
        (make_answer("msg_1", "a"), 1),
        (make_answer("msg_1", usage=USED), 1),
        (make_answer("msg_1"), 0),
        (make_answer("msg_1", "a", usage=USED, cost_pico_usd=0), 0),
    ],
)
def test_an_answer_without_a_known_price_is_counted(message: Message, unpriced: int) -> None:
    """A model that gave no answer cost nothing; a price of nothing is known."""
    assert _added(message).steps_without_price == unpriced


def test_an_estimate_counts_in_place_of_the_report() -> None:
    """And it is shown that it is one."""
    estimate = Estimate(usage=Usage(input_tokens=5, output_tokens=6), cost_pico_usd=7)
    spent = _added(make_answer("msg_1", "a", usage=Usage(input_tokens=5), estimate=estimate))
    assert (spent.consumption, spent.estimated_steps, spent.steps_without_price) == (Consumption(11, 7), 1, 0)
    assert _added(make_answer("msg_1", "a", usage=USED)).estimated_steps == 0


def test_a_turn_that_never_started_is_not_counted() -> None:
    """It was dropped out of the queue."""
    assert spent_by_turn(make_turn(status=TurnStatus.QUEUED), NOW).changes == ()
    assert len(spent_by_turn(TURN, NOW).changes) == 1


def test_the_end_of_a_turn_adds_only_what_was_open() -> None:
    """The steps that ended before are counted already."""
    ended = make_answer("msg_1", "a", usage=USED, cost_pico_usd=1)
    streaming = make_answer("msg_2", "b", usage=USED, cost_pico_usd=2, status=MessageStatus.STREAMING)
    changes = end_turn(TURN, [ended, streaming], Ending(FinishReason.ABORTED), NOW).changes
    spent = [change.spending for change in changes if isinstance(change, AddSpending)]
    assert [(one.cost_pico_usd, one.steps, one.turns) for one in spent] == [(2, 1, 0), (None, 0, 1)]
