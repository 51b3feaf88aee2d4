"""Turns: reads their state, even after their events are gone, and finds their events."""

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.turns.registry import Turns
from turnwire.core.watches.resume_tokens import ResumeTokens
from turnwire.core.watches.watch import WatchRequest
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.principal import Principal
from turnwire.ports.pages import Page, TurnPage
from turnwire.ports.store import Standing


class TurnWatch(Struct, frozen=True):
    """The way to the events of a turn."""

    turn_id: str
    """The turn, or the one that its message joined before the watch begins."""
    has_begun: bool
    """True when it had begun before the watch begins."""
    request: WatchRequest
    """The watch of its session that has the events."""


class TurnRecords:
    """The use cases about turns. Every method may raise SessionNotFound and StorageError."""

    def __init__(self, environment: Environment, turns: Turns) -> None:
        """Takes the ports and the turns."""
        self._environment = environment
        self._turns = turns
        self._tokens = ResumeTokens(environment.store)

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

    async def watch(
        self, principal: Principal, session_id: str, turn_id: str, after: int | None, resume_token: str
    ) -> TurnWatch | None:
        """Returns the way to the events of a turn; None when all of them are before the requested position.

        Args:
            principal: The caller.
            session_id: The session.
            turn_id: The turn.
            after: Begin after this sequence; None for the turn's first event.
            resume_token: Begin at the position of this token instead; "" for none.

        Raises:
            TurnNotFound: the session has no such turn.
            InvalidRequest: the token is not for this session.
        """
        reads = self._environment.store.of(principal.tenant)
        head = (await reads.session(session_id)).head_sequence  # before the turn, which may begin meanwhile
        turn = await reads.turn(session_id, turn_id)
        if resume_token:
            place = self._tokens.read(resume_token, principal.tenant, session_id)
            if place.standing is not Standing.PAST:  # the watch reports why
                lost = WatchRequest(session_id=session_id, resume_token=resume_token, fail_if_compacted=True)
                return TurnWatch(turn_id, False, lost)
            after = place.after
        if after is None:
            first = turn.start_sequence or turn.end_sequence
            after = first - 1 if first else head
        while turn.status is TurnStatus.ENDED and turn.end_sequence <= after:
            if not turn.merged_into_turn_id:
                return None
            turn = await reads.turn(session_id, turn.merged_into_turn_id)
        request = WatchRequest(session_id=session_id, after=after, fail_if_compacted=True)
        return TurnWatch(turn.turn_id, 0 < turn.start_sequence <= after, request)

    def _as_it_is(self, turn: Turn) -> Turn:
        """Returns a stored turn, completed with facts that only the running turn has."""
        live = self._turns.live(turn.session_id)
        if live is None or live.turn.turn_id != turn.turn_id or turn.status is not TurnStatus.RUNNING:
            return turn
        return msgspec.structs.replace(turn, status=TurnStatus.WAITING) if live.open_requests else turn

    def _is_waiting(self, session_id: str) -> bool:
        live = self._turns.live(session_id)
        return live is not None and live.open_requests > 0
