"""Requests about tool calls, permissions and questions as inputs of the core, checked for form."""

from datetime import timedelta

import msgspec

from opencode.question import question_pb2
from opencode.tool import tool_pb2
from turnwire.api.wire.requests import fields, pages
from turnwire.api.wire.requests.checks import Checks
from turnwire.api.wire.requests.fingerprints import fingerprint
from turnwire.core.intake.requests import LeaseChange, NewAnswer, NewFile, NewToolResult
from turnwire.domain.conversation.limits import (
    DEFAULT_LEASE,
    MAX_HOLDER_CHARACTERS,
    MAX_LEASE,
    MAX_NEW_LOG_BYTES,
    MAX_NEW_LOG_LINES,
    MAX_RESULT_FILES,
    MIN_LEASE,
)
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice
from turnwire.domain.conversation.questions import QuestionAction, QuestionAnswer
from turnwire.domain.conversation.turns import MAX_TOOLS
from turnwire.ports.pages import Page

MAX_REASON_CHARACTERS = 4096
"""Maximum length of the reason in a reply to a permission request or a question."""
MAX_ID_CHARACTERS = 64
"""Maximum length of an id that the server has made."""
MAX_SECONDS = 10**6
"""Maximum of a time in a request: far over every limit of such a time, and a number that a timedelta holds."""

_RESPONSES = {
    "approve": PermissionChoice.ONCE,
    "once": PermissionChoice.ONCE,
    "always": PermissionChoice.ALWAYS,
    "reject": PermissionChoice.REJECT,
}

_ACTIONS = {
    question_pb2.QUESTION_ACTION_ACCEPT: QuestionAction.ACCEPT,
    question_pb2.QUESTION_ACTION_DECLINE: QuestionAction.DECLINE,
    question_pb2.QUESTION_ACTION_CANCEL: QuestionAction.CANCEL,
}


def tool_result_request(request: tool_pb2.SubmitToolResultRequest) -> tuple[str, str, NewToolResult]:
    """Returns session, call and result. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    session_id = checks.required("session_id", request.session_id)
    call_id = checks.required("tool_call_id", request.tool_call_id)
    result = NewToolResult(
        output=_output(checks, request),
        lease_id=checks.at_most("lease_id", request.lease_id, MAX_ID_CHARACTERS),
        is_error=request.is_error,
        metadata_json=checks.json_object("metadata_json", request.metadata_json),
        files=_files(checks, request),
    )
    checks.done()
    return session_id, call_id, result


def open_calls_request(request: tool_pb2.ListOpenToolCallsRequest) -> tuple[frozenset[str], Page]:
    """Returns the names of tools and the page. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    if len(request.tool_names) > MAX_TOOLS:
        checks.fail("tool_names", f"has more than {MAX_TOOLS} names", "TOO_MANY", MAX_TOOLS)
    for index, name in enumerate(request.tool_names[:MAX_TOOLS]):
        checks.tool_name(f"tool_names[{index}]", name)
    checks.done()
    page = pages.page(request.page_size, request.page_token, default=pages.DEFAULT_PAGE_SIZE)
    return frozenset(request.tool_names), page


def claim_request(request: tool_pb2.ClaimToolCallRequest) -> LeaseChange:
    """Returns the claim. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    checks.required("holder", checks.at_most("holder", request.holder, MAX_HOLDER_CHARACTERS))
    claim = _lease_change(checks, "claim", request)
    checks.done()
    return msgspec.structs.replace(claim, holder=request.holder, duration=_duration(request))


def renew_request(request: tool_pb2.RenewToolCallRequest) -> LeaseChange:
    """Returns what renews a lease. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    if len(request.log_lines) > MAX_NEW_LOG_LINES:
        checks.fail("log_lines", f"has more than {MAX_NEW_LOG_LINES} lines", "TOO_MANY", MAX_NEW_LOG_LINES)
    elif sum(len(line.encode()) for line in request.log_lines) > MAX_NEW_LOG_BYTES:
        checks.fail("log_lines", f"has more than {MAX_NEW_LOG_BYTES} bytes together", "TOO_LONG", MAX_NEW_LOG_BYTES)
    change = _lease_change(checks, "renew", request)
    checks.required("lease_id", checks.at_most("lease_id", request.lease_id, MAX_ID_CHARACTERS))
    checks.done()
    return msgspec.structs.replace(
        change, lease_id=request.lease_id, duration=_duration(request), log_lines=tuple(request.log_lines)
    )


def release_request(request: tool_pb2.ReleaseToolCallRequest) -> LeaseChange:
    """Returns the release. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    release = _lease_change(checks, "release", request)
    checks.required("lease_id", checks.at_most("lease_id", request.lease_id, MAX_ID_CHARACTERS))
    checks.done()
    return msgspec.structs.replace(release, lease_id=request.lease_id)


def _lease_change(
    checks: Checks,
    what: str,
    request: tool_pb2.ClaimToolCallRequest | tool_pb2.RenewToolCallRequest | tool_pb2.ReleaseToolCallRequest,
) -> LeaseChange:
    if not isinstance(request, tool_pb2.ReleaseToolCallRequest) and not MIN_LEASE <= _duration(request) <= MAX_LEASE:
        bounds = f"{MIN_LEASE.total_seconds():g} to {MAX_LEASE.total_seconds():g} seconds"
        checks.fail("duration", f"is not {bounds}", "OUT_OF_RANGE")
    return LeaseChange(
        session_id=checks.required("session_id", request.session_id),
        tool_call_id=checks.required("tool_call_id", request.tool_call_id),
        request_id=checks.at_most("request_id", request.request_id, 128),
        fingerprint=fingerprint(what, request),
    )


def _duration(request: tool_pb2.ClaimToolCallRequest | tool_pb2.RenewToolCallRequest) -> timedelta:
    """Returns how long the lease is to last; a value that is no duration comes out too long or too short."""
    if not request.HasField("duration"):
        return DEFAULT_LEASE
    seconds = min(max(request.duration.seconds, -MAX_SECONDS), MAX_SECONDS)
    return timedelta(seconds=seconds, microseconds=request.duration.nanos // 1000)


def permission_answer(request: tool_pb2.PermissionResponse) -> tuple[str, str, PermissionAnswer]:
    """Returns session, permission request and answer. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    session_id = checks.required("session_id", request.session_id)
    permission_id = checks.required("permission_id", request.permission_id)
    checks.one_of("response", request.response, _RESPONSES, ", ".join(_RESPONSES))
    reason = checks.at_most("reason", request.reason, MAX_REASON_CHARACTERS)
    checks.done()
    return session_id, permission_id, PermissionAnswer(_RESPONSES[request.response], reason)


def question_answer(request: question_pb2.AnswerQuestionRequest) -> NewAnswer:
    """Returns the answer to a question. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    session_id = checks.required("session_id", request.session_id)
    question_id = checks.required("question_id", request.question_id)
    action = _ACTIONS.get(request.action)
    if action is None:
        checks.fail("action", "is not QUESTION_ACTION_ACCEPT, _DECLINE or _CANCEL")
    content_json = checks.json_object("content_json", request.content_json)
    if content_json and action is not QuestionAction.ACCEPT:
        checks.fail("content_json", "is for QUESTION_ACTION_ACCEPT only")
    reason = checks.at_most("reason", request.reason, MAX_REASON_CHARACTERS)
    request_id = checks.at_most("request_id", request.request_id, 128)
    checks.done()
    compared = question_pb2.AnswerQuestionRequest()
    compared.CopyFrom(request)
    compared.ClearField("content_json")  # a digest of a short text gives it away
    return NewAnswer(
        request_id=request_id,
        fingerprint=fingerprint("answer_question", compared),
        session_id=session_id,
        question_id=question_id,
        answer=QuestionAnswer(action or QuestionAction.CANCEL, reason),
        content_json=content_json,
    )


def _output(checks: Checks, request: tool_pb2.SubmitToolResultRequest) -> str:
    kind = request.WhichOneof("result")
    if kind is None:
        checks.fail("output", "is required, or output_json", "REQUIRED")
    if kind == "output_json":
        return checks.json_text("output_json", request.output_json, required=True)
    return request.output


def _files(checks: Checks, request: tool_pb2.SubmitToolResultRequest) -> tuple[NewFile, ...]:
    if len(request.files) > MAX_RESULT_FILES:
        checks.fail("files", f"has more than {MAX_RESULT_FILES} files", "TOO_MANY", MAX_RESULT_FILES)
        return ()
    found = []
    for index, sent in enumerate(request.files):
        source = sent.WhichOneof("source")
        if source is None or (source != "data" and not getattr(sent, source)):
            checks.fail(f"files[{index}].url", "give url, path, data or upload_id", "REQUIRED")
        found.append(fields.file(checks, f"files[{index}]", sent))
    fields.check_uploads(checks, [file.upload_id for file in found], lambda index: f"files[{index}]")
    return tuple(found)
