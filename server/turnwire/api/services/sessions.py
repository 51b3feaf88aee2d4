"""opencode.session.SessionService."""

from opencode.session import session_pb2 as pb
from turnwire.api.wire import from_proto, session_requests, to_proto
from turnwire.core.use_cases.sessions import Sessions
from turnwire.core.watches.resume_tokens import ResumeTokens
from turnwire.domain.principal import Principal


class SessionService:
    """Method by method as the contract describes them."""

    def __init__(self, sessions: Sessions, tokens: ResumeTokens) -> None:
        """Takes the use cases."""
        self._tokens = tokens
        self._sessions = sessions

    async def ListSessions(self, principal: Principal, request: pb.ListSessionsRequest) -> pb.SessionList:
        """Returns sessions."""
        found = await self._sessions.list(principal, from_proto.page(request.page_size, request.page_token))
        return pb.SessionList(
            sessions=map(to_proto.session, found.sessions), next_page_token=found.next_token, truncated=found.truncated
        )

    async def CreateSession(self, principal: Principal, request: pb.CreateSessionRequest) -> pb.SessionInfo:
        """Creates a session."""
        view = await self._sessions.create(principal, session_requests.create_session_request(request))
        return to_proto.session(view, with_tools=True)

    async def DeleteSession(self, principal: Principal, request: pb.DeleteSessionRequest) -> pb.DeleteSessionResponse:
        """Deletes a session."""
        from_proto.required_ids(session_id=request.session_id)
        await self._sessions.delete(principal, request.session_id)
        return pb.DeleteSessionResponse()

    async def UpdateSessionDirectory(self, principal: Principal, request: pb.UpdateDirectoryRequest) -> pb.SessionInfo:
        """Changes the working directory."""
        change = session_requests.update_directory_request(request)
        return to_proto.session(await self._sessions.update(principal, request.session_id, change), with_tools=True)

    async def GetSession(self, principal: Principal, request: pb.GetSessionRequest) -> pb.GetSessionResponse:
        """Returns one session and what it has spent."""
        from_proto.required_ids(session_id=request.session_id)
        view = await self._sessions.get(principal, request.session_id)
        spent = await self._sessions.spent(principal, request.session_id)
        return pb.GetSessionResponse(
            session=to_proto.session(view, with_tools=True),
            usage=to_proto.usage(spent.usage),
            cost_pico_usd=spent.cost_pico_usd,
            resume_token=await self._tokens.give_reader(request.session_id, view.session.head_sequence),
        )

    async def UpdateSession(self, principal: Principal, request: pb.UpdateSessionRequest) -> pb.UpdateSessionResponse:
        """Changes settings."""
        change = session_requests.update_session_request(request)
        view = await self._sessions.update(principal, request.session_id, change)
        return pb.UpdateSessionResponse(session=to_proto.session(view, with_tools=True))
