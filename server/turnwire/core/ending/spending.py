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
        message: The ended message, with its cost.
        now: When it ended.
    """
    run = message.model_run
    has_answer = message.usage is not None or bool(message.parts)
    spending = Spending(
        tenant=turn.tenant,
        subject=turn.subject,
        session_id=turn.session_id,
        provider_id=turn.model.provider_id if run is None else run.provider_id,
        model_id=turn.model.model_id if run is None else run.model_requested,
        at=now,
        usage=message.usage,
        cost_pico_usd=message.cost_pico_usd,
        steps=1,
        steps_without_price=int(has_answer and message.cost_pico_usd is None),
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
