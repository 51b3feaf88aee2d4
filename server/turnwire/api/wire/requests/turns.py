"""Reads how a turn is to be answered and which turns are asked for, and checks the form."""

from collections.abc import Sequence

import msgspec

from opencode.message import message_pb2
from opencode.turn import turn_pb2, turn_service_pb2
from turnwire.api.wire.requests import fields
from turnwire.api.wire.requests.checks import Checks
from turnwire.api.wire.requests.fingerprints import fingerprint
from turnwire.api.wire.requests.watches import MAX_TOKEN_CHARACTERS
from turnwire.core.intake.requests import NamedRequest, NewTurn, QueueEdit, Regeneration
from turnwire.domain.conversation.limits import MAX_PROMPT_CHARACTERS
from turnwire.domain.conversation.messages import MessageType
from turnwire.domain.conversation.turns import BusyPolicy, TurnStatus
from turnwire.ports.conversations import AlternativesOf

_TURN_STATUSES = {turn_pb2.TurnStatus.Value(f"TURN_STATUS_{status.name}"): status for status in TurnStatus}

_POLICIES = {
    turn_pb2.BUSY_POLICY_UNSPECIFIED: BusyPolicy.QUEUE,
    turn_pb2.BUSY_POLICY_QUEUE: BusyPolicy.QUEUE,
    turn_pb2.BUSY_POLICY_REJECT: BusyPolicy.REJECT,
    turn_pb2.BUSY_POLICY_INTERRUPT: BusyPolicy.INTERRUPT,
    turn_pb2.BUSY_POLICY_STEER: BusyPolicy.STEER,
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


def regenerate_request(request: turn_service_pb2.RegenerateMessageRequest) -> tuple[Regeneration, NewTurn]:
    """Returns what to answer again, and how. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    policy = busy_policy(checks, request.busy_policy)
    if policy is BusyPolicy.STEER:
        checks.fail("busy_policy", "is STEER, and a new answer is a turn of its own")
    sent = request.new_parts
    asked = Regeneration(
        session_id=checks.required("session_id", request.session_id),
        message_id=checks.required("message_id", request.message_id),
        parts=fields.parts(checks, sent, MessageType.USER, "new_parts") if sent else (),
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint("regenerate", request),
    )
    answer = new_turn(checks.within("settings"), request.settings)
    checks.done()
    return asked, msgspec.structs.replace(answer, when_busy=policy)


def alternatives_request(request: turn_service_pb2.ListAlternativesRequest) -> AlternativesOf:
    """Returns which alternatives are asked for. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    checks.required("session_id", request.session_id)
    if not request.HasField("previous_message_id"):
        checks.required("message_id", request.message_id)
    elif request.message_id:
        checks.fail("previous_message_id", "is set together with message_id: only one of them names the message")
    checks.done()
    return AlternativesOf(request.message_id, request.previous_message_id)


def select_request(request: turn_service_pb2.SelectAlternativeRequest) -> tuple[NamedRequest, int | None]:
    """Returns a request's name and the sequence that it expects. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    checks.required("session_id", request.session_id)
    checks.required("message_id", request.message_id)
    named = NamedRequest(
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint("select", request),
    )
    checks.done()
    return named, request.expected_sequence if request.HasField("expected_sequence") else None


def turn_token(request: turn_service_pb2.WatchTurnRequest) -> str:
    """Returns the resume token of a watch of a turn; "" for none. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    checks.required("session_id", request.session_id)
    checks.required("turn_id", request.turn_id)
    if request.HasField("resume_token"):
        checks.required("resume_token", checks.at_most("resume_token", request.resume_token, MAX_TOKEN_CHARACTERS))
    checks.done()
    return request.resume_token


def edit_request(request: turn_service_pb2.EditQueuedMessageRequest) -> QueueEdit:
    """Returns how to change a waiting message. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    policy = busy_policy(checks, request.busy_policy) if request.busy_policy else None
    if policy is BusyPolicy.REJECT:
        checks.fail("busy_policy", "is for messages that do not wait")
    if not request.parts and policy is None:
        checks.fail("parts", "is empty, and so is busy_policy: nothing would change", "REQUIRED")
    edit = _queue_edit(checks, "edit_queued", request)
    parts = fields.parts(checks, request.parts, MessageType.USER) if request.parts else ()
    checks.done()
    return msgspec.structs.replace(edit, parts=parts, policy=policy)


def move_request(request: turn_service_pb2.MoveQueuedMessageRequest) -> QueueEdit:
    """Returns where to move a waiting message. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    if request.before_message_id and request.before_message_id == request.message_id:
        checks.fail("before_message_id", "is the message itself")
    edit = _queue_edit(checks, "move_queued", request)
    checks.done()
    return msgspec.structs.replace(edit, before_message_id=request.before_message_id)


def remove_request(request: turn_service_pb2.RemoveQueuedMessageRequest) -> QueueEdit:
    """Returns which waiting message to remove. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    edit = _queue_edit(checks, "remove_queued", request)
    checks.done()
    return edit


def _queue_edit(
    checks: Checks,
    what: str,
    request: turn_service_pb2.EditQueuedMessageRequest
    | turn_service_pb2.MoveQueuedMessageRequest
    | turn_service_pb2.RemoveQueuedMessageRequest,
) -> QueueEdit:
    return QueueEdit(
        session_id=checks.required("session_id", request.session_id),
        message_id=checks.required("message_id", request.message_id),
        expected_revision=request.expected_revision if request.HasField("expected_revision") else None,
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint(what, request),
    )


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
    if not checks.few("statuses", asked, 16, "statuses"):
        checks.done()
    for index, number in enumerate(asked):
        if number not in _TURN_STATUSES:
            checks.fail(f"statuses[{index}]", "is not a status of this server")
    checks.done()
    return frozenset(_TURN_STATUSES[number] for number in asked) or frozenset(TurnStatus)
