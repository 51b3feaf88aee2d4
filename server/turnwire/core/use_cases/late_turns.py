"""Answers for messages that are stored already: late ones, and other ones, which make what was there an alternative."""

import asyncio

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.contents import Contents, load_contents
from turnwire.core.intake.readable_files import readable_files
from turnwire.core.intake.requests import NamedRequest, NamedRequests, NewTurn, Receipt, Regeneration, receipt_record
from turnwire.core.quotas import Reservations
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.schedule import Accepted, leading_work
from turnwire.core.use_cases.choices import check_spending, check_tools, choose_turn
from turnwire.core.work import Work
from turnwire.domain.conversation.events import MessageAdded, MessageRemoved, MessageReplaced
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import BusyPolicy, Turn
from turnwire.domain.errors import InvalidRequest, StaleVersion, ToolCallsOpen, TurnExists
from turnwire.domain.principal import Principal
from turnwire.domain.text import utf8_bytes
from turnwire.ports.commit import FileChange, NewEvent, PutMessage, PutTurn, RequireHead
from turnwire.ports.conversations import AlternativesOf, StoredQuestion
from turnwire.ports.pages import Page
from turnwire.ports.store import TenantStore

MAX_ATTEMPTS = 20
"""How often the message is read again because the session changed before the turn was stored."""


MAX_BEHIND = 100
"""Messages that may come behind the results with which a conversation ends; each is read."""

_ASIDE = frozenset((MessageType.TOOL_RESULT, MessageType.SYSTEM, MessageType.HOST))
"""What may come behind an answer before its calls have all their results."""


class LateTurn(Struct, frozen=True):
    """A turn for a stored message."""

    turn: Turn
    receipt: Receipt


class LateTurns:
    """The use case that answers stored messages."""

    def __init__(
        self, environment: Environment, turns: Turns, requests: NamedRequests, reservations: Reservations
    ) -> None:
        """Takes the ports, and what it shares with other use cases."""
        self._environment = environment
        self._turns = turns
        self._requests = requests
        self._reservations = reservations

    async def start(
        self, principal: Principal, session_id: str, message_id: str, request: NamedRequest, answer: NewTurn
    ) -> LateTurn:
        """Starts a turn for a stored user message, or queues it; returns when that is durable.

        The message moves to the end of the conversation. A message with tool results, which is at the end, stays as it
        is, and its turn never waits. Idempotent when the request is named. Continues when it is cancelled.

        Raises:
            SessionNotFound, MessageNotFound: there is no such session, or its conversation has no such message.
            InvalidRequest: it is no user message, and has no results or is not the end of the conversation; the model
                or the agent is invalid; or the request's name was used.
            TurnExists: it has an answer, or a turn that has not ended.
            ToolCallsOpen: calls of the answer with the results have none.
            ProviderCredentialsRejected: the model's provider has no key.
            TurnInProgress, TooManyTurns, ShuttingDown, QuotaExceeded: see `Turns.reserve`.
            StaleVersion: the session changed at every attempt.
        """
        made = await self._requests.once(
            principal,
            request,
            lambda: self._start(principal, session_id, message_id, request, answer),
        )
        if isinstance(made, LateTurn):
            return made
        return LateTurn(await self._environment.store.of(principal.tenant).turn(made.session_id, made.turn_id), made)

    async def _start(
        self, principal: Principal, session_id: str, message_id: str, request: NamedRequest, answer: NewTurn
    ) -> LateTurn:
        environment = self._environment
        session = await environment.session(principal, session_id)
        await check_tools(environment, principal.tenant, answer.tools, "settings.tools")
        store = environment.store.of(principal.tenant)
        async with environment.reads.for_question(store, principal.tenant, session_id, message_id):
            for _ in range(MAX_ATTEMPTS):
                question = await store.question(session_id, message_id)
                is_question = question.message.type is MessageType.USER
                if is_question:
                    _check(question)
                    answered = question.message
                else:
                    answered = await _check_results(store, question)
                now = environment.clock()
                check_spending(environment, principal.tenant, now)
                turn = choose_turn(environment, principal, session, answer, message_id=answered.message_id, now=now)
                turn = msgspec.structs.replace(turn, is_late=is_question)
                try:
                    return await self._store(principal, question, turn, request, answer)
                except StaleVersion as error:
                    stale = error
            raise stale

    async def _store(
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

        told = (message,) if turn.is_late else ()
        with self._reservations.reserve(turn.tenant, (turn,), told=told) as reserved:
            accepting = self._turns.accept(turn, message, when_busy, store, alone=True)
            reserved.until(accepting)
        done = await asyncio.shield(accepting)
        accepted: Accepted = done.reply
        return LateTurn(accepted.turn, msgspec.structs.replace(accepted.receipt, sequence=done.before_sequence))


def _check(question: StoredQuestion) -> None:
    """Refuses a message that cannot be answered now."""
    message, behind = question.message, question.behind
    if question.has_turn:
        raise TurnExists(f"message {message.message_id!r} has a turn that answers it", message.turn_id)
    if behind is not None and behind.model_run is not None and behind.model_run.is_reported:
        text = f"message {message.message_id!r} has an answer that was appended: RegenerateMessage gives it another one"
        raise TurnExists(text, behind.message_id)


async def _check_results(store: TenantStore, question: StoredQuestion) -> Message:
    """Refuses a message behind which no turn can go on: it has no results, is not at the end, or calls are open.

    Returns the last message of the conversation. The turn answers that one, for watchers move to the end
    what a turn answers.
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
        raise TurnExists(f"message {message.message_id!r} has an answer behind it", behind.message_id)
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

    Watchers are told as if the message were removed and added again, unless it only gets a turn. An answer behind it
    that is still being written is not replaced, or its text would be cut: its end says what is before it.
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


class _Question(Struct, frozen=True):
    """A message that is to be answered again, as of one moment."""

    message: Message
    sequence: int
    """The session's head."""


class _Answering(Struct, frozen=True):
    """What is to be stored."""

    question: _Question
    turn: Turn
    message: Message
    """The edited question, or a copy of the question that stands for it while the turn waits."""
    files: tuple[FileChange, ...]


class Regenerations:
    """The use case that answers messages again."""

    def __init__(
        self, environment: Environment, turns: Turns, requests: NamedRequests, reservations: Reservations
    ) -> None:
        """Takes the ports, and what it shares with other use cases."""
        self._environment = environment
        self._turns = turns
        self._requests = requests
        self._reservations = reservations

    async def regenerate(self, principal: Principal, asked: Regeneration, answer: NewTurn) -> LateTurn:
        """Answers a message again, or an edited form of it, at once or after the turns before.

        Returns when that is durable. What is behind the message leaves the path when the turn begins. Idempotent when
        the request is named. Continues when it is cancelled.

        Raises:
            SessionNotFound, MessageNotFound: there is no such session or message, or the message was taken back.
            InvalidRequest: it is no question and no answer, the model, the agent or a part is invalid, or the request's
                name was used.
            MessageTooLarge: the edited question is too large.
            UploadNotFound: there is no upload that a part names, or another request has used it.
            TurnExists: the message waits itself.
            ProviderCredentialsRejected: the model's provider has no key.
            TurnInProgress, TooManyTurns, ShuttingDown, QuotaExceeded: see `Turns.reserve`.
            StaleVersion: the session changed at every attempt.
        """
        made = await self._requests.once(principal, asked, lambda: self._with_room(principal, asked, answer))
        if isinstance(made, LateTurn):
            return made
        return LateTurn(await self._environment.store.of(principal.tenant).turn(made.session_id, made.turn_id), made)

    async def _with_room(self, principal: Principal, asked: Regeneration, answer: NewTurn) -> LateTurn:
        environment, tenant = self._environment, principal.tenant
        session = await environment.session(principal, asked.session_id)
        # both before there is room, for they may take long: schemas are checked one at a time, file systems hang
        await check_tools(environment, tenant, answer.tools, "settings.tools")
        contents: Contents | None = None
        if asked.parts:
            readable, limits = readable_files(environment, session), environment.settings.limits
            contents = await load_contents(asked.parts, readable, limits, answer.size_bytes, "new_parts")
        store = environment.store.of(tenant)
        async with environment.reads.for_question(store, tenant, asked.session_id, asked.message_id):
            return await self._regenerate(principal, session, asked, answer, contents)

    async def _regenerate(
        self, principal: Principal, session: Session, asked: Regeneration, answer: NewTurn, contents: Contents | None
    ) -> LateTurn:
        environment = self._environment
        for _ in range(MAX_ATTEMPTS):
            question = await self._question(principal, asked)
            if contents is not None:
                others = utf8_bytes(question.message.metadata_json) + answer.size_bytes
                contents.check_size(environment.settings.limits, others, "new_parts")
            check_spending(environment, principal.tenant, environment.clock())
            answering = self._answering(principal, session, answer, question, contents)
            answering = msgspec.structs.replace(
                answering, message=msgspec.structs.replace(answering.message, request_id=asked.request_id)
            )
            try:
                return await self._store(principal, asked, answering, answer.when_busy)
            except StaleVersion as error:
                stale = error
        raise stale

    async def _question(self, principal: Principal, asked: Regeneration) -> _Question:
        """Returns the question that a request is about; raises what `regenerate` does about it."""
        store = self._environment.store.of(principal.tenant)
        head = (await store.session(asked.session_id)).head_sequence
        message = await store.message(asked.session_id, asked.message_id)
        if message.type is MessageType.ASSISTANT and message.answers_message_id:
            message = await store.message(asked.session_id, message.answers_message_id)
        if message.type is not MessageType.USER:
            raise InvalidRequest.of("message_id", "is neither a message of type USER nor an answer to one")
        if message.status is MessageStatus.QUEUED:
            raise TurnExists(f"message {message.message_id!r} waits for its turn", message.turn_id)
        await store.alternatives(asked.session_id, AlternativesOf(message.message_id), Page(size=1))
        return _Question(message, head)

    def _answering(
        self,
        principal: Principal,
        session: Session,
        answer: NewTurn,
        asked: _Question,
        contents: Contents | None,
    ) -> _Answering:
        """Returns the turn, and what it answers."""
        environment, question = self._environment, asked.message
        now, new_id = environment.clock(), environment.new_id
        message_id = new_id("msg")
        answered = message_id if contents is not None else question.message_id
        turn = choose_turn(environment, principal, session, answer, message_id=answered, now=now)
        if contents is not None:
            parts = contents.parts(new_id)
        else:
            parts = tuple(msgspec.structs.replace(part, part_id=new_id("prt")) for part in question.parts)
        message = Message(
            message_id=message_id,
            session_id=session.session_id,
            type=MessageType.USER,
            status=MessageStatus.COMPLETE,
            created_at=now,
            updated_at=now,
            parts=parts,
            turn_id=turn.turn_id,
            sender=question.sender,
            sender_name=question.sender_name,
            metadata_json=question.metadata_json,
        )
        turn = msgspec.structs.replace(turn, regenerates=question.message_id, replaces_turn_id=question.turn_id)
        return _Answering(asked, turn, message, () if contents is None else contents.changes(now))

    async def _store(
        self, principal: Principal, asked: Regeneration, answering: _Answering, when_busy: BusyPolicy
    ) -> LateTurn:
        turn, message, files = answering.turn, answering.message, answering.files

        def store(accepted: Accepted) -> Work:
            work = Work(files) + receipt_record(principal, asked, _receipt(accepted))
            return work + _beginning(answering.question, accepted)

        with self._reservations.reserve(turn.tenant, (turn, message), files, told=(message,)) as reserved:
            accepting = self._turns.accept(turn, message, when_busy, store, alone=True)
            reserved.until(accepting)
        done = await asyncio.shield(accepting)
        accepted: Accepted = done.reply
        return LateTurn(accepted.turn, msgspec.structs.replace(_receipt(accepted), sequence=done.before_sequence))


def _receipt(accepted: Accepted) -> Receipt:
    waits = accepted.queue_position > 0
    return Receipt(
        session_id=accepted.turn.session_id,
        message_id=accepted.turn.user_message_id,
        queued_message_id=accepted.message.message_id if waits else "",
        turn_id=accepted.turn.turn_id,
        queued=waits,
        queue_position=accepted.queue_position,
    )


def _beginning(question: _Question, accepted: Accepted) -> Work:
    """Returns the work that stores a turn: it waits with the message that stands for it, or begins."""
    turn, message = accepted.turn, accepted.message
    adding = Work((PutMessage(message),), (NewEvent(MessageAdded(message), turn.turn_id),))
    if accepted.queue_position:
        return Work((PutTurn(turn),)) + adding
    work = Work((RequireHead(question.sequence),)) + leading_work(turn, message.created_at, question.message)
    if turn.user_message_id == message.message_id:
        work += adding
    return work + Work((PutTurn(turn),))
