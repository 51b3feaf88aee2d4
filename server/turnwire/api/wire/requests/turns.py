"""How a turn is to be answered and which turns are asked for, checked for form."""

from collections.abc import Sequence

from opencode.message import message_pb2
from opencode.turn import turn_pb2
from turnwire.api.wire.requests import fields
from turnwire.api.wire.requests.checks import Checks
from turnwire.core.intake.inputs import NewTurn
from turnwire.domain.conversation.turns import TurnStatus

_TURN_STATUSES = {turn_pb2.TurnStatus.Value(f"TURN_STATUS_{status.name}"): status for status in TurnStatus}


def new_turn(checks: Checks, sent: message_pb2.SendMessageRequest | turn_pb2.TurnSettings) -> NewTurn:
    """Returns how a message is to be answered."""
    agent = checks.at_most("agent", sent.agent, 256)
    system = checks.at_most("system", sent.system, fields.MAX_PROMPT_CHARACTERS)
    return NewTurn(
        model=fields.model(checks, sent.model) if sent.HasField("model") else None,
        agent=agent if sent.HasField("agent") else None,
        system=system if sent.HasField("system") else None,
        options=fields.options(checks, sent.options),
        tools=fields.tools(checks, sent.tools),
    )


def turn_statuses(asked: Sequence[turn_pb2.TurnStatus.ValueType]) -> frozenset[TurnStatus]:
    """Returns the statuses of a filter; all of them when it is empty."""
    checks = Checks()
    for index, number in enumerate(asked):
        if number not in _TURN_STATUSES:
            checks.fail(f"statuses[{index}]", "is not a status of this server")
    checks.done()
    return frozenset(_TURN_STATUSES[number] for number in asked) or frozenset(TurnStatus)
