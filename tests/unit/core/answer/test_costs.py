"""Cost of an answer: its usage at the price of the model that was asked."""

import msgspec
import pytest

from tests.support.fakes.core import FakeProviders
from tests.support.fakes.domain_values import make_answer
from turnwire.core.answer.costs import with_cost, with_estimate
from turnwire.domain.conversation.messages import Message, ModelRef, ModelRun
from turnwire.domain.money import Estimate, Usage

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


UNREPORTED = msgspec.structs.replace(ANSWER, usage=None)


@pytest.mark.parametrize(
    ("reported", "is_cut", "used"),
    [
        (None, False, Usage(input_tokens=10, output_tokens=2)),
        (None, True, Usage(input_tokens=10, output_tokens=2)),
        (
            Usage(input_tokens=3, cache_read_tokens=4, output_tokens=1),
            True,
            Usage(input_tokens=3, cache_read_tokens=4, output_tokens=2),
        ),
        (Usage(output_tokens=7), True, Usage(input_tokens=10, output_tokens=7)),
    ],
)
def test_what_is_not_reported_is_estimated(reported: Usage | None, is_cut: bool, used: Usage) -> None:
    """The prompt, and what was written after the last report; at the price of the model."""
    answer = msgspec.structs.replace(ANSWER, usage=reported)
    estimated = with_estimate(answer, FakeProviders(), was_asked=True, is_cut=is_cut, prompt_tokens=10)
    cost = FakeProviders().cost_pico_usd(ModelRef("offline", "echo"), used)
    assert estimated == msgspec.structs.replace(answer, estimate=Estimate(usage=used, cost_pico_usd=cost))


def test_what_is_reported_is_not_estimated() -> None:
    """And nothing is, where no provider was asked and nothing came; what came was asked for."""
    nothing = msgspec.structs.replace(UNREPORTED, parts=())
    all_written = Usage(input_tokens=3, output_tokens=2, reported_output_tokens=3)
    to_the_end = msgspec.structs.replace(ANSWER, usage=all_written)
    assert with_estimate(to_the_end, FakeProviders(), was_asked=True, is_cut=True) is to_the_end
    for message, was_asked, is_cut in ((ANSWER, True, False), (ANSWER, True, True), (nothing, False, True)):
        assert with_estimate(message, FakeProviders(), was_asked=was_asked, is_cut=is_cut) is message
    assert with_estimate(UNREPORTED, FakeProviders(), was_asked=False, is_cut=True).estimate is not None
    assert with_estimate(nothing, FakeProviders(), was_asked=True, is_cut=True).estimate is not None
