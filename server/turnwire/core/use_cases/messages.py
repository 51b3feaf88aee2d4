"""Messages of sessions: sends, appends, reads and aborts. Every message enters a conversation here."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from turnwire.core.actor import LARGE_BYTES
from turnwire.core.environment import Environment
from turnwire.core.intake.contents import Contents, load_contents
from turnwire.core.intake.readable_files import readable_files
from turnwire.core.intake.requests import NamedRequests, NewMessage, NewTurn, Receipt, receipt_record
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.schedule import Accepted, AppendMessage
from turnwire.core.turns.session import Aborted, SessionTurns
from turnwire.core.use_cases.choices import check_answer, check_spending, choose_turn
from turnwire.core.use_cases.tool_results import ToolResults
from turnwire.core.use_cases.use_case import UseCase
from turnwire.domain.conversation.events import MessageAdded, SessionCreated, SessionView
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType
from turnwire.domain.conversation.sessions import Session, first_words_of
from turnwire.domain.conversation.titles import first_words
from turnwire.domain.errors import MessageNotFound
from turnwire.domain.principal import Principal
from turnwire.ports.commit import Change, NewEvent, NoteFirstWords, PutMessage, PutSession, PutTurn, Work
from turnwire.ports.pages import DisplayPage, MessagePage, Page


class Conversations(UseCase):
    """The use cases about messages. Every method may raise SessionNotFound and StorageError."""

    def __init__(
        self,
        environment: Environment,
        turns: Turns,
        requests: NamedRequests,
        *,
        tool_results: ToolResults,
    ) -> None:
        """Takes what it shares with other use cases; `tool_results` folds appended results into calls."""
        super().__init__(environment, turns, requests)
        self._tool_results = tool_results

    async def send(self, principal: Principal, new: NewMessage, answer: NewTurn) -> Receipt:
        """Stores a user message for a model to answer; returns when the message is durable.

        Idempotent when the request is named. Safe to cancel: the message is stored completely or not at all.

        Raises:
            InvalidRequest: a part, the model or the agent is invalid, or the request id was used for another message.
            ProviderCredentialsRejected: the model's provider has no key.
            UploadNotFound: a part names an upload that does not exist, or that another request has used.
            TurnNotRunning: it is to act on a turn that does not run.
            TurnInProgress, TooManyTurns, ShuttingDown: see `Turns.accept`.
            QuotaExceeded: a quota of the tenant is used up.
        """
        return await self._once(principal, new, partial(self._send, principal, new, answer))

    async def append(self, principal: Principal, new: NewMessage) -> Receipt:
        """Stores a message without starting a turn. Idempotent when the request is named.

        Safe to cancel: the message is stored completely or not at all. A tool result is also shown with its call when
        that call is known and has no result of its own.

        Raises:
            InvalidRequest: a part is invalid, or the request id was used for another message.
            ToolCallNotFound: a result names a call that the conversation does not have.
            UploadNotFound: a part names an upload that does not exist, or that another request has used.
            QuotaExceeded: the tenant may not store more.
        """
        return await self._once(principal, new, partial(self._append, principal, new))

    async def message(self, principal: Principal, session_id: str, message_id: str) -> Message:
        """Returns a message with the content received so far. Raises MessageNotFound."""
        await self._flush(principal, session_id)
        return await self._of(principal).message(session_id, message_id)

    async def message_of_request(self, principal: Principal, session_id: str, request_id: str) -> Message:
        """Returns the message that a request of the caller stored, by the request's name. Raises MessageNotFound."""
        await self._flush(principal, session_id)
        receipt = await self._requests.receipt(principal, request_id)
        if receipt is not None and receipt.session_id == session_id and receipt.message_id:
            message = await self._of(principal).message(session_id, receipt.message_id)
            if message.request_id == request_id:  # else the request was about a message that another request had stored
                return message
        raise MessageNotFound(request_id)

    async def messages(self, principal: Principal, session_id: str, page: Page) -> MessagePage:
        """Returns messages in conversation order; one that streams has the content received so far."""
        await self._flush(principal, session_id)
        return await self._of(principal).messages(session_id, page)

    async def display(self, principal: Principal, session_id: str, page: Page) -> DisplayPage:
        """Returns display forms in conversation order; otherwise like `messages`.

        A page without a size has the newest messages that fit into `CoreSettings.max_list_bytes`. Raises
        AnswerTooLarge.
        """
        await self._flush(principal, session_id)
        page = self._environment.settings.bounded(page)
        return await self._of(principal).display(session_id, page)

    async def abort(self, principal: Principal, session_id: str, expected_turn_id: str, *, keep_queue: bool) -> Aborted:
        """Ends the running turn and returns when its end is durable; see `Turns.abort`. Idempotent."""
        await self._environment.session(principal, session_id)
        return await self._turns.abort(session_id, expected_turn_id, keep_queue=keep_queue)

    async def _flush(self, principal: Principal, session_id: str) -> None:
        """Makes durable what has streamed so far in a session of the caller."""
        await self._environment.session(principal, session_id)
        await self._turns.flush(session_id)

    async def _once(
        self, principal: Principal, new: NewMessage, store: Callable[[], Coroutine[Any, Any, Receipt]]
    ) -> Receipt:
        # a request without a name ends with its caller, which cannot retry it
        return await (self._requests.once(principal, new, store) if new.request_id else store())

    async def _send(self, principal: Principal, new: NewMessage, answer: NewTurn) -> Receipt:
        environment = self._environment
        now = environment.clock()
        session, opening = await self._session_for(principal, new, now)
        check_spending(environment, principal.tenant)
        message_id = environment.new_id("msg")
        turn = choose_turn(environment, principal, session, answer, message_id=message_id, now=now)
        await check_answer(environment.settings, answer)
        contents = await self._contents(new, session, answer.size_bytes)
        message = self._new_message(new, turn.user_message_id, session, contents, now)
        message = msgspec.structs.replace(message, turn_id=turn.turn_id)
        files, words = contents.changes(now), _first_words(session, message)

        def store(accepted: Accepted) -> Work:
            added = NewEvent(MessageAdded(accepted.message), turn.turn_id)
            named = receipt_record(principal, new, accepted.receipt)
            adding = Work((PutTurn(accepted.turn), PutMessage(accepted.message), *words), (added,))
            return opening + Work(files) + named + adding

        _, receipt = await self._accept(
            turn,
            message,
            answer.when_busy,
            store,
            expected_turn_id=answer.expected_turn_id,
            alone=contents.size_bytes > LARGE_BYTES,
        )
        return receipt

    async def _append(self, principal: Principal, new: NewMessage) -> Receipt:
        environment = self._environment
        now = environment.clock()
        session = await environment.session(principal, new.session_id)
        contents = await self._contents(new, session)
        files = contents.changes(now)
        message = self._new_message(new, environment.new_id("msg"), session, contents, now)
        receipt = Receipt(session_id=message.session_id, message_id=message.message_id)
        further = receipt_record(principal, new, receipt) + environment.within_quotas(principal.tenant)

        async def store(owner: SessionTurns, message: Message, folded: Work, version: int | None = None) -> int:
            added = Work((*files, PutMessage(message)), (NewEvent(MessageAdded(message)),))
            command = AppendMessage(added + folded + further, version)
            asked = owner.ask(command, alone=contents.size_bytes > LARGE_BYTES)
            return (await asyncio.shield(asked)).before_sequence

        if new.type is MessageType.TOOL_RESULT:
            sequence = await self._tool_results.fold(principal, message, now, store)
        else:
            with self._turns.held(principal.tenant, message.session_id) as owner:
                sequence = await store(owner, message, Work(_first_words(session, message)))
        return msgspec.structs.replace(receipt, sequence=sequence)

    async def _session_for(self, principal: Principal, new: NewMessage, now: datetime) -> tuple[Session, Work]:
        """Returns the message's session; creates one, with the returned work, when the message names none."""
        if new.session_id:
            return await self._environment.session(principal, new.session_id), Work()
        session_id = self._environment.new_id("ses")
        session = Session(session_id=session_id, tenant=principal.tenant, created_at=now, updated_at=now)
        return session, Work((PutSession(session),), (NewEvent(SessionCreated(SessionView(session))),))

    async def _contents(self, new: NewMessage, session: Session, turn_bytes: int = 0) -> Contents:
        readable = readable_files(self._environment, session)
        limits = self._environment.settings.limits
        return await load_contents(new.parts, readable, limits, new.other_bytes + turn_bytes)

    def _new_message(
        self, new: NewMessage, message_id: str, session: Session, contents: Contents, now: datetime
    ) -> Message:
        message = Message(
            message_id=message_id,
            session_id=session.session_id,
            type=new.type,
            status=MessageStatus.COMPLETE,
            created_at=now,
            updated_at=now,
            parts=contents.parts(self._environment.new_id),
            sender=new.sender,
            sender_name=new.sender_name,
            request_id=new.request_id,
            metadata_json=new.metadata_json,
        )
        return message if new.report is None else msgspec.structs.replace(message, **msgspec.structs.asdict(new.report))


def _first_words(session: Session, message: Message) -> tuple[Change, ...]:
    """Returns the change that records the first words of a session. The store decides which message is the first."""
    words = "" if first_words_of(session) else first_words(message)
    return (NoteFirstWords(message.message_id, words),) if words else ()
