"""What an answer cost: its usage at the price of the model that was asked."""

import msgspec
import pytest

from tests.support.fakes.core import FakeProviders
from tests.support.fakes.domain_values import make_answer
from turnwire.core.answer.costs import with_cost
from turnwire.domain.conversation.messages import Message, ModelRef, ModelRun
from turnwire.domain.money import Usage

RUN = ModelRun(provider_id="offline", model_requested="echo")
ANSWER = make_answer("msg_1", "hello", model_run=RUN, usage=Usage(input_tokens=3, output_tokens=4))


def test_an_answer_costs_what_it_used() -> None:
    """At the price of its model."""
    assert with_cost(ANSWER, FakeProviders()) == msgspec.structs.replace(ANSWER, cost_pico_usd=7)


@pytest.mark.parametrize(
    "message",
    [
        make_answer("msg_1", "hello"),
        msgspec.structs.replace(ANSWER, usage=None),
        msgspec.structs.replace(ANSWER, cost_pico_usd=1),
    ],
)
def test_what_used_nothing_or_is_paid_stays_as_it_is(message: Message) -> None:
    """A cost is not counted anew: prices change."""
    assert with_cost(message, FakeProviders()) is message


def test_an_answer_is_not_lost_for_want_of_a_price() -> None:
    """Its cost stays unknown."""

    class Failing(FakeProviders):
        def cost_pico_usd(self, model: ModelRef, usage: Usage) -> int | None:
            raise ZeroDivisionError

    assert with_cost(ANSWER, Failing()) is ANSWER
