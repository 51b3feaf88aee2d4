"""Requests to every method of the contract, with everything in them that belongs to a tenant."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from docs.reference.field_numbers import modules
from opencode.agent.agent_pb2 import ListAgentsRequest
from opencode.event.event_pb2 import SubscribeGlobalEventsRequest, WatchEventsRequest
from opencode.file.file_pb2 import DownloadFileRequest
from opencode.file.upload_pb2 import CreateUploadRequest, DeleteUploadRequest, GetUploadRequest, WriteUploadRequest
from opencode.message.content_pb2 import MESSAGE_TYPE_TOOL_RESULT, MESSAGE_TYPE_USER, ToolResultContent
from opencode.message.message_pb2 import (
    AbortSessionRequest,
    AppendMessageRequest,
    ExplainContextRequest,
    GetMessageRequest,
    GetMessagesRequest,
    ListMessagesRequest,
    MessagePart,
    SendMessageRequest,
    StreamMessageRequest,
)
from opencode.model.model_pb2 import ModelName
from opencode.provider.provider_pb2 import GetProvidersRequest
from opencode.question.question_pb2 import QUESTION_ACTION_DECLINE, AnswerQuestionRequest, ListQuestionsRequest
from opencode.search.search_pb2 import SEARCH_ORDER_NEWEST, SearchMessagesRequest
from opencode.server.server_pb2 import GetServerInfoRequest
from opencode.session.session_pb2 import (
    ArchiveSessionRequest,
    ClearSessionRequest,
    CreateSessionRequest,
    DeleteSessionRequest,
    ForkSessionRequest,
    GetSessionRequest,
    ListSessionsRequest,
    RestoreSessionRequest,
    RevertSessionRequest,
    UnarchiveSessionRequest,
    UpdateDirectoryRequest,
)
from opencode.tool.tool_pb2 import (
    ClaimToolCallRequest,
    ListOpenToolCallsRequest,
    ListPermissionsRequest,
    ListToolsRequest,
    PermissionResponse,
    ReleaseToolCallRequest,
    RenewToolCallRequest,
    SubmitToolResultRequest,
    ToolResultFile,
)
from opencode.transfer.transfer_pb2 import ExportSessionsRequest, ImportSessionsRequest
from opencode.turn.turn_pb2 import BUSY_POLICY_REJECT, BUSY_POLICY_STEER, TurnSettings
from opencode.turn.turn_service_pb2 import (
    EditQueuedMessageRequest,
    GetTurnRequest,
    ListAlternativesRequest,
    ListQueueRequest,
    ListTurnsRequest,
    MoveQueuedMessageRequest,
    RegenerateMessageRequest,
    RemoveQueuedMessageRequest,
    SelectAlternativeRequest,
    StartTurnRequest,
    WatchTurnRequest,
)
from opencode.usage.usage_pb2 import (
    USAGE_DIMENSION_DAY,
    USAGE_DIMENSION_MODEL,
    USAGE_DIMENSION_SESSION,
    USAGE_DIMENSION_SUBJECT,
    ListQuotasRequest,
    QueryUsageRequest,
)
from tests.support.clients.belongings import Belongings
from tests.support.clients.conversation import ask, change_of, file, text

Make = Callable[[Belongings], Message]

REQUESTS: dict[str, tuple[Make, ...]] = {
    "agent.AgentService.ListAgents": (lambda _: ListAgentsRequest(),),
    "event.EventService.SubscribeGlobalEvents": (
        lambda b: SubscribeGlobalEventsRequest(session_ids=[b.session_id]),
        lambda _: SubscribeGlobalEventsRequest(),
    ),
    "event.EventService.WatchEvents": (
        lambda b: WatchEventsRequest(session_id=b.session_id, resume_token=b.tokens["session"]),
        lambda b: WatchEventsRequest(session_id=b.session_id, after_sequence=0),
        lambda b: WatchEventsRequest(resume_token=b.tokens["all"]),
        lambda b: WatchEventsRequest(resume_token=b.tokens["all"], fail_if_compacted=True),
        lambda _: WatchEventsRequest(from_beginning=True),
    ),
    "file.FileService.DownloadFile": (lambda b: DownloadFileRequest(session_id=b.session_id, sha256=b.sha256),),
    "file.UploadService.CreateUpload": (lambda b: CreateUploadRequest(filename="a.zip", request_id=b.request_id),),
    "file.UploadService.WriteUpload": (
        lambda b: WriteUploadRequest(upload_id=b.upload_id, offset=0, data=b"four"),
        lambda b: WriteUploadRequest(upload_id=b.upload_id, offset=4, data=b"more", last=True),
    ),
    "file.UploadService.GetUpload": (lambda b: GetUploadRequest(upload_id=b.upload_id),),
    "file.UploadService.DeleteUpload": (lambda b: DeleteUploadRequest(upload_id=b.upload_id),),
    "message.MessageService.SendMessage": (
        lambda b: ask("Hello", b.session_id, request_id=b.request_id),
        lambda b: ask("Hello", request_id=b.request_id),
        lambda b: ask("Hello", b.session_id, busy_policy=BUSY_POLICY_STEER, expected_turn_id=b.turn_id),
        lambda b: SendMessageRequest(session_id=b.session_id, parts=[file(upload_id=b.upload_id)]),
    ),
    "message.MessageService.GetMessages": (
        lambda b: GetMessagesRequest(session_id=b.session_id, page_size=1, page_token=b.tokens["GetMessages"]),
        lambda b: GetMessagesRequest(session_id=b.session_id),
    ),
    "message.MessageService.AbortSession": (
        lambda b: AbortSessionRequest(session_id=b.session_id, expected_turn_id=b.turn_id),
        lambda b: AbortSessionRequest(session_id=b.session_id),
    ),
    "message.MessageService.StreamMessage": (
        lambda b: StreamMessageRequest(message=ask("Hello", request_id=b.request_id)),
        lambda b: StreamMessageRequest(message=ask("Hello", b.session_id, busy_policy=BUSY_POLICY_REJECT)),
        lambda b: StreamMessageRequest(message=ask("Hello", busy_policy=BUSY_POLICY_STEER, expected_turn_id=b.turn_id)),
        lambda b: StreamMessageRequest(message=SendMessageRequest(parts=[file(upload_id=b.upload_id)])),
    ),
    "message.MessageService.GetMessage": (
        lambda b: GetMessageRequest(session_id=b.session_id, message_id=b.message_id),
        lambda b: GetMessageRequest(session_id=b.session_id, message_request_id=b.request_id),
    ),
    "message.MessageService.ListMessages": (
        lambda b: ListMessagesRequest(session_id=b.session_id, page_size=1, page_token=b.tokens["ListMessages"]),
    ),
    "message.MessageService.AppendMessage": (
        lambda b: AppendMessageRequest(
            session_id=b.session_id, type=MESSAGE_TYPE_USER, parts=[text("more")], request_id=b.request_id
        ),
        lambda b: AppendMessageRequest(
            session_id=b.session_id,
            type=MESSAGE_TYPE_TOOL_RESULT,
            parts=[MessagePart(tool_result=ToolResultContent(tool_call_id=b.ended_call_id, output="later"))],
        ),
        lambda b: AppendMessageRequest(
            session_id=b.session_id, type=MESSAGE_TYPE_USER, parts=[file(upload_id=b.upload_id)]
        ),
    ),
    "message.MessageService.ExplainContext": (
        lambda b: ExplainContextRequest(session_id=b.session_id),
        lambda b: ExplainContextRequest(session_id=b.session_id, parts=[file(upload_id=b.upload_id)]),
    ),
    "provider.ProviderService.GetProviders": (lambda _: GetProvidersRequest(),),
    "search.SearchService.SearchMessages": (
        lambda b: SearchMessagesRequest(query="words", session_ids=[b.session_id]),
        lambda b: SearchMessagesRequest(
            query="words", order=SEARCH_ORDER_NEWEST, page_size=1, page_token=b.tokens["SearchMessages"]
        ),
        lambda _: SearchMessagesRequest(query="words"),
        lambda b: SearchMessagesRequest(query=f"plan OR {b.name}"),
    ),
    "server.ServerService.GetServerInfo": (lambda _: GetServerInfoRequest(),),
    "session.SessionService.ListSessions": (
        lambda b: ListSessionsRequest(page_size=1, page_token=b.tokens["ListSessions"]),
        lambda _: ListSessionsRequest(),
    ),
    "session.SessionService.CreateSession": (lambda b: CreateSessionRequest(title="Plans", request_id=b.request_id),),
    "session.SessionService.DeleteSession": (lambda b: DeleteSessionRequest(session_id=b.session_id),),
    "session.SessionService.UpdateSessionDirectory": (
        lambda b: UpdateDirectoryRequest(session_id=b.session_id, directory="/tmp"),
    ),
    "session.SessionService.ArchiveSession": (
        lambda b: ArchiveSessionRequest(session_id=b.session_id, request_id=b.request_id),
    ),
    "session.SessionService.UnarchiveSession": (
        lambda b: UnarchiveSessionRequest(session_id=b.session_id, request_id=b.request_id),
    ),
    "session.SessionService.ClearSession": (
        lambda b: ClearSessionRequest(session_id=b.session_id, request_id=b.request_id),
    ),
    "question.QuestionService.AnswerQuestion": (
        lambda b: AnswerQuestionRequest(
            session_id=b.session_id, question_id=b.question_id, action=QUESTION_ACTION_DECLINE, request_id=b.request_id
        ),
    ),
    "question.QuestionService.ListQuestions": (
        lambda b: ListQuestionsRequest(page_size=1, page_token=b.tokens["ListQuestions"]),
        lambda b: ListQuestionsRequest(session_id=b.session_id),
        lambda _: ListQuestionsRequest(),
    ),
    "session.SessionService.ForkSession": (
        lambda b: ForkSessionRequest(session_id=b.session_id, through_message_id=b.message_id, request_id=b.request_id),
        lambda b: ForkSessionRequest(session_id=b.session_id),
    ),
    "session.SessionService.GetSession": (lambda b: GetSessionRequest(session_id=b.session_id),),
    "session.SessionService.UpdateSession": (
        lambda b: _with(change_of(b.session_id, title="Mine"), request_id=b.request_id),
    ),
    "session.SessionService.RevertSession": (
        lambda b: RevertSessionRequest(
            session_id=b.session_id, before_message_id=b.message_id, request_id=b.request_id
        ),
    ),
    "session.SessionService.RestoreSession": (
        lambda b: RestoreSessionRequest(session_id=b.session_id, request_id=b.request_id),
    ),
    "tool.PermissionService.RespondToPermission": (
        lambda b: PermissionResponse(session_id=b.session_id, permission_id=b.permission_id, response="approve"),
    ),
    "tool.PermissionService.ListPermissions": (
        lambda b: ListPermissionsRequest(page_size=1, page_token=b.tokens["ListPermissions"]),
        lambda b: ListPermissionsRequest(session_id=b.session_id),
        lambda _: ListPermissionsRequest(),
    ),
    "tool.ToolService.SubmitToolResult": (
        lambda b: SubmitToolResultRequest(session_id=b.session_id, tool_call_id=b.waiting_call_id, output="seen"),
        lambda b: SubmitToolResultRequest(
            session_id=b.session_id, tool_call_id=b.leased_call_id, lease_id=b.lease_id, output="seen"
        ),
        lambda b: SubmitToolResultRequest(
            session_id=b.session_id,
            tool_call_id=b.waiting_call_id,
            output="seen",
            files=[ToolResultFile(upload_id=b.upload_id)],
        ),
    ),
    "tool.ToolService.ListOpenToolCalls": (
        lambda b: ListOpenToolCallsRequest(page_size=1, page_token=b.tokens["ListOpenToolCalls"]),
        lambda b: ListOpenToolCallsRequest(session_id=b.session_id),
        lambda _: ListOpenToolCallsRequest(),
    ),
    "tool.ToolService.ClaimToolCall": (
        lambda b: ClaimToolCallRequest(
            session_id=b.session_id, tool_call_id=b.waiting_call_id, holder="me", request_id=b.request_id
        ),
    ),
    "tool.ToolService.RenewToolCall": (
        lambda b: RenewToolCallRequest(
            session_id=b.session_id, tool_call_id=b.leased_call_id, lease_id=b.lease_id, request_id=b.request_id
        ),
    ),
    "tool.ToolService.ReleaseToolCall": (
        lambda b: ReleaseToolCallRequest(
            session_id=b.session_id, tool_call_id=b.leased_call_id, lease_id=b.lease_id, request_id=b.request_id
        ),
    ),
    "tool.ToolService.ListTools": (lambda b: ListToolsRequest(session_id=b.session_id),),
    "transfer.TransferService.ExportSessions": (
        lambda b: ExportSessionsRequest(session_ids=[b.session_id], include_files=True),
        lambda _: ExportSessionsRequest(include_files=True),
    ),
    "transfer.TransferService.ImportSessions": (
        lambda b: ImportSessionsRequest(upload_id=b.upload_id, request_id=b.request_id),
    ),
    "turn.TurnService.GetTurn": (lambda b: GetTurnRequest(session_id=b.session_id, turn_id=b.turn_id),),
    "turn.TurnService.ListTurns": (
        lambda b: ListTurnsRequest(session_id=b.session_id, page_size=1, page_token=b.tokens["ListTurns"]),
    ),
    "turn.TurnService.WatchTurn": (
        lambda b: WatchTurnRequest(session_id=b.session_id, turn_id=b.ended_turn_id),
        lambda b: WatchTurnRequest(session_id=b.session_id, turn_id=b.ended_turn_id, resume_token=b.tokens["session"]),
    ),
    "turn.TurnService.ListQueue": (
        lambda b: ListQueueRequest(session_id=b.session_id, page_size=1, page_token=b.tokens["ListQueue"]),
    ),
    "turn.TurnService.EditQueuedMessage": (
        lambda b: EditQueuedMessageRequest(
            session_id=b.session_id, message_id=b.queued_id, parts=[text("changed")], request_id=b.request_id
        ),
        lambda b: EditQueuedMessageRequest(
            session_id=b.session_id, message_id=b.queued_id, parts=[file(upload_id=b.upload_id)]
        ),
    ),
    "turn.TurnService.ListAlternatives": (
        lambda b: ListAlternativesRequest(
            session_id=b.session_id, message_id=b.answer_id, page_size=1, page_token=b.tokens["ListAlternatives"]
        ),
        lambda b: ListAlternativesRequest(session_id=b.session_id, previous_message_id=b.message_id),
    ),
    "turn.TurnService.MoveQueuedMessage": (
        lambda b: MoveQueuedMessageRequest(
            session_id=b.session_id, message_id=b.last_queued_id, before_message_id=b.queued_id, request_id=b.request_id
        ),
    ),
    "turn.TurnService.RegenerateMessage": (
        lambda b: RegenerateMessageRequest(
            session_id=b.session_id,
            message_id=b.message_id,
            settings=TurnSettings(model=ModelName(provider_id="offline", model_id="echo")),
            busy_policy=BUSY_POLICY_REJECT,
            request_id=b.request_id,
        ),
        lambda b: RegenerateMessageRequest(
            session_id=b.session_id, message_id=b.message_id, new_parts=[file(upload_id=b.upload_id)]
        ),
    ),
    "turn.TurnService.RemoveQueuedMessage": (
        lambda b: RemoveQueuedMessageRequest(session_id=b.session_id, message_id=b.queued_id, request_id=b.request_id),
    ),
    "turn.TurnService.SelectAlternative": (
        lambda b: SelectAlternativeRequest(session_id=b.session_id, message_id=b.message_id, request_id=b.request_id),
    ),
    "turn.TurnService.StartTurn": (
        lambda b: StartTurnRequest(
            session_id=b.session_id,
            user_message_id=b.message_id,
            settings=TurnSettings(model=ModelName(provider_id="offline", model_id="echo")),
            busy_policy=BUSY_POLICY_REJECT,
            request_id=b.request_id,
        ),
    ),
    "usage.UsageService.ListQuotas": (
        lambda b: ListQuotasRequest(page_size=1, page_token=b.tokens["ListQuotas"]),
        lambda _: ListQuotasRequest(),
    ),
    "usage.UsageService.QueryUsage": (
        lambda b: QueryUsageRequest(group_by=[USAGE_DIMENSION_SESSION], page_size=1, page_token=b.tokens["QueryUsage"]),
        lambda _: QueryUsageRequest(group_by=[USAGE_DIMENSION_DAY, USAGE_DIMENSION_MODEL, USAGE_DIMENSION_SUBJECT]),
    ),
}
"""Requests with everything that a method takes of what belongs to a tenant, by method."""

ID_FIELDS = {
    "question_id",
    *("session_id", "session_ids", "message_id", "turn_id", "expected_turn_id", "tool_call_id", "permission_id"),
    *(
        "through_message_id",
        "before_message_id",
        "previous_message_id",
        "user_message_id",
        "sha256",
        "upload_id",
        "lease_id",
        "request_id",
        "message_request_id",
        "page_token",
        "resume_token",
    ),
}
"""Fields of requests that take what the server or a caller has named."""

OTHER_FIELDS = {
    "call_id",  # of a provider; looked for in the conversation of the session only
    "model_id",
    "provider_id",
    "prefix_sha256",  # of bytes that the caller has
    "response_id",  # of a provider; it is kept as reported
}
"""Fields with the names of ids that name nothing of a tenant."""

LEFT_OUT = {
    ("ListTools", "page_token"),  # the server's tools are of no tenant
    ("SendMessage", "tool_call_id"),  # a message for a model has no tool results; nor have the next three
    ("StreamMessage", "tool_call_id"),
    ("EditQueuedMessage", "tool_call_id"),
    ("ExplainContext", "tool_call_id"),
    ("RegenerateMessage", "tool_call_id"),
}
"""Fields that no row has: the method and the field."""


def _with(message: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(message, name, value)
    return message


def _methods() -> Iterator[MethodDescriptor]:
    for module in modules():
        for service in module.DESCRIPTOR.services_by_name.values():  # type: ignore[attr-defined]
            yield from service.methods


METHODS = {method.full_name.removeprefix("opencode."): method for method in _methods()}
"""All methods by name, without the name that all packages begin with."""


def texts(message: Descriptor, above: tuple[str, ...] = ()) -> Iterator[FieldDescriptor]:
    """Yields all fields of text in a message and the messages in it."""
    for one in message.fields:
        if one.type == FieldDescriptor.TYPE_STRING:
            yield one
        elif one.message_type is not None and one.message_type.full_name not in above:
            yield from texts(one.message_type, (*above, one.message_type.full_name))


def sample(mark: str) -> Belongings:
    """Returns belongings of nobody, whose ids are their names."""
    names = [field.name for field in fields(Belongings) if field.name != "tokens"]
    lists = (
        "ListMessages",
        "GetMessages",
        "ListPermissions",
        "ListQuestions",
        "ListTurns",
        "ListQueue",
        "ListAlternatives",
        "ListSessions",
        "ListOpenToolCalls",
    )
    lists += ("ListQuotas", "QueryUsage", "SearchMessages")
    tokens = {name: f"{name}-{mark}" for name in (*lists, "session", "all")}
    return Belongings(**{name: f"{name}-{mark}" for name in names}, tokens=tokens)


def ids_in(message: Message) -> Iterator[str]:
    """Yields the names of the fields of a message that take ids and are set."""
    for one, value in message.ListFields():
        if one.name in ID_FIELDS:
            yield one.name
        elif one.message_type is not None:
            for inner in [value] if isinstance(value, Message) else value:
                yield from ids_in(inner)


def mixtures(make: Make, mine: Belongings, other: Belongings) -> Iterator[Message]:
    """Yields the request with all ids of the other, and with each one of them among one's own."""
    used = sorted(set(ids_in(make(mine))))
    if used:
        yield make(other)
    if len(used) > 1:
        for name in used:
            yield _mixed(make(mine), make(other), name)


def _mixed(mine: Message, other: Message, name: str) -> Message:
    for one, value in other.ListFields():
        if one.name == name:
            setattr(mine, name, value)
        elif isinstance(value, Message):
            _mixed(getattr(mine, one.name), value, name)
        elif one.message_type is not None:
            for own, others in zip(getattr(mine, one.name), value, strict=True):
                _mixed(own, others, name)
    return mine
