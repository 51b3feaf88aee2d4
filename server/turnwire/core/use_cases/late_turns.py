"""Answers for stored messages: late ones, and further ones, which make the earlier answers alternatives."""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Struct

from turnwire.core.intake.contents import Contents, load_contents
from turnwire.core.intake.readable_files import readable_files
from turnwire.core.intake.requests import NamedRequest, NewTurn, Receipt, Regeneration, receipt_record
from turnwire.core.turns.schedule import Accepted, leading_work
from turnwire.core.use_cases.choices import check_answer, check_spending, choose_turn
from turnwire.core.use_cases.use_case import UseCase
from turnwire.domain.conversation.events import MessageAdded, MessageRemoved, MessageReplaced
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import BusyPolicy, Turn
from turnwire.domain.errors import InvalidRequest, StaleVersion, ToolCallsOpen, TurnExists
from turnwire.domain.principal import Principal
from turnwire.domain.text import utf8_bytes
from turnwire.ports.commit import NewEvent, PutMessage, PutTurn, RequireHead, Work
from turnwire.ports.conversations import AlternativesOf, StoredQuestion
from turnwire.ports.pages import Page
from turnwire.ports.store import TenantStore

MAX_ATTEMPTS = 20
"""Maximum number of times that the message is read again because the session changed before the turn was stored."""


MAX_BEHIND = 100
"""Maximum messages after the results with which a conversation ends; each is read."""

_ASIDE = frozenset((MessageType.TOOL_RESULT, MessageType.SYSTEM, MessageType.HOST))
"""Messages that may follow an answer before its calls have all their results."""


class LateTurn(Struct, frozen=True):
    """A turn for a stored message."""

    turn: Turn
    receipt: Receipt


class LateTurns(UseCase):
    """The use cases that answer stored messages.

    Both are idempotent when the request is named, and continue when they are cancelled. Both may raise SessionNotFound
    and MessageNotFound; InvalidRequest (the model or the agent is invalid, or the request's name was used);
    ProviderCredentialsRejected (the model's provider has no key); what `Turns.accept` raises; and StaleVersion (the
    session changed at every attempt).
    """

    async def start(
        self, principal: Principal, session_id: str, message_id: str, request: NamedRequest, answer: NewTurn
    ) -> LateTurn:
        """Starts a turn for a stored user message, or queues it; returns when that is durable.

        The message moves to the end of the conversation. A message with tool results, which is at the end, stays as it
        is, and its turn never waits.

        Raises:
            InvalidRequest: it is not a user message, and has no results or is not the end of the conversation.
            TurnExists: it has an answer, or a turn that has not ended.
            ToolCallsOpen: some calls of the answer with the results have no result.
        """
        return await self._once(
            principal, request, lambda: self._start(principal, session_id, message_id, request, answer)
        )

    async def regenerate(self, principal: Principal, asked: Regeneration, answer: NewTurn) -> LateTurn:
        """Answers a message again, or an edited form of it, at once or after the turns before.

        Returns when that is durable. The messages after it leave the path when the turn begins.

        Raises:
            MessageNotFound: the message was taken back.
            InvalidRequest: it is neither a question nor an answer, or a part is invalid.
            MessageTooLarge: the edited question is too large.
            UploadNotFound: a part names an upload that does not exist, or that another request has used.
            TurnExists: the message itself waits.
        """
        return await self._once(principal, asked, lambda: self._regenerate(principal, asked, answer))

    async def _once(
        self, principal: Principal, request: NamedRequest, carry_out: Callable[[], Coroutine[Any, Any, LateTurn]]
    ) -> LateTurn:
        made = await self._requests.once(principal, request, carry_out)
        if isinstance(made, LateTurn):
            return made
        return LateTurn(await self._of(principal).turn(made.session_id, made.turn_id), made)

    async def _start(
        self, principal: Principal, session_id: str, message_id: str, request: NamedRequest, answer: NewTurn
    ) -> LateTurn:
        session = await self._environment.session(principal, session_id)
        await check_answer(self._environment.settings, answer, "settings.")

        async def attempt() -> LateTurn:
            question = await self._of(principal).question(session_id, message_id)
            is_question = question.message.type is MessageType.USER
            if is_question:
                _check(question)
                answered = question.message
            else:
                answered = await _check_results(self._of(principal), question)
            turn = self._turn(principal, session, answer, answered.message_id)
            turn = msgspec.structs.replace(turn, is_late=is_question)
            return await self._store_late(principal, question, turn, request, answer)

        return await self._attempts(principal, session_id, message_id, attempt)

    async def _store_late(
        self, principal: Principal, question: StoredQuestion, turn: Turn, request: NamedRequest, answer: NewTurn
    ) -> LateTurn:
        message, when_busy = question.message, answer.when_busy
        if turn.is_late:
            # created now: the start of a turn and its message are stored at one time
            message = msgspec.structs.replace(message, turn_id=turn.turn_id, updated_at=turn.created_at)
        else:
            when_busy = BusyPolicy.REJECT  # the running turn will end the conversation otherwise

        def store(accepted: Accepted) -> Work:
            work = Work((RequireHead(question.sequence),)) + receipt_record(principal, request, accepted.receipt)
            return work + (_moving(question, accepted) if turn.is_late else Work((PutTurn(accepted.turn),)))

        accepted, receipt = await self._accept(turn, message, when_busy, store, alone=True)
        return LateTurn(accepted.turn, receipt)

    async def _regenerate(self, principal: Principal, asked: Regeneration, answer: NewTurn) -> LateTurn:
        environment = self._environment
        session, limits = await environment.session(principal, asked.session_id), environment.settings.limits
        # both before memory is acquired, because they may take long: schemas are checked one at a time, file systems
        # hang
        await check_answer(environment.settings, answer, "settings.")
        contents: Contents | None = None
        if asked.parts:
            readable = readable_files(environment, session)
            contents = await load_contents(asked.parts, readable, limits, answer.size_bytes, "new_parts")

        async def attempt() -> LateTurn:
            head = (await self._of(principal).session(asked.session_id)).head_sequence
            question = await self._question(principal, asked)
            if contents is not None:
                others = utf8_bytes(question.metadata_json) + answer.size_bytes
                contents.check_size(limits, others, "new_parts")
            new_id = environment.new_id("msg")
            answered = question.message_id if contents is None else new_id
            turn = self._turn(principal, session, answer, answered)
            turn = msgspec.structs.replace(turn, regenerates=question.message_id, replaces_turn_id=question.turn_id)
            message = self._standing_in(question, turn, new_id, contents, asked.request_id)
            files = () if contents is None else contents.changes(turn.created_at)

            def store(accepted: Accepted) -> Work:
                work = Work(files) + receipt_record(principal, asked, accepted.receipt)
                return work + _beginning(question, head, accepted)

            accepted, receipt = await self._accept(turn, message, answer.when_busy, store, alone=True)
            return LateTurn(accepted.turn, receipt)

        return await self._attempts(principal, asked.session_id, asked.message_id, attempt)

    async def _attempts(
        self,
        principal: Principal,
        session_id: str,
        message_id: str,
        attempt: Callable[[], Coroutine[Any, Any, LateTurn]],
    ) -> LateTurn:
        """Retries when the session changed meanwhile. Holds memory for what is read."""
        store = self._of(principal)
        async with self._environment.reads.for_question(store, principal.tenant, session_id, message_id):
            for _ in range(MAX_ATTEMPTS):
                try:
                    return await attempt()
                except StaleVersion as error:
                    stale = error
            raise stale

    def _turn(self, principal: Principal, session: Session, answer: NewTurn, message_id: str) -> Turn:
        """Returns the turn that answers a message. Raises QuotaExceeded, and what `choose_turn` raises."""
        now = self._environment.clock()
        check_spending(self._environment, principal.tenant)
        return choose_turn(self._environment, principal, session, answer, message_id=message_id, now=now)

    async def _question(self, principal: Principal, asked: Regeneration) -> Message:
        """Returns the question to which a request refers; raises what `regenerate` raises about it."""
        store = self._of(principal)
        message = await store.message(asked.session_id, asked.message_id)
        if message.type is MessageType.ASSISTANT and message.answers_message_id:
            message = await store.message(asked.session_id, message.answers_message_id)
        if message.type is not MessageType.USER:
            raise InvalidRequest.of("message_id", "is neither a message of type USER nor an answer to one")
        if message.status is MessageStatus.QUEUED:
            raise TurnExists(f"message {message.message_id!r} waits for its turn", message.turn_id)
        await store.alternatives(asked.session_id, AlternativesOf(message.message_id), Page(size=1))
        return message

    def _standing_in(
        self, question: Message, turn: Turn, message_id: str, contents: Contents | None, request_id: str
    ) -> Message:
        """Returns the edited question, or a copy of the question that represents it while its turn waits."""
        new_id = self._environment.new_id
        if contents is not None:
            parts = contents.parts(new_id)
        else:
            parts = tuple(msgspec.structs.replace(part, part_id=new_id("prt")) for part in question.parts)
        return Message(
            message_id=message_id,
            session_id=question.session_id,
            type=MessageType.USER,
            status=MessageStatus.COMPLETE,
            created_at=turn.created_at,
            updated_at=turn.created_at,
            parts=parts,
            turn_id=turn.turn_id,
            sender=question.sender,
            sender_name=question.sender_name,
            request_id=request_id,
            metadata_json=question.metadata_json,
        )


def _check(question: StoredQuestion) -> None:
    """Rejects a message that cannot be answered now."""
    message, behind = question.message, question.behind
    if question.has_turn:
        raise TurnExists(f"message {message.message_id!r} has a turn that answers it", message.turn_id)
    if behind is not None and behind.model_run is not None and behind.model_run.is_reported:
        text = f"message {message.message_id!r} has an answer that was appended: RegenerateMessage gives it another one"
        raise TurnExists(text, behind.message_id)


async def _check_results(store: TenantStore, question: StoredQuestion) -> Message:
    """Rejects a message after which no turn can continue: it has no results, is not at the end, or calls are open.

    Returns the last message of the conversation. The turn answers that message, because watchers move an answered
    message to the end.
    """
    message, last, behind = question.message, question.message, question.behind
    calls = [call for _, call in message.tool_calls()]
    if message.type is not MessageType.TOOL_RESULT and not calls:
        raise InvalidRequest.of("user_message_id", "is not a message of type USER, and has no results of tool calls")
    for _ in range(MAX_BEHIND):
        if behind is None or behind.type not in _ASIDE:
            break
        last, behind = behind, (await store.question(message.session_id, behind.message_id)).behind
    if behind is not None and behind.type is MessageType.ASSISTANT:
        raise TurnExists(f"message {message.message_id!r} is followed by an answer", behind.message_id)
    if behind is not None:
        raise InvalidRequest.of("user_message_id", "has results that are not at the end of the conversation")
    for _ in range(MAX_BEHIND):
        if message.type not in _ASIDE or not message.previous_message_id:
            break
        message = await store.message(message.session_id, message.previous_message_id)
    if message.type is not MessageType.ASSISTANT or not message.tool_calls():
        text = "has results that answer no tool call of the answer before them: a turn needs a user message to answer"
        raise InvalidRequest.of("user_message_id", text)
    unanswered = [part.part_id for part, call in message.tool_calls() if not call.status.settled]
    if unanswered:
        raise ToolCallsOpen(message.message_id, unanswered)
    return last


def _moving(question: StoredQuestion, accepted: Accepted) -> Work:
    """Returns the work that stores a turn and moves its message to the end, or into the queue.

    Watchers see it as if the message were removed and added again, unless it only gets a turn. An answer after it that
    is still being written is not replaced, because its text would be cut: its end reports the message before it.
    """
    turn_id, message, behind = accepted.turn.turn_id, accepted.message, question.behind
    changes = (PutTurn(accepted.turn), PutMessage(message, at_end=True))
    if behind is None and not accepted.queue_position:
        replaced = msgspec.structs.replace(message, previous_message_id=question.message.previous_message_id)
        return Work(changes, (NewEvent(MessageReplaced(replaced), turn_id),))
    events = [NewEvent(MessageRemoved(message.message_id), turn_id)]
    if behind is not None and behind.status is not MessageStatus.STREAMING:
        before = question.message.previous_message_id
        events.append(NewEvent(MessageReplaced(msgspec.structs.replace(behind, previous_message_id=before))))
    events.append(NewEvent(MessageAdded(message), turn_id))
    return Work(changes, tuple(events))


def _beginning(question: Message, head: int, accepted: Accepted) -> Work:
    """Returns the work that stores a turn: it waits with the message that represents it, or begins."""
    turn, message = accepted.turn, accepted.message
    adding = Work((PutMessage(message),), (NewEvent(MessageAdded(message), turn.turn_id),))
    if accepted.queue_position:
        return Work((PutTurn(turn),)) + adding
    work = Work((RequireHead(head),)) + leading_work(turn, message.created_at, question)
    if turn.user_message_id == message.message_id:
        work += adding
    return work + Work((PutTurn(turn),))
