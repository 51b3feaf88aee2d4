"""Forks: sessions that begin as copies of others, with equal content under new ids."""

import asyncio
import contextlib
from asyncio import Future
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.requests import NamedRequests, Receipt, SessionChange, receipt_record
from turnwire.core.turns.registry import Turns
from turnwire.core.use_cases.choices import changed_session, check_settings
from turnwire.core.use_cases.moving.parts import PART_CHANGES, SessionInParts, parts_of
from turnwire.core.use_cases.use_case import UseCase
from turnwire.domain.archive.records import ArchivedMessage, Record
from turnwire.domain.conversation.events import ConversationChange, ConversationChanged, SessionCreated, SessionView
from turnwire.domain.conversation.messages import (
    FinishReason,
    Message,
    MessageStatus,
    Origin,
    Part,
    ToolResult,
)
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.errors import MessageNotFound, StorageError, TurnInProgress
from turnwire.domain.fair_semaphore import FairSemaphore
from turnwire.domain.ids import IdMaker
from turnwire.domain.principal import Principal
from turnwire.ports.commit import Change, Committed, NewEvent, PutMessage, PutSession, PutTurn, Work
from turnwire.ports.conversations import Conversation


class CopiedConversation(Struct, frozen=True):
    """The contents of a copied conversation."""

    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    """Ended, without their usage, because the copy has used nothing."""
    message_ids: dict[str, str]
    """Ids of the copies by the ids of their originals, in order."""

    @property
    def last_id(self) -> str:
        """The last copied message; "" for none."""
        return next(reversed(self.message_ids), "")


def copy_conversation(
    conversation: Conversation, through_message_id: str, session_id: str, new_id: IdMaker, now: datetime
) -> CopiedConversation:
    """Returns a copy of a conversation, or of its beginning.

    It ends before the first message that is still being written or has a call without a result.

    Args:
        conversation: The conversation to copy.
        through_message_id: The last message to copy; "" copies all.
        session_id: The session of the copy.
        new_id: Makes ids.
        now: Ends the copy of a turn that still runs.

    Raises:
        MessageNotFound: the conversation has no such message.
        TurnInProgress: that message, or one before it, is not complete.
    """
    messages = tuple(_beginning(conversation, through_message_id))
    message_ids = {message.message_id: new_id("msg") for message in messages}
    theirs = {message.turn_id for message in messages}  # not those of alternatives, which are not copied
    turns = [turn for turn in conversation.turns if turn.user_message_id in message_ids and turn.turn_id in theirs]
    ids = {
        **message_ids,
        **{turn.turn_id: new_id("trn") for turn in turns},
        **{part.part_id: new_id("prt") for message in messages for part in message.parts},
    }
    return CopiedConversation(
        messages=tuple(_copy_of_message(message, session_id, ids) for message in messages),
        turns=tuple(_copy_of_turn(turn, session_id, ids, now) for turn in turns),
        message_ids=message_ids,
    )


def _beginning(conversation: Conversation, through_message_id: str) -> Iterator[Message]:
    """Yields the messages to copy."""
    if through_message_id and all(message.message_id != through_message_id for message in conversation.messages):
        raise MessageNotFound(through_message_id)
    running = {turn.turn_id for turn in conversation.turns if turn.status is not TurnStatus.ENDED}
    for message in conversation.messages:
        if message.status is MessageStatus.STREAMING or (
            message.turn_id in running and not all(call.status.settled for _, call in message.tool_calls())
        ):
            if through_message_id:
                raise TurnInProgress(f"message {message.message_id!r} is not complete", message.turn_id)
            return
        yield message
        if message.message_id == through_message_id:
            return


def _copy_of_message(message: Message, session_id: str, ids: Mapping[str, str]) -> Message:
    compaction = message.compaction
    if compaction is not None:
        through = ids.get(compaction.through_message_id, "")
        compaction = msgspec.structs.replace(compaction, through_message_id=through)
    return msgspec.structs.replace(
        message,
        message_id=ids[message.message_id],
        session_id=session_id,
        parts=tuple(_copy_of_part(part, ids) for part in message.parts),
        turn_id=ids.get(message.turn_id, ""),
        answers_message_id=ids.get(message.answers_message_id, ""),
        previous_message_id="",
        request_id="",
        compaction=compaction,
        origin=Origin(session_id=message.session_id, message_id=message.message_id),
    )


def _copy_of_part(part: Part, ids: Mapping[str, str]) -> Part:
    content = part.content
    if isinstance(content, ToolResult):
        content = msgspec.structs.replace(content, tool_call_id=ids.get(content.tool_call_id, ""))
    return msgspec.structs.replace(part, part_id=ids[part.part_id], copied_id=part.first_id, content=content)


def _copy_of_turn(turn: Turn, session_id: str, ids: Mapping[str, str], now: datetime) -> Turn:
    copy = Turn(
        turn_id=ids[turn.turn_id],
        session_id=session_id,
        tenant=turn.tenant,
        subject=turn.subject,
        user_message_id=ids[turn.user_message_id],
        status=TurnStatus.ENDED,
        created_at=turn.created_at,
        model=turn.model,
        agent=turn.agent,
        options=turn.options,
        started_at=turn.started_at,
        ended_at=turn.ended_at or now,
        finish_reason=turn.finish_reason or FinishReason.INTERRUPTED,
        regenerates=ids.get(turn.regenerates, ""),
        replaces_turn_id=ids.get(turn.replaces_turn_id, ""),
        merged_into_turn_id=ids.get(turn.merged_into_turn_id, ""),
        ended_by_message_id=ids.get(turn.ended_by_message_id, ""),
        failure=turn.failure,
    )
    return copy if turn.status is not TurnStatus.ENDED else msgspec.structs.replace(copy, steps=turn.steps)


MAX_NAMED_MESSAGES = 1_000
"""Maximum message ids in a response: more would make it too large."""


class Fork(Struct, frozen=True):
    """A copy of a session."""

    view: SessionView
    message_ids: Mapping[str, str]
    """Ids of the copies by the ids of their originals; empty when there are more than MAX_NAMED_MESSAGES."""


class _Slot:
    """The slot of one copy: it is waited for as long as the caller is there. A copy that has begun is completed."""

    def __init__(self, slots: FairSemaphore, tenant: str) -> None:
        self._slots, self._tenant = slots, tenant
        self._waiting: asyncio.Task[Any] | None = None
        """The task that waits; None before and after."""
        self._is_left = False
        """Whether the caller is gone."""

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Waits for the slot. Raises CancelledError: the caller is gone."""
        if self._is_left:
            raise asyncio.CancelledError
        self._waiting = asyncio.current_task()
        async with self._slots.held(self._tenant, 1):
            self._waiting = None
            yield

    def leave(self) -> None:
        """Notes that the caller is gone."""
        self._is_left = True
        if self._waiting is not None:
            self._waiting.cancel()


class SessionForks(UseCase):
    """The use case that copies sessions."""

    def __init__(self, environment: Environment, turns: Turns, requests: NamedRequests) -> None:
        """Takes what it shares with other use cases."""
        super().__init__(environment, turns, requests)
        self._slots = FairSemaphore(1, tenant_limit=1)
        """A whole copy is in memory while it is made, so copies are made one at a time. Only calls in flight wait."""

    async def fork(self, principal: Principal, session_id: str, through_message_id: str, change: SessionChange) -> Fork:
        """Copies a session; returns when the complete copy is durable. One that has begun continues without its caller.

        Idempotent when the request is named: a retry gets the present state of the copy.

        Args:
            principal: The caller.
            session_id: The session to copy.
            through_message_id: The last message to copy; "" copies all. While a turn runs, the copy ends before the
                first message that is not complete.
            change: Settings of the copy that differ from those of the session.

        Raises:
            SessionNotFound: there is no such session.
            MessageNotFound: its conversation has no such message.
            TurnInProgress: the message, or one before it, is not complete yet.
            InvalidRequest: a setting is wrong, or the request's name was used for another request.
            QuotaExceeded: the tenant may not store the copy.
            StorageError: the session could not be read, or the copy could not be stored.
        """
        slot = _Slot(self._slots, principal.tenant)

        async def fork() -> Fork:
            async with slot.held():
                return await self._fork(principal, session_id, through_message_id, change)

        try:
            made = await self._requests.once(principal, change, fork)
        except asyncio.CancelledError:
            slot.leave()
            raise
        return await self._earlier(principal, session_id, made) if isinstance(made, Receipt) else made

    async def _fork(
        self, principal: Principal, session_id: str, through_message_id: str, change: SessionChange
    ) -> Fork:
        environment = self._environment
        session = await environment.session(principal, session_id)
        await check_settings(environment, change, session.tenant, session.directory)
        conversation = await environment.store.of(principal.tenant).conversation(session_id)
        now, copy_id = environment.clock(), environment.new_id("ses")
        if through_message_id:
            await self._check_not_waiting(principal, session_id, through_message_id)
        # a long conversation takes a while, and others must not wait for it
        copied = await asyncio.to_thread(
            copy_conversation, conversation, through_message_id, copy_id, environment.new_id, now
        )
        copy = msgspec.structs.replace(
            changed_session(environment, conversation.session, change),
            session_id=copy_id,
            created_at=now,
            updated_at=now,
            revision=1,
            queue_revision=0,
            head_sequence=0,
            archived_at=None,
            origin=Origin(session_id=session_id, message_id=copied.last_id),
        )
        record = receipt_record(principal, change, Receipt(session_id=copy_id))
        try:
            storing = await self._storing(copy, copied, record + environment.within_quotas(principal.tenant))
            committed = await asyncio.shield(storing)
        except StorageError:
            await self._of(principal).session(session_id)  # it may be gone, with files that the copy names
            raise
        view = SessionView(msgspec.structs.replace(copy, head_sequence=committed.sequence))
        return Fork(view, _named(copied.message_ids))

    async def _storing(self, copy: Session, copied: CopiedConversation, record: Work) -> Future[Committed]:
        """Stores a copy; a long one in parts, so that other commits can pass. Returns the future of its last commit."""
        changes = _changes(copied)
        events = _events(copy)
        if len(changes) <= PART_CHANGES:
            work = Work((PutSession(copy), *changes), events) + record
            return self._environment.commit(copy.tenant, copy.session_id, work, copy.created_at)
        in_parts = SessionInParts(self._environment, copy)
        try:
            for part in await asyncio.to_thread(lambda: list(parts_of(changes))):
                await in_parts.put(part)
            await in_parts.stored()
        except BaseException:
            await in_parts.give_up()
            raise
        return in_parts.publish(len(copied.messages), Work((), events) + record)

    async def _check_not_waiting(self, principal: Principal, session_id: str, message_id: str) -> None:
        """Rejects a message that is not part of the conversation yet."""
        message = await self._of(principal).message(session_id, message_id)
        if message.status is MessageStatus.QUEUED:
            raise TurnInProgress(f"message {message_id!r} waits behind a running turn", message.turn_id)

    async def _earlier(self, principal: Principal, session_id: str, receipt: Receipt) -> Fork:
        """Returns the copy that the first attempt made, in its present state; hidden messages are named too."""
        store = self._of(principal)
        session = await store.session(receipt.session_id)
        message_ids = dict[str, str]()
        async with store.archive() as archive:
            records = archive.records(receipt.session_id, include_files=False)
            async with contextlib.aclosing(records) as batches:
                async for batch in batches:
                    message_ids |= _copies_in(batch, session_id)
                    if len(message_ids) > MAX_NAMED_MESSAGES:
                        break
        return Fork(self._turns.view(session), _named(message_ids))


def _copies_in(batch: Iterable[Record], source_id: str) -> dict[str, str]:
    """Returns the ids of messages that were copied from a session, by their ids there."""
    messages = [record.message for record in batch if isinstance(record, ArchivedMessage)]
    return {
        message.origin.message_id: message.message_id
        for message in messages
        if message.origin is not None and message.origin.session_id == source_id
    }


def _changes(copied: CopiedConversation) -> tuple[Change, ...]:
    """Returns the changes that store a copy, without its session."""
    return (
        *(PutTurn(turn) for turn in copied.turns),
        *(PutMessage(message) for message in copied.messages),
    )


def _events(copy: Session) -> tuple[NewEvent, ...]:
    changed = ConversationChanged(ConversationChange.FORKED, None, reread=True)
    return NewEvent(SessionCreated(SessionView(copy))), NewEvent(changed)


def _named(message_ids: Mapping[str, str]) -> Mapping[str, str]:
    return message_ids if len(message_ids) <= MAX_NAMED_MESSAGES else {}
