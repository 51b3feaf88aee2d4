"""Alternatives: the messages that share the one before them, and the choice of one for the path."""

from turnwire.core.environment import Environment
from turnwire.core.intake.inputs import NamedRequest
from turnwire.core.intake.once import NamedRequests, receipt_record
from turnwire.core.intake.receipts import Receipt
from turnwire.core.turns.registry import Turns
from turnwire.core.work import Work
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged
from turnwire.domain.principal import Principal
from turnwire.ports.commit import Change, NewEvent, PathEnd, RequireHead, SelectPath
from turnwire.ports.conversations import AlternativesOf
from turnwire.ports.pages import AlternativesPage, Page


class Alternatives:
    """The use cases about alternatives.

    Each may raise SessionNotFound, MessageNotFound, InvalidRequest and StorageError.
    """

    def __init__(self, environment: Environment, turns: Turns, requests: NamedRequests) -> None:
        """Takes the ports, and what it shares with other use cases."""
        self._environment = environment
        self._turns = turns
        self._requests = requests

    async def list(self, principal: Principal, session_id: str, asked: AlternativesOf, page: Page) -> AlternativesPage:
        """Returns alternatives, the oldest first, with what has streamed of them so far."""
        await self._environment.session(principal, session_id)
        await self._turns.flush(session_id)
        return await self._environment.store.of(principal.tenant).alternatives(session_id, asked, page)

    async def select(
        self,
        principal: Principal,
        session_id: str,
        message_id: str,
        request: NamedRequest,
        expected_sequence: int | None,
    ) -> int:
        """Leads the path through a message to its newest end. Returns the session's head before, when that is durable.

        Idempotent when the request is named. Continues when it is cancelled.

        Raises:
            TurnInProgress: a turn runs in the session.
            StaleVersion: the session's head is not the expected one.
        """

        async def carry_out() -> Receipt:
            await self._environment.session(principal, session_id)
            required: tuple[Change, ...] = () if expected_sequence is None else (RequireHead(expected_sequence),)
            told = NewEvent(ConversationChanged(ConversationChange.ALTERNATIVE_SELECTED, None))
            work = Work((*required, SelectPath(message_id, PathEnd.NEWEST)), (told,))
            work += receipt_record(principal, request, Receipt(session_id=session_id, message_id=message_id))
            committed = await self._turns.change_idle(principal.tenant, session_id, work)
            return Receipt(session_id=session_id, sequence=committed.before_sequence)

        return (await self._requests.once(principal, request, carry_out)).sequence
