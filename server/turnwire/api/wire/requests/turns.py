"""How a turn is to be answered and which turns are asked for, checked for form."""

from collections.abc import Sequence

import msgspec

from opencode.message import message_pb2
from opencode.turn import turn_pb2, turn_service_pb2
from turnwire.api.wire.requests import fields
from turnwire.api.wire.requests.checks import Checks
from turnwire.api.wire.requests.fingerprints import fingerprint
from turnwire.core.intake.inputs import NamedRequest, NewTurn
from turnwire.domain.conversation.limits import MAX_PROMPT_CHARACTERS
from turnwire.domain.conversation.turns import BusyPolicy, TurnStatus

_TURN_STATUSES = {turn_pb2.TurnStatus.Value(f"TURN_STATUS_{status.name}"): status for status in TurnStatus}

_POLICIES = {
    turn_pb2.BUSY_POLICY_UNSPECIFIED: BusyPolicy.QUEUE,
    turn_pb2.BUSY_POLICY_QUEUE: BusyPolicy.QUEUE,
    turn_pb2.BUSY_POLICY_REJECT: BusyPolicy.REJECT,
}


def start_turn_request(request: turn_service_pb2.StartTurnRequest) -> tuple[NamedRequest, NewTurn]:
    """Returns the name of the request and how to answer the message. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    checks.required("session_id", request.session_id)
    checks.required("user_message_id", request.user_message_id)
    named = NamedRequest(
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint("start_turn", request),
    )
    answer = new_turn(checks.within("settings"), request.settings)
    answer = msgspec.structs.replace(answer, when_busy=busy_policy(checks, request.busy_policy))
    checks.done()
    return named, answer


def busy_policy(checks: Checks, sent: turn_pb2.BusyPolicy.ValueType) -> BusyPolicy:
    """Returns what happens while another turn runs."""
    if sent not in _POLICIES:
        checks.fail("busy_policy", "is not a policy of this server")
    return _POLICIES.get(sent, BusyPolicy.QUEUE)


def new_turn(checks: Checks, sent: message_pb2.SendMessageRequest | turn_pb2.TurnSettings) -> NewTurn:
    """Returns how a message is to be answered."""
    agent = checks.at_most("agent", sent.agent, 256)
    system = checks.at_most("system", sent.system, MAX_PROMPT_CHARACTERS)
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
