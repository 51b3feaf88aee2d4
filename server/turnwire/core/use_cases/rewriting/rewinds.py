"""Rewinds: messages are taken back, and brought back."""

from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.inputs import NamedRequest
from turnwire.core.intake.once import NamedRequests, receipt_record
from turnwire.core.intake.receipts import Receipt
from turnwire.core.turns.registry import Turns
from turnwire.core.work import Work
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged
from turnwire.domain.principal import Principal
from turnwire.ports.commit import HideMessages, NewEvent, ShowMessages


class Rewind(Struct, frozen=True):
    """What was hidden or brought back."""

    sequence: int
    """The session's head just before the event."""
    messages: int
    """How many messages; 0 in the answer to a retry, which does not know any more."""


class Rewinds:
    """The use cases that hide messages and bring them back.

    Each is one commit, in which the store finds the messages: whatever is stored meanwhile, it is hidden or it is not.
    Every method continues when it is cancelled, and is idempotent when the request is named. Each may raise
    SessionNotFound, TurnInProgress, InvalidRequest (the request's name was used for another one) and StorageError.
    """

    def __init__(self, environment: Environment, turns: Turns, requests: NamedRequests) -> None:
        """Takes the ports, and what it shares with other use cases."""
        self._environment = environment
        self._turns = turns
        self._requests = requests

    async def clear(self, principal: Principal, session_id: str, request: NamedRequest) -> Rewind:
        """Hides the whole conversation."""
        return await self._once(principal, session_id, request, HideMessages(""), ConversationChange.CLEARED)

    async def revert(
        self, principal: Principal, session_id: str, before_message_id: str, request: NamedRequest
    ) -> Rewind:
        """Hides a message and all behind it. Raises MessageNotFound when the conversation does not have it."""
        change = HideMessages(before_message_id)
        return await self._once(principal, session_id, request, change, ConversationChange.REVERTED)

    async def restore(self, principal: Principal, session_id: str, request: NamedRequest) -> Rewind:
        """Brings back what was hidden last. Raises NothingToRestore when nothing is, or a turn began since."""
        return await self._once(principal, session_id, request, ShowMessages(), ConversationChange.RESTORED)

    async def _once(
        self,
        principal: Principal,
        session_id: str,
        request: NamedRequest,
        change: HideMessages | ShowMessages,
        why: ConversationChange,
    ) -> Rewind:
        async def carry_out() -> Rewind:
            return await self._carry_out(principal, session_id, request, change, why)

        made = await self._requests.once(principal, request, carry_out)
        return Rewind(made.sequence, 0) if isinstance(made, Receipt) else made

    async def _carry_out(
        self,
        principal: Principal,
        session_id: str,
        request: NamedRequest,
        change: HideMessages | ShowMessages,
        why: ConversationChange,
    ) -> Rewind:
        await self._environment.session(principal, session_id)
        # what comes back was told before: clients read it anew; the store fills in the last message that stays
        told = ConversationChanged(why, None, reread=isinstance(change, ShowMessages))
        work = Work((change,), (NewEvent(told),)) + receipt_record(principal, request, Receipt(session_id=session_id))
        committed = await self._turns.change_idle(principal.tenant, session_id, work)
        return Rewind(committed.before_sequence, committed.rewound.messages if committed.rewound is not None else 0)
