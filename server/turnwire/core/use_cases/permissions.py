"""Permission requests: lists the open ones and answers them."""

from turnwire.core.environment import Environment
from turnwire.core.turns.registry import Turns
from turnwire.domain.conversation.permissions import PermissionAnswer
from turnwire.domain.principal import Principal
from turnwire.ports.pages import Page, PermissionPage


class Permissions:
    """The use cases about permission requests. Every method may raise SessionNotFound and StorageError."""

    def __init__(self, environment: Environment, turns: Turns) -> None:
        """Takes the ports and the turns."""
        self._environment = environment
        self._turns = turns

    async def respond(
        self, principal: Principal, session_id: str, permission_id: str, answer: PermissionAnswer
    ) -> None:
        """Answers an open request and returns when that is durable. The first answer wins.

        Idempotent: giving the same answer again succeeds. Safe to cancel: a commit that has begun completes.

        Raises:
            PermissionRequestNotFound: the session never had such a request.
            PermissionAlreadyAnswered: it has another answer, or its turn has ended.
        """
        session = await self._environment.session(principal, session_id)
        await self._turns.answer_permission(session, permission_id, answer)

    async def open(self, principal: Principal, session_id: str, page: Page) -> PermissionPage:
        """Returns a page of unanswered requests, oldest first.

        Args:
            principal: The caller.
            session_id: The session; "" for all sessions of the caller's tenant.
            page: Which of them.

        Raises:
            InvalidRequest: the token is not from this listing.
        """
        if session_id:
            await self._environment.session(principal, session_id)
        return await self._environment.store.of(principal.tenant).open_permissions(session_id or None, page)
