"""When a turn may begin no further step."""

import pytest

from tests.support.fakes.context import KeepingStore
from tests.support.fakes.core import make_environment
from tests.support.fakes.domain_values import make_answer, make_message, make_session, make_turn
from turnwire.core.turns.budgets import budget_ending, check_budgets, consumption_of, minimum_budget
from turnwire.domain.conversation.messages import FinishReason
from turnwire.domain.conversation.sessions import Budget
from turnwire.domain.conversation.turns import GenerationOptions
from turnwire.domain.limits import Limits
from turnwire.domain.money import PICO_USD, Consumption, Usage
from turnwire.ports.store import Spent

USAGE = Usage(input_tokens=1, cache_read_tokens=2, cache_write_tokens=3, output_tokens=4, reasoning_tokens=5)


def test_prompt_and_answer_count_together() -> None:
    """All buckets; what is not known counts nothing."""
    messages = [make_answer("a", usage=USAGE, cost_pico_usd=7), make_answer("b", usage=USAGE), make_message("u", "x")]
    assert consumption_of(messages) == Consumption(tokens=30, cost_pico_usd=7)


@pytest.mark.parametrize(("a", "b", "expected"), [(None, None, None), (1, None, 1), (None, 2, 2), (1, 2, 1), (2, 1, 1)])
def test_the_smaller_limit_counts(a: int | None, b: int | None, expected: int | None) -> None:
    """None is no limit."""
    asked, ours = Budget(max_tokens=a, max_cost_pico_usd=b), Budget(max_tokens=b, max_cost_pico_usd=a)
    assert minimum_budget(asked, ours) == Budget(max_tokens=expected, max_cost_pico_usd=expected)


def test_the_end_says_which_budget_it_was() -> None:
    """So that people know which limit to raise."""
    spent = Consumption(tokens=50, cost_pico_usd=PICO_USD // 4)
    ending = budget_ending(Budget(max_tokens=50), spent, "turn")
    assert (ending.finish_reason, ending.failure and ending.failure.reason) == (FinishReason.BUDGET, "BUDGET_EXHAUSTED")
    assert "turn" in str(ending.failure)
    assert "50 of 50 tokens" in str(ending.failure)
    money = budget_ending(Budget(max_cost_pico_usd=PICO_USD // 5), spent, "session")
    assert "0.25 of 0.2 USD" in str(money and money.failure)
    assert budget_ending(Budget(max_tokens=51, max_cost_pico_usd=PICO_USD), spent, "turn") is None
    assert budget_ending(Budget(), spent, "turn") is None


class SpentStore(KeepingStore):
    """Counts how often it is asked what was spent."""

    asked = 0

    async def spent(self, session_id: str) -> Spent:
        """Counts."""
        self.asked += 1
        return await super().spent(session_id)


@pytest.mark.parametrize(
    ("limits", "budget", "options", "whose"),
    [
        ({}, Budget(), {}, ""),
        ({"max_turn_tokens": 15}, Budget(), {}, "turn"),
        ({"max_turn_tokens": 16}, Budget(), {}, ""),
        ({"max_turn_tokens": 16}, Budget(), {"max_turn_tokens": 15}, "turn"),
        ({"max_turn_tokens": 15}, Budget(), {"max_turn_tokens": 99}, "turn"),
        ({}, Budget(), {"max_turn_cost_pico_usd": 7}, "turn"),
        ({}, Budget(max_tokens=115), {}, "session"),
        ({}, Budget(max_tokens=116), {}, ""),
        ({}, Budget(max_cost_pico_usd=1007), {}, "session"),
        ({"max_session_tokens": 115}, Budget(max_tokens=999), {}, "session"),
    ],
)
async def test_turn_and_session_are_checked(
    limits: dict[str, int], budget: Budget, options: dict[str, int], whose: str
) -> None:
    """The session with what its ended turns have spent, which is read only where there is a limit."""
    store = SpentStore(sessions_by_id={"ses_1": make_session(budget=budget)})
    store.spent_so_far = Spent(Usage(input_tokens=100), 1000)
    environment = make_environment(store, settings={"limits": Limits(**limits)})
    turn = make_turn(options=GenerationOptions(**options))
    ending = await check_budgets(
        turn, [make_answer("a", usage=USAGE, cost_pico_usd=7)], environment.settings.limits, store
    )
    assert (ending is not None) == bool(whose)
    assert ending is None or (ending.failure and whose in ending.failure.message)
    assert store.asked == (budget != Budget() or "max_session_tokens" in limits)
