"""Tools, their calls, permission requests and questions as messages of the contract."""

import msgspec

from opencode.question import question_pb2
from opencode.tool import tool_pb2
from turnwire.api.wire.answers.files import file
from turnwire.api.wire.answers.times import milliseconds, timestamp
from turnwire.core.use_cases.catalog import ToolPage
from turnwire.domain.conversation import messages as m
from turnwire.domain.conversation.permissions import PermissionAction, PermissionChoice, PermissionRequest
from turnwire.domain.conversation.questions import LinkForm, Question, QuestionAction
from turnwire.domain.conversation.turns import ToolDefinition
from turnwire.ports.pages import OpenCall
from turnwire.ports.tools import SourceState

PERMISSION_REPLIES = {
    choice: tool_pb2.PermissionReply.Value(f"PERMISSION_REPLY_{choice.name}") for choice in PermissionChoice
}
PERMISSION_ACTIONS = {
    action: tool_pb2.PermissionAction.Value(f"PERMISSION_ACTION_{action.name}") for action in PermissionAction
}
QUESTION_ACTIONS = {
    action: question_pb2.QuestionAction.Value(f"QUESTION_ACTION_{action.name}") for action in QuestionAction
}
SOURCE_STATES = {state: tool_pb2.ToolSourceState.Value(f"TOOL_SOURCE_STATE_{state.name}") for state in SourceState}


def tool_call(part_id: str, call: m.ToolUse) -> tool_pb2.ToolCallState:
    """Returns a tool call with its result."""
    return tool_pb2.ToolCallState(
        id=part_id,
        name=call.name,
        status=call.status.value,
        call_id=call.call_id or None,
        input_json=call.input_json,
        output=call.output,
        error=call.error,
        logs=call.logs,
        metadata_json=call.metadata_json,
        started_at=None if call.started_at is None else milliseconds(call.started_at),
        finished_at=None if call.finished_at is None else milliseconds(call.finished_at),
        permission_id=call.permission_id or None,
        files=map(file, call.files),
        full_output=None if call.full_output is None else file(call.full_output),
        lease=None if call.lease is None else lease(call.lease),
    )


def lease(value: m.Lease) -> tool_pb2.ToolCallLease:
    """Returns the claim of a client."""
    return tool_pb2.ToolCallLease(lease_id=value.lease_id, holder=value.holder, expire_time=timestamp(value.expires_at))


def open_call(value: OpenCall) -> tool_pb2.OpenToolCall:
    """Returns an open call and where it is."""
    return tool_pb2.OpenToolCall(
        session_id=value.session_id,
        message_id=value.message_id,
        turn_id=value.turn_id,
        part_index=value.part.index,
        tool_call=tool_call_of(value.part),
    )


def tool_call_of(part: m.Part) -> tool_pb2.ToolCallState:
    """Returns the tool call that a part holds."""
    if not isinstance(part.content, m.ToolUse):
        raise TypeError(f"part {part.part_id} is not a tool call")
    return tool_call(part.part_id, part.content)


def permission(value: PermissionRequest) -> tool_pb2.PermissionRequest:
    """Returns a permission request."""
    return tool_pb2.PermissionRequest(
        id=value.permission_id,
        type=value.tool,
        pattern=value.patterns,
        session_id=value.session_id,
        message_id=value.message_id,
        call_id=value.call_id or None,
        title=value.title,
        metadata_json=value.metadata_json,
        created_at=milliseconds(value.created_at),
        tool_call_id=value.tool_call_id,
        turn_id=value.turn_id,
    )


def question(value: Question) -> question_pb2.Question:
    """Returns a question."""
    form = value.form
    return question_pb2.Question(
        question_id=value.question_id,
        session_id=value.session_id,
        turn_id=value.turn_id,
        message_id=value.message_id,
        tool_call_id=value.tool_call_id,
        source=value.source,
        prompt=value.prompt,
        schema=None if isinstance(form, LinkForm) else question_pb2.SchemaForm(schema_json=form.schema_json),
        link=question_pb2.LinkForm(url=form.url) if isinstance(form, LinkForm) else None,
        create_time=timestamp(value.created_at),
        expire_time=timestamp(value.expires_at),
        metadata_json=msgspec.json.encode({"tool": value.tool}).decode(),
    )


def tools(value: ToolPage) -> tool_pb2.ListToolsResponse:
    """Returns the server's tools with their sources."""
    sources = {source.name: source for source in value.sources}
    return tool_pb2.ListToolsResponse(
        tools=[
            tool_pb2.ToolInfo(
                name=tool.name,
                description=tool.description,
                input_schema_json=tool.input_schema_json,
                source=tool.source,
                state=SOURCE_STATES[sources[tool.source].state],
                error=value.problems.get(tool.name) or sources[tool.source].error,
                permission=PERMISSION_ACTIONS[value.permissions[tool.name]],
            )
            for tool in value.tools
        ],
        sources=[
            tool_pb2.ToolSource(name=source.name, state=SOURCE_STATES[source.state], error=source.error)
            for source in value.sources
        ],
        next_page_token=value.next_token,
    )


def tool_definition(value: ToolDefinition) -> tool_pb2.ToolDefinition:
    """Returns a tool that a client declared."""
    return tool_pb2.ToolDefinition(
        name=value.name, description=value.description, input_schema_json=value.input_schema_json
    )
