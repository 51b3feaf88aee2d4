"""Permission requests: lists the open ones and answers them."""

from turnwire.core.environment import Environment
from turnwire.core.turns.registry import Turns
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionRequest
from turnwire.domain.pages import page_of
from turnwire.domain.principal import Principal


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

    async def open(
        self, principal: Principal, session_id: str, *, size: int, token: str
    ) -> tuple[tuple[PermissionRequest, ...], str]:
        """Returns a page of unanswered requests, oldest first, and the token of the next page ("" on the last).

        Args:
            principal: The caller.
            session_id: The session; "" for all sessions of the caller's tenant.
            size: Most requests to return, at least 1.
            token: The token from the previous page; "" for the first.

        Raises:
            InvalidRequest: the token is not from this listing.
        """
        if session_id:
            await self._environment.session(principal, session_id)
        found = await self._environment.store.of(principal.tenant).open_permissions(session_id or None)
        listing = f"permissions of {session_id}" if session_id else f"all permissions of {principal.tenant}"
        return page_of(found, _place, listing, size=size, token=token)


def _place(permission: PermissionRequest) -> str:
    """Returns a sort key by age, independent of the form of ids."""
    return f"{permission.created_at.timestamp():020.6f} {permission.permission_id}"
