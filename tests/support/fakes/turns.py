"""Messages that are to be answered."""

from asyncio import Future
from typing import Any

from tests.support.fakes.domain_values import make_message, make_turn
from turnwire.core.actor import Done
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.schedule import Accepted, AcceptMessage, Schedule
from turnwire.domain.conversation.turns import BusyPolicy
from turnwire.ports.commit import PutMessage, PutTurn, Work

POLICIES = {"i": BusyPolicy.INTERRUPT, "s": BusyPolicy.STEER, "r": BusyPolicy.REJECT}


def make_accept(name: str, *, max_waiting: int = 100, **settings: Any) -> AcceptMessage:
    """Returns a message that is to be answered; the first letter of its name is its policy, or else it waits."""
    turn = make_turn(f"trn_{name}", user_message_id=f"msg_{name}", **settings)
    return AcceptMessage(
        turn=turn,
        message=make_message(f"msg_{name}", name, turn_id=turn.turn_id),
        when_busy=POLICIES.get(name[0], BusyPolicy.QUEUE),
        store=_stored,
        max_waiting=max_waiting,
        size_bytes=100,
    )


def send(turns: Turns, name: str, **settings: Any) -> "Future[Done[Schedule]]":
    """Sends a message of that name to its session."""
    one = make_accept(name, **settings)
    return turns.accept(one.turn, one.message, one.when_busy, one.store)


def _stored(accepted: Accepted) -> Work:
    return Work((PutTurn(accepted.turn), PutMessage(accepted.message)))
