"""opencode.session.SessionService."""

from opencode.session import session_pb2 as pb
from turnwire.api.wire.answers import outcomes, sessions
from turnwire.api.wire.long import framed
from turnwire.api.wire.requests import pages
from turnwire.api.wire.requests.checks import required_ids
from turnwire.api.wire.requests.sessions import (
    archive_request,
    create_session_request,
    fork_session_request,
    rewind_request,
    session_filter,
    update_directory_request,
    update_session_request,
)
from turnwire.core.use_cases.forks import SessionForks
from turnwire.core.use_cases.paths import Paths
from turnwire.core.use_cases.sessions import Sessions
from turnwire.core.watches.resume_tokens import ResumeTokens
from turnwire.domain.principal import Principal


class SessionService:
    """Method by method as the contract describes them."""

    def __init__(self, sessions: Sessions, forks: SessionForks, paths: Paths, tokens: ResumeTokens) -> None:
        """Takes the use cases."""
        self._paths = paths
        self._tokens = tokens
        self._forks = forks
        self._sessions = sessions

    async def ListSessions(self, principal: Principal, request: pb.ListSessionsRequest) -> bytes:
        """Returns sessions."""
        page = pages.page(request.page_size, request.page_token)
        found = await self._sessions.list(principal, page, session_filter(request))
        rest = pb.SessionList(next_page_token=found.next_token, truncated=found.truncated)
        return await framed(found.sessions, sessions.session, rest)

    async def CreateSession(self, principal: Principal, request: pb.CreateSessionRequest) -> pb.SessionInfo:
        """Creates a session."""
        view = await self._sessions.create(principal, create_session_request(request))
        return sessions.session(view, with_tools=True)

    async def DeleteSession(self, principal: Principal, request: pb.DeleteSessionRequest) -> pb.DeleteSessionResponse:
        """Deletes a session."""
        required_ids(session_id=request.session_id)
        await self._sessions.delete(principal, request.session_id)
        return pb.DeleteSessionResponse()

    async def UpdateSessionDirectory(self, principal: Principal, request: pb.UpdateDirectoryRequest) -> pb.SessionInfo:
        """Changes the working directory."""
        change = update_directory_request(request)
        return sessions.session(await self._sessions.update(principal, request.session_id, change), with_tools=True)

    async def GetSession(self, principal: Principal, request: pb.GetSessionRequest) -> pb.GetSessionResponse:
        """Returns one session and what it has spent."""
        required_ids(session_id=request.session_id)
        view = await self._sessions.get(principal, request.session_id)
        spent = await self._sessions.spent(principal, request.session_id)
        return pb.GetSessionResponse(
            session=sessions.session(view, with_tools=True),
            usage=outcomes.usage(spent.usage),
            cost_pico_usd=spent.cost_pico_usd,
            resume_token=await self._tokens.give_reader(
                principal.tenant, request.session_id, view.session.head_sequence
            ),
            restorable_message_ids=await self._sessions.restorable(principal, request.session_id),
        )

    async def UpdateSession(self, principal: Principal, request: pb.UpdateSessionRequest) -> pb.UpdateSessionResponse:
        """Changes settings."""
        change = update_session_request(request)
        view = await self._sessions.update(principal, request.session_id, change)
        return pb.UpdateSessionResponse(session=sessions.session(view, with_tools=True))

    async def ForkSession(self, principal: Principal, request: pb.ForkSessionRequest) -> pb.ForkSessionResponse:
        """Copies a session."""
        change = fork_session_request(request)
        fork = await self._forks.fork(principal, request.session_id, request.through_message_id, change)
        session = fork.view.session
        return pb.ForkSessionResponse(
            session=sessions.session(fork.view, with_tools=True),
            message_ids=fork.message_ids,
            resume_token=await self._tokens.give_reader(principal.tenant, session.session_id, session.head_sequence),
        )

    async def ClearSession(self, principal: Principal, request: pb.ClearSessionRequest) -> pb.ClearSessionResponse:
        """Hides the whole conversation."""
        change = await self._paths.clear(principal, request.session_id, rewind_request(request))
        token = self._tokens.give(principal.tenant, request.session_id, change.sequence)
        return pb.ClearSessionResponse(sequence=change.sequence, resume_token=token, hidden_messages=change.messages)

    async def RevertSession(self, principal: Principal, request: pb.RevertSessionRequest) -> pb.RevertSessionResponse:
        """Hides a message and all that come after it."""
        named = rewind_request(request)
        change = await self._paths.revert(principal, request.session_id, request.before_message_id, named)
        token = self._tokens.give(principal.tenant, request.session_id, change.sequence)
        return pb.RevertSessionResponse(sequence=change.sequence, resume_token=token, hidden_messages=change.messages)

    async def RestoreSession(
        self, principal: Principal, request: pb.RestoreSessionRequest
    ) -> pb.RestoreSessionResponse:
        """Brings back what was hidden last."""
        change = await self._paths.restore(principal, request.session_id, rewind_request(request))
        token = self._tokens.give(principal.tenant, request.session_id, change.sequence)
        return pb.RestoreSessionResponse(
            sequence=change.sequence, resume_token=token, restored_messages=change.messages
        )

    async def ArchiveSession(
        self, principal: Principal, request: pb.ArchiveSessionRequest
    ) -> pb.ArchiveSessionResponse:
        """Archives a session."""
        named = archive_request(request)
        marked = await self._sessions.mark_archived(principal, request.session_id, named, is_archived=True)
        token = self._tokens.give(principal.tenant, request.session_id, marked.sequence)
        return pb.ArchiveSessionResponse(
            sequence=marked.sequence, resume_token=token, session=sessions.session(marked.view)
        )

    async def UnarchiveSession(
        self, principal: Principal, request: pb.UnarchiveSessionRequest
    ) -> pb.UnarchiveSessionResponse:
        """Takes a session out of the archive."""
        named = archive_request(request)
        marked = await self._sessions.mark_archived(principal, request.session_id, named, is_archived=False)
        token = self._tokens.give(principal.tenant, request.session_id, marked.sequence)
        return pb.UnarchiveSessionResponse(
            sequence=marked.sequence, resume_token=token, session=sessions.session(marked.view)
        )
