"""Budgets: limits on the tokens and the money that a turn and a session may use.

They are checked before each step. A step's consumption is known only afterwards, so one step may exceed a budget.
"""

from collections.abc import Iterable

from turnwire.core.ending import Ending
from turnwire.domain.conversation.messages import Failure, FinishReason, Message
from turnwire.domain.conversation.sessions import Budget
from turnwire.domain.conversation.turns import Turn
from turnwire.domain.limits import Limits
from turnwire.domain.money import Consumption, usd
from turnwire.ports.store import Store


def consumption_of(messages: Iterable[Message]) -> Consumption:
    """Returns the usage of the messages together."""
    total = Consumption()
    for message in messages:
        total += Consumption.of(message.usage, message.cost_pico_usd)
    return total


def minimum_budget(a: Budget, b: Budget) -> Budget:
    """Returns the budget that satisfies both: the lower limit of each kind."""
    return Budget(
        max_tokens=_minimum(a.max_tokens, b.max_tokens),
        max_cost_pico_usd=_minimum(a.max_cost_pico_usd, b.max_cost_pico_usd),
    )


def budget_ending(budget: Budget, so_far: Consumption, whose: str) -> Ending | None:
    """Returns the end of a turn whose budget is used up; None while something is left.

    The failure names the budget, so that people know which limit to raise.

    Args:
        budget: The limits.
        so_far: The usage so far.
        whose: "turn" or "session"; part of the failure.
    """
    if budget.max_tokens is not None and so_far.tokens >= budget.max_tokens:
        limit = f"{so_far.tokens} of {budget.max_tokens} tokens are used"
    elif budget.max_cost_pico_usd is not None and so_far.cost_pico_usd >= budget.max_cost_pico_usd:
        limit = f"{usd(so_far.cost_pico_usd)} of {usd(budget.max_cost_pico_usd)} USD are used"
    else:
        return None
    message = f"the budget of the {whose} is used up: {limit}"
    return Ending(FinishReason.BUDGET, Failure("BUDGET_EXHAUSTED", message, {"budget": whose}))


async def check_budgets(turn: Turn, messages: Iterable[Message], limits: Limits, store: Store) -> Ending | None:
    """Returns the end of a turn whose own or session budget is used up; None when it may take another step.

    Args:
        turn: The turn.
        messages: The turn's messages with usage so far, including summaries.
        limits: The budgets that apply to every turn and every session.
        store: Has the session's own budget and what its ended turns used.

    Raises:
        StorageError: the session could not be read.
    """
    options = turn.options
    this_turn = consumption_of(messages)
    asked = Budget(max_tokens=options.max_turn_tokens, max_cost_pico_usd=options.max_turn_cost_pico_usd)
    ending = budget_ending(minimum_budget(asked, limits.turn_budget), this_turn, "turn")
    if ending is not None:
        return ending
    reads = store.of(turn.tenant)
    session = await reads.cached_session(turn.session_id)
    of_session = minimum_budget(session.budget, limits.session_budget)
    if of_session == Budget():
        return None
    spent = await reads.spent(turn.session_id)
    return budget_ending(of_session, Consumption.of(spent.usage, spent.cost_pico_usd) + this_turn, "session")


def _minimum(a: int | None, b: int | None) -> int | None:
    return min((limit for limit in (a, b) if limit is not None), default=None)
