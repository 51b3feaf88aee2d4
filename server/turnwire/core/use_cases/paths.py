"""The path of a conversation: messages leave it and join it, by being taken back, restored or chosen."""

from msgspec import Struct

from turnwire.core.intake.requests import NamedRequest, Receipt, receipt_record
from turnwire.core.use_cases.use_case import UseCase
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged
from turnwire.domain.principal import Principal
from turnwire.ports.commit import HideMessages, NewEvent, PathEnd, RequireHead, SelectPath, ShowMessages, Work
from turnwire.ports.conversations import AlternativesOf
from turnwire.ports.pages import AlternativesPage, Page


class PathChange(Struct, frozen=True):
    """A change of the path."""

    sequence: int
    """The session's head just before the event."""
    messages: int
    """Number of messages that left or joined; 0 in the answer to a retry, for which it is no longer known."""


class Paths(UseCase):
    """The use cases that move the tip of a conversation.

    Each is one commit, in which the store finds the messages, so that a message stored meanwhile is either included or
    not. Every change continues when it is cancelled, and is idempotent when the request is named. Each may raise
    SessionNotFound, TurnInProgress, InvalidRequest (the request's name was used for another one) and StorageError.
    """

    async def clear(self, principal: Principal, session_id: str, request: NamedRequest) -> PathChange:
        """Takes the complete conversation back."""
        event = ConversationChanged(ConversationChange.CLEARED, None)
        return await self._once(principal, session_id, request, Work((HideMessages(""),), (NewEvent(event),)))

    async def revert(
        self, principal: Principal, session_id: str, before_message_id: str, request: NamedRequest
    ) -> PathChange:
        """Takes a message and all later ones back. Raises MessageNotFound when the conversation does not have it."""
        event = ConversationChanged(ConversationChange.REVERTED, None)
        work = Work((HideMessages(before_message_id),), (NewEvent(event),))
        return await self._once(principal, session_id, request, work)

    async def restore(self, principal: Principal, session_id: str, request: NamedRequest) -> PathChange:
        """Restores what was taken back last. Raises NothingToRestore when nothing was, or a turn has begun since."""
        # the restored messages were published before: clients read them again
        event = ConversationChanged(ConversationChange.RESTORED, None, reread=True)
        return await self._once(principal, session_id, request, Work((ShowMessages(),), (NewEvent(event),)))

    async def select(
        self,
        principal: Principal,
        session_id: str,
        message_id: str,
        request: NamedRequest,
        expected_sequence: int | None,
    ) -> PathChange:
        """Leads the path through a message to its newest end.

        Raises:
            MessageNotFound: there is no such message, or it was taken back.
            StaleVersion: the session's head is not the expected one.
        """
        event = ConversationChanged(ConversationChange.ALTERNATIVE_SELECTED, None)
        required = () if expected_sequence is None else (RequireHead(expected_sequence),)
        work = Work((*required, SelectPath(message_id, PathEnd.NEWEST)), (NewEvent(event),))
        return await self._once(principal, session_id, request, work, message_id)

    async def alternatives(
        self, principal: Principal, session_id: str, asked: AlternativesOf, page: Page
    ) -> AlternativesPage:
        """Returns alternatives, oldest first, with the content streamed so far. Raises MessageNotFound."""
        await self._environment.session(principal, session_id)
        await self._turns.flush(session_id)
        return await self._of(principal).alternatives(session_id, asked, page)

    async def _once(
        self, principal: Principal, session_id: str, request: NamedRequest, work: Work, message_id: str = ""
    ) -> PathChange:
        """Carries a change out. The store adds the last message that stays to its event."""

        async def carry_out() -> PathChange:
            await self._environment.session(principal, session_id)
            receipt = Receipt(session_id=session_id, message_id=message_id)
            named = work + receipt_record(principal, request, receipt)
            committed = await self._turns.change_idle(principal.tenant, session_id, named)
            moved = committed.rewound.messages if committed.rewound is not None else 0
            return PathChange(committed.before_sequence, moved)

        made = await self._requests.once(principal, request, carry_out)
        return PathChange(made.sequence, 0) if isinstance(made, Receipt) else made
