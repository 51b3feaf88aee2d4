"""Late turns: answers for messages that are stored already."""

import asyncio

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.inputs import NamedRequest, NewTurn
from turnwire.core.intake.once import NamedRequests, receipt_record
from turnwire.core.intake.receipts import Receipt
from turnwire.core.quotas.reservations import Reservations
from turnwire.core.turns.registry import Turns
from turnwire.core.turns.schedule import Accepted
from turnwire.core.use_cases.choices import check_spending, check_tools, choose_turn
from turnwire.core.work import Work
from turnwire.domain.conversation.events import MessageAdded, MessageRemoved, MessageReplaced
from turnwire.domain.conversation.messages import Message, MessageStatus, MessageType
from turnwire.domain.conversation.turns import BusyPolicy, Turn
from turnwire.domain.errors import InvalidRequest, StaleVersion, ToolCallsOpen, TurnExists
from turnwire.domain.principal import Principal
from turnwire.ports.commit import NewEvent, PutMessage, PutTurn, RequireHead
from turnwire.ports.conversations import StoredQuestion
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
