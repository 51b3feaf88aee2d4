"""Requests about messages as inputs of the core, checked for form."""

import msgspec

from opencode.message import content_pb2, message_pb2
from turnwire.api.wire.requests import fields
from turnwire.api.wire.requests.checks import Checks
from turnwire.api.wire.requests.fingerprints import fingerprint
from turnwire.api.wire.requests.turns import busy_policy, new_turn
from turnwire.core.intake.requests import NewMessage, NewTurn
from turnwire.core.use_cases.explanation import ExplainRequest
from turnwire.domain.conversation.messages import MessageType
from turnwire.domain.conversation.turns import BusyPolicy

_APPENDABLE = {
    content_pb2.MESSAGE_TYPE_USER: MessageType.USER,
    content_pb2.MESSAGE_TYPE_ASSISTANT: MessageType.ASSISTANT,
    content_pb2.MESSAGE_TYPE_SYSTEM: MessageType.SYSTEM,
    content_pb2.MESSAGE_TYPE_HOST: MessageType.HOST,
    content_pb2.MESSAGE_TYPE_TOOL_RESULT: MessageType.TOOL_RESULT,
}

_OF_ANSWERS = frozenset(("model_run", "finish_reason", "provider_finish_reason", "usage", "cost_pico_usd"))


def send_request(request: message_pb2.SendMessageRequest) -> tuple[NewMessage, NewTurn]:
    """Returns the message to store and how to answer it. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    when_busy = busy_policy(checks, request.busy_policy)
    message = NewMessage(
        session_id=checks.at_most("session_id", request.session_id, 256),
        parts=fields.parts(checks, request.parts, MessageType.USER),
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint("send", request),
        metadata_json=checks.json_object("metadata_json", request.metadata_json),
        sender=checks.at_most("sender", request.sender, 1024),
        sender_name=checks.at_most("sender_name", request.sender_name, 1024),
    )
    turn = new_turn(checks, request)
    expected = checks.at_most("expected_turn_id", request.expected_turn_id, 256)
    if expected and when_busy not in (BusyPolicy.INTERRUPT, BusyPolicy.STEER):
        checks.fail("expected_turn_id", "needs a busy_policy that acts on a turn")
    checks.done()
    return message, msgspec.structs.replace(turn, when_busy=when_busy, expected_turn_id=expected)


def append_request(request: message_pb2.AppendMessageRequest) -> NewMessage:
    """Returns the message to store. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    message_type = _APPENDABLE.get(request.type)
    if message_type is None:
        checks.fail("type", "is not USER, ASSISTANT, SYSTEM, HOST or TOOL_RESULT", "REQUIRED")
        message_type = MessageType.USER
    is_answer = message_type is MessageType.ASSISTANT
    if not is_answer:
        for field, _ in request.ListFields():
            if field.name in _OF_ANSWERS:
                checks.fail(field.name, "is for a message of type ASSISTANT only")
    message = NewMessage(
        session_id=checks.required("session_id", request.session_id),
        type=message_type,
        parts=fields.parts(checks, request.parts, message_type),
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint("append", request),
        metadata_json=checks.json_object("metadata_json", request.metadata_json),
        sender=checks.at_most("sender", request.sender, 1024),
        sender_name=checks.at_most("sender_name", request.sender_name, 1024),
        report=fields.report(checks, request) if is_answer else None,
    )
    checks.done()
    return message


def check_message_of_request(request: message_pb2.GetMessageRequest) -> None:
    """Checks a request for the message of a named request. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    checks.required("session_id", request.session_id)
    checks.at_most("message_request_id", request.message_request_id, 128)
    if request.message_id:
        checks.fail("message_id", "is set together with message_request_id: only one of them names the message")
    checks.done()


def explain_request(request: message_pb2.ExplainContextRequest) -> ExplainRequest:
    """Returns what to explain. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    explained = ExplainRequest(
        session_id=checks.required("session_id", request.session_id),
        parts=fields.parts(checks, request.parts, MessageType.USER) if request.parts else (),
        turn=new_turn(checks.within("settings"), request.settings),
    )
    checks.done()
    return explained
