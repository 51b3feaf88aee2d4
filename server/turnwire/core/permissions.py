"""Permissions: the requests that are open, and the answers to them."""

from turnwire.core.environment import Environment
from turnwire.core.turns import Turns
from turnwire.domain.errors import PermissionAlreadyAnswered
from turnwire.domain.permissions import Permission, PermissionAnswer


class Permissions:
    """The use cases about permission requests. Every method may raise StorageError."""

    def __init__(self, environment: Environment, turns: Turns) -> None:
        """Takes the ports and who runs the turns."""
        self._environment = environment
        self._turns = turns

    async def respond(self, session_id: str, permission_id: str, answer: PermissionAnswer) -> None:
        """Answers an open request. Idempotent: the answer that a request has is confirmed.

        Raises:
            PermissionRequestNotFound: the session has no such request.
            PermissionAlreadyAnswered: it has another answer.
        """
        permission = await self._environment.store.permission(session_id, permission_id)
        if permission.answer is None:
            raise NotImplementedError
        if permission.answer != answer:
            raise PermissionAlreadyAnswered(f"permission request {permission_id!r} has another answer", permission_id)

    async def open(self, session_id: str) -> tuple[Permission, ...]:
        """Returns the open requests of a session, or of all sessions for "", oldest first.

        Raises:
            SessionNotFound: there is no such session.
        """
        return await self._environment.store.open_permissions(session_id or None)
