"""Requests about tool calls and permissions as inputs of the core, checked for form."""

from opencode.tool import tool_pb2
from turnwire.api.wire.requests import fields
from turnwire.api.wire.requests.checks import Checks
from turnwire.core.intake.attachments import NewFile
from turnwire.core.intake.inputs import NewToolResult
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice

MAX_RESULT_FILES = 20
MAX_REASON_CHARACTERS = 4096

_RESPONSES = {
    "approve": PermissionChoice.ONCE,
    "once": PermissionChoice.ONCE,
    "always": PermissionChoice.ALWAYS,
    "reject": PermissionChoice.REJECT,
}


def tool_result_request(request: tool_pb2.SubmitToolResultRequest) -> tuple[str, str, NewToolResult]:
    """Returns session, call and result. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    session_id = checks.required("session_id", request.session_id)
    call_id = checks.required("tool_call_id", request.tool_call_id)
    if request.lease_id:
        checks.fail("lease_id", "leases do not exist yet: leave it empty")
    result = NewToolResult(
        output=_output(checks, request),
        is_error=request.is_error,
        metadata_json=checks.json_object("metadata_json", request.metadata_json),
        files=_files(checks, request),
    )
    checks.done()
    return session_id, call_id, result


def permission_answer(request: tool_pb2.PermissionResponse) -> tuple[str, str, PermissionAnswer]:
    """Returns session, permission request and answer. Raises InvalidRequest naming every wrong field."""
    checks = Checks()
    session_id = checks.required("session_id", request.session_id)
    permission_id = checks.required("permission_id", request.permission_id)
    checks.one_of("response", request.response, _RESPONSES, ", ".join(_RESPONSES))
    reason = checks.at_most("reason", request.reason, MAX_REASON_CHARACTERS)
    checks.done()
    return session_id, permission_id, PermissionAnswer(_RESPONSES[request.response], reason)


def _output(checks: Checks, request: tool_pb2.SubmitToolResultRequest) -> str:
    kind = request.WhichOneof("result")
    if kind is None:
        checks.fail("output", "is required, or output_json", "REQUIRED")
    if kind == "output_json":
        return checks.json_text("output_json", request.output_json, required=True)
    return request.output


def _files(checks: Checks, request: tool_pb2.SubmitToolResultRequest) -> tuple[NewFile, ...]:
    if len(request.files) > MAX_RESULT_FILES:
        checks.fail("files", f"more than {MAX_RESULT_FILES} files", "TOO_MANY")
        return ()
    found = []
    for index, sent in enumerate(request.files):
        source = sent.WhichOneof("source")
        if source is None or (source in ("url", "path") and not getattr(sent, source)):
            checks.fail(f"files[{index}].url", "give url, path or data", "REQUIRED")
        found.append(fields.file(checks, f"files[{index}]", sent))
    return tuple(found)
