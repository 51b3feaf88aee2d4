"""Turns: reads how each was answered, even after its events are gone."""

import msgspec

from turnwire.core.environment import Environment
from turnwire.core.turns.registry import Turns
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.principal import Principal
from turnwire.ports.pages import Page, TurnPage


class TurnRecords:
    """The use cases about turns. Every method may raise SessionNotFound and StorageError."""

    def __init__(self, environment: Environment, turns: Turns) -> None:
        """Takes the ports and the turns."""
        self._environment = environment
        self._turns = turns

    async def get(self, principal: Principal, session_id: str, turn_id: str) -> Turn:
        """Returns the current state of a turn. Raises TurnNotFound."""
        return self._as_it_is(await self._environment.store.of(principal.tenant).turn(session_id, turn_id))

    async def list(
        self, principal: Principal, session_id: str, page: Page, statuses: frozenset[TurnStatus]
    ) -> TurnPage:
        """Returns turns in the order in which their messages were accepted.

        Args:
            principal: The caller.
            session_id: The session.
            page: The requested page.
            statuses: Return only turns with one of these statuses.

        Raises:
            InvalidRequest: the page token is not from this listing.
        """
        await self._environment.session(principal, session_id)
        running = TurnStatus.WAITING if self._is_waiting(session_id) else TurnStatus.RUNNING
        stored = statuses & {TurnStatus.QUEUED, TurnStatus.ENDED}
        if running in statuses:
            stored |= {TurnStatus.RUNNING}
        found = await self._environment.store.of(principal.tenant).turns(session_id, page, stored)
        return TurnPage(tuple(map(self._as_it_is, found.turns)), found.next_token)

    def _as_it_is(self, turn: Turn) -> Turn:
        """Returns a stored turn, completed with facts that only the running turn has."""
        live = self._turns.live(turn.session_id)
        if live is None or live.turn.turn_id != turn.turn_id or turn.status is not TurnStatus.RUNNING:
            return turn
        return msgspec.structs.replace(turn, status=TurnStatus.WAITING) if live.open_requests else turn

    def _is_waiting(self, session_id: str) -> bool:
        live = self._turns.live(session_id)
        return live is not None and live.open_requests > 0
