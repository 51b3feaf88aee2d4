"""Waiting messages in memory."""

from tests.support.fakes.domain_values import make_message, make_turn
from turnwire.core.turns.waiting.places import Place
from turnwire.core.turns.waiting.queue import SessionQueue
from turnwire.domain.conversation.messages import MessageStatus
from turnwire.domain.conversation.turns import BusyPolicy, TurnStatus

POLICIES = {"i": BusyPolicy.INTERRUPT, "s": BusyPolicy.STEER, "q": BusyPolicy.QUEUE}


def make_place(name: str, turn_id: str = "trn_1") -> Place:
    """Returns the place of a stored message; the first letter of its name is its policy."""
    policy = POLICIES.get(name[0], BusyPolicy.QUEUE)
    turn = make_turn(
        f"trn_{name}",
        user_message_id=f"msg_{name}",
        status=TurnStatus.QUEUED,
        busy_policy=policy,
        aimed_at_turn_id="" if policy is BusyPolicy.QUEUE else turn_id,
    )
    return Place(turn, make_message(f"msg_{name}", name, turn_id=turn.turn_id, status=MessageStatus.QUEUED))


def names(queue: SessionQueue) -> str:
    """Returns the waiting messages, next first."""
    return " ".join(place.message.message_id.removeprefix("msg_") for place in queue)
