"""Requests of the contract as inputs of the core, checked for form."""

from collections.abc import Sequence

import msgspec

from opencode.event import event_pb2, session_event_pb2
from opencode.message import content_pb2, message_pb2
from opencode.turn import turn_pb2
from turnwire.api.wire import fields
from turnwire.api.wire.checks import Checks
from turnwire.api.wire.fingerprints import fingerprint
from turnwire.core.intake.inputs import NewMessage, NewTurn
from turnwire.core.use_cases.explanation import ExplainRequest
from turnwire.core.watches.watch import WatchRequest
from turnwire.domain.conversation.events import UNFILTERED_KINDS
from turnwire.domain.conversation.messages import MessageType
from turnwire.domain.conversation.turns import BusyPolicy, TurnStatus
from turnwire.ports.store import Page

DEFAULT_PAGE_SIZE = 100

_APPENDABLE = {
    content_pb2.MESSAGE_TYPE_USER: MessageType.USER,
    content_pb2.MESSAGE_TYPE_SYSTEM: MessageType.SYSTEM,
    content_pb2.MESSAGE_TYPE_HOST: MessageType.HOST,
    content_pb2.MESSAGE_TYPE_TOOL_RESULT: MessageType.TOOL_RESULT,
}
_POLICIES = {
    turn_pb2.BUSY_POLICY_UNSPECIFIED: BusyPolicy.QUEUE,
    turn_pb2.BUSY_POLICY_QUEUE: BusyPolicy.QUEUE,
    turn_pb2.BUSY_POLICY_REJECT: BusyPolicy.REJECT,
}
_TURN_STATUSES = {turn_pb2.TurnStatus.Value(f"TURN_STATUS_{status.name}"): status for status in TurnStatus}

KIND_NAMES = {
    number: "".join(word.capitalize() for word in name.removeprefix("EVENT_KIND_").split("_"))
    for name, number in session_event_pb2.EventKind.items()
    if number
}
"""Class names in `domain.conversation.events` of the durable kinds."""

MAX_TOKEN_CHARACTERS = 512
"""What the contract promises of resume tokens."""

_DELTA_MODES = event_pb2.DeltaMode.values()


def send_request(request: message_pb2.SendMessageRequest) -> tuple[NewMessage, NewTurn]:
    """Returns the message to store and how to answer it. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    if request.busy_policy not in _POLICIES:
        checks.fail("busy_policy", "is not a policy of this server")
    message = NewMessage(
        session_id=checks.at_most("session_id", request.session_id, 256),
        parts=fields.parts(checks, request.parts, MessageType.USER),
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint("send", request),
        metadata_json=checks.json_object("metadata_json", request.metadata_json),
        sender=checks.at_most("sender", request.sender, 1024),
        sender_name=checks.at_most("sender_name", request.sender_name, 1024),
    )
    turn = _turn(checks, request)
    checks.done()
    return message, msgspec.structs.replace(turn, when_busy=_POLICIES[request.busy_policy])


def append_request(request: message_pb2.AppendMessageRequest) -> NewMessage:
    """Returns the message to store. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    message_type = _APPENDABLE.get(request.type)
    if message_type is None:
        checks.fail("type", "is not USER, SYSTEM, HOST or TOOL_RESULT", "REQUIRED")
        message_type = MessageType.USER
    message = NewMessage(
        session_id=checks.required("session_id", request.session_id),
        type=message_type,
        parts=fields.parts(checks, request.parts, message_type),
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint("append", request),
        metadata_json=checks.json_object("metadata_json", request.metadata_json),
        sender=checks.at_most("sender", request.sender, 1024),
        sender_name=checks.at_most("sender_name", request.sender_name, 1024),
    )
    checks.done()
    return message


def explain_request(request: message_pb2.ExplainContextRequest) -> ExplainRequest:
    """Returns what to explain. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    explained = ExplainRequest(
        session_id=checks.required("session_id", request.session_id),
        parts=fields.parts(checks, request.parts, MessageType.USER) if request.parts else (),
        turn=_turn(checks.within("settings"), request.settings),
    )
    checks.done()
    return explained


def watch_request(request: event_pb2.WatchEventsRequest) -> WatchRequest:
    """Returns what to watch."""
    checks = Checks()
    if request.HasField("after_sequence") and not request.session_id:
        checks.fail("after_sequence", "is for a watch of one session: use resume_token or from_beginning")
    if request.HasField("from_beginning") and not request.from_beginning:
        checks.fail("from_beginning", "is true or not set")
    if request.HasField("resume_token"):
        checks.required("resume_token", checks.at_most("resume_token", request.resume_token, MAX_TOKEN_CHARACTERS))
    for index, kind in enumerate(request.kinds):
        if kind not in KIND_NAMES:
            checks.fail(f"kinds[{index}]", "is not a kind that this server knows")
    if request.delta_mode not in _DELTA_MODES:
        checks.fail("delta_mode", "is not a mode of this server")
    checks.done()
    kinds = frozenset(KIND_NAMES[kind] for kind in request.kinds)
    return WatchRequest(
        session_id=request.session_id or None,
        after=request.after_sequence if request.WhichOneof("start") in ("after_sequence", "from_beginning") else None,
        resume_token=request.resume_token,
        include_deltas=request.delta_mode != event_pb2.DELTA_MODE_NONE,
        kinds=kinds | UNFILTERED_KINDS if kinds else None,
        fail_if_compacted=request.fail_if_compacted,
    )


def turn_statuses(asked: Sequence[turn_pb2.TurnStatus.ValueType]) -> frozenset[TurnStatus]:
    """Returns the statuses of a filter; all of them when it is empty."""
    checks = Checks()
    for index, number in enumerate(asked):
        if number not in _TURN_STATUSES:
            checks.fail(f"statuses[{index}]", "is not a status of this server")
    checks.done()
    return frozenset(_TURN_STATUSES[number] for number in asked) or frozenset(TurnStatus)


def page(page_size: int, page_token: str, *, newest_first: bool = False, default: int | None = None) -> Page:
    """Returns which page to read; size 0 is the default, where None reads all."""
    checks = Checks()
    size = checks.page_size(page_size) or default
    if page_token and size is None:
        checks.fail("page_token", "needs a page_size")
    checks.done()
    return Page(size=size, token=page_token, newest_first=newest_first)


def required_ids(**ids: str) -> None:
    """Raises InvalidRequest naming every id that is empty."""
    checks = Checks()
    for field, value in ids.items():
        checks.required(field, value)
    checks.done()


def _turn(checks: Checks, sent: message_pb2.SendMessageRequest | turn_pb2.TurnSettings) -> NewTurn:
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
