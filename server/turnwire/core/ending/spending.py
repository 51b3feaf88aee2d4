"""What ended steps, summaries and turns add to the account of their tenant.

Each belongs to the commit that stores the end, so it is added exactly once, however often that commit is tried.
"""

from datetime import datetime

from turnwire.core.work import Work
from turnwire.domain.accounts import Spending
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.ports.commit import AddSpending


def spent_by_call(turn: Turn, message: Message, now: datetime) -> Work:
    """Returns the work that adds an ended step, or a summary, to the account.

    Args:
        turn: The turn that asked the model.
        message: The ended message, with its cost or its estimate.
        now: When it ended.
    """
    run = message.model_run
    estimate, usage, cost = message.estimate, message.usage, message.cost_pico_usd
    if estimate is not None:
        usage, cost = estimate.usage, estimate.cost_pico_usd
    has_answer = usage is not None or bool(message.parts)
    spending = Spending(
        tenant=turn.tenant,
        subject=turn.subject,
        session_id=turn.session_id,
        provider_id=turn.model.provider_id if run is None else run.provider_id,
        model_id=turn.model.model_id if run is None else run.model_requested,
        at=now,
        usage=usage,
        cost_pico_usd=cost,
        steps=1,
        steps_without_price=int(has_answer and cost is None),
        estimated_steps=int(estimate is not None),
    )
    return Work((AddSpending(spending),))


def spent_by_turn(turn: Turn, now: datetime) -> Work:
    """Returns the work that counts an ended turn; empty for one that never started."""
    if turn.status is TurnStatus.QUEUED:
        return Work()
    spending = Spending(
        tenant=turn.tenant,
        subject=turn.subject,
        session_id=turn.session_id,
        provider_id=turn.model.provider_id,
        model_id=turn.model.model_id,
        at=now,
        turns=1,
    )
    return Work((AddSpending(spending),))
