"""The calls that the chat makes, over one channel."""

import uuid

import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from opencode.event.event_pb2_grpc import EventServiceStub
from opencode.message.content_pb2 import SessionMessage
from opencode.message.message_pb2 import (
    AbortSessionRequest,
    ListMessagesRequest,
    MessagePart,
    SendMessageRequest,
    SendMessageResponse,
    TextPart,
)
from opencode.message.message_pb2_grpc import MessageServiceStub
from opencode.question.question_pb2 import AnswerQuestionRequest, Question
from opencode.question.question_pb2_grpc import QuestionServiceStub
from opencode.search.search_pb2 import SearchMessagesRequest, SearchMessagesResponse
from opencode.search.search_pb2_grpc import SearchServiceStub
from opencode.server.server_pb2 import GetServerInfoRequest
from opencode.server.server_pb2_grpc import ServerServiceStub
from opencode.session.session_pb2 import (
    ClearSessionRequest,
    ForkSessionRequest,
    GetSessionRequest,
    ListSessionsRequest,
    RestoreSessionRequest,
    SessionInfo,
    SessionSettings,
    UpdateSessionRequest,
)
from opencode.session.session_pb2_grpc import SessionServiceStub
from opencode.tool.tool_pb2 import PermissionRequest, PermissionResponse
from opencode.tool.tool_pb2_grpc import PermissionServiceStub
from turnwire.cli.chat.asking.answers import Answer
from turnwire.cli.chat.asking.filling import Reply
from turnwire.cli.chat.plain.lines import selection

RECALLED_MESSAGES = 8
"""Messages of a session that is gone on with."""

LISTED_SESSIONS = 20

FOUND_MESSAGES = 10

START_SECONDS = 10.0
"""A server that does not say who it is within this time is not there."""


SEND_SECONDS = 60.0
"""A large message over a slow line takes a while; a connection that hangs is given up."""


class ServerCalls:
    """Typed calls. Each raises grpc.aio.AioRpcError when it fails."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        """Takes an open channel; its owner closes it."""
        self.events = EventServiceStub(channel)
        self._messages = MessageServiceStub(channel)
        self._server = ServerServiceStub(channel)
        self._sessions = SessionServiceStub(channel)
        self._search = SearchServiceStub(channel)
        self._permissions = PermissionServiceStub(channel)
        self._questions = QuestionServiceStub(channel)

    async def check(self) -> None:
        """Returns when the server answers and knows the caller."""
        await self._server.GetServerInfo(GetServerInfoRequest(), timeout=START_SECONDS)

    async def send(self, session_id: str, text: str, model: str, request_id: str) -> SendMessageResponse:
        """Sends a message. May be repeated with the same `request_id`."""
        part = MessagePart(text=TextPart(text=text))
        request = SendMessageRequest(session_id=session_id, parts=[part], model=selection(model), request_id=request_id)
        return await self._messages.SendMessage(request, timeout=SEND_SECONDS)

    async def abort(self, session_id: str, turn_id: str = "") -> None:
        """Ends a turn and lets the next message begin; without a turn, ends any and drops what waits."""
        request = AbortSessionRequest(session_id=session_id, expected_turn_id=turn_id, keep_queue=bool(turn_id))
        await self._messages.AbortSession(request)

    async def answer(self, request: PermissionRequest, answer: Answer) -> None:
        """Answers a permission request."""
        await self._permissions.RespondToPermission(
            PermissionResponse(
                session_id=request.session_id,
                permission_id=request.id,
                response=answer.response,
                reason=answer.reason,
            )
        )

    async def answer_question(self, question: Question, reply: Reply, request_id: str) -> None:
        """Answers a question of a tool. May be repeated with the same `request_id`."""
        await self._questions.AnswerQuestion(
            AnswerQuestionRequest(
                session_id=question.session_id,
                question_id=question.question_id,
                action=reply.action,
                content_json=reply.content_json,
                reason=reply.reason,
                request_id=request_id,
            ),
            timeout=SEND_SECONDS,
        )

    async def session(self, session_id: str) -> SessionInfo:
        """Returns a session."""
        return (await self._sessions.GetSession(GetSessionRequest(session_id=session_id))).session

    async def sessions(self) -> list[SessionInfo]:
        """Returns the sessions that changed last, newest first, without archived ones."""
        listed = await self._sessions.ListSessions(ListSessionsRequest(page_size=LISTED_SESSIONS, archived=False))
        return list(listed.sessions)

    async def search(self, words: str) -> SearchMessagesResponse:
        """Returns the messages of all sessions that fit the words best, best first."""
        return await self._search.SearchMessages(SearchMessagesRequest(query=words, page_size=FOUND_MESSAGES))

    async def last_messages(self, session_id: str) -> tuple[list[SessionMessage], str]:
        """Returns the newest messages, oldest first, and the token from which to watch what follows."""
        request = ListMessagesRequest(session_id=session_id, page_size=RECALLED_MESSAGES, newest_first=True)
        page = await self._messages.ListMessages(request)
        return list(reversed(page.messages)), page.resume_token

    async def rename(self, session_id: str, title: str) -> None:
        """Sets the title of a session; "" unsets it."""
        request = UpdateSessionRequest(
            session_id=session_id, settings=SessionSettings(title=title), update_mask=FieldMask(paths=["title"])
        )
        await self._sessions.UpdateSession(request)

    async def fork(self, session_id: str) -> str:
        """Copies a session and returns the id of the copy."""
        request = ForkSessionRequest(session_id=session_id, request_id=str(uuid.uuid4()))
        return (await self._sessions.ForkSession(request)).session.id

    async def clear(self, session_id: str) -> int:
        """Hides the conversation and returns how many messages that were."""
        return (await self._sessions.ClearSession(ClearSessionRequest(session_id=session_id))).hidden_messages

    async def restore(self, session_id: str) -> int:
        """Brings hidden messages back and returns how many."""
        return (await self._sessions.RestoreSession(RestoreSessionRequest(session_id=session_id))).restored_messages
