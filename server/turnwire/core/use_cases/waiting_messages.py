"""Waiting messages: the queue of a session as callers read and change it."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from turnwire.core.intake.contents import load_contents
from turnwire.core.intake.readable_files import readable_files
from turnwire.core.intake.requests import QueueEdit, Receipt, receipt_record
from turnwire.core.turns.schedule import EditWaiting
from turnwire.core.turns.wholes import Whole
from turnwire.core.use_cases.use_case import UseCase
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.turns import QueueEntry
from turnwire.domain.errors import MessageNotWaiting
from turnwire.domain.principal import Principal
from turnwire.domain.text import utf8_bytes
from turnwire.ports.commit import RequireQueueRevision, Work
from turnwire.ports.pages import Page, QueuePage

T = TypeVar("T")


class EditedMessage(Struct, frozen=True):
    """A message after an edit."""

    message: Message
    revision: int
    """Revision of the queue."""


class OrderedQueue(Struct, frozen=True):
    """The queue after a move."""

    entries: tuple[QueueEntry, ...]
    revision: int


class WaitingMessages(UseCase):
    """The use cases about the queue. Every method may raise SessionNotFound and StorageError.

    Every change continues when it is cancelled, and is idempotent when the request is named: a retry gets the present
    state. Each may raise MessageNotFound, MessageNotWaiting, ShuttingDown, StaleVersion (the queue has another revision
    than expected) and InvalidRequest (the request's name was used for another one).
    """

    async def list(self, principal: Principal, session_id: str, page: Page) -> QueuePage:
        """Returns waiting messages, next first. Raises InvalidRequest: the page token is not of this listing."""
        return await self._of(principal).queue(session_id, page)

    async def edit(self, principal: Principal, edit: QueueEdit) -> EditedMessage:
        """Replaces the content of a waiting message; returns when that is durable.

        Raises:
            InvalidRequest, MessageTooLarge: a part is invalid or too large.
            UploadNotFound: a part names an upload that does not exist, or that another request has used.
            QuotaExceeded: the tenant may not store more.
        """
        made = await self._once(principal, edit, partial(self._edit, principal, edit))
        if made is not None:
            return made
        message = await self._of(principal).message(edit.session_id, edit.message_id)
        return EditedMessage(message, await self._revision(principal, edit))

    async def move(self, principal: Principal, edit: QueueEdit) -> OrderedQueue:
        """Moves a waiting message before another one, or to the end; returns when that is durable."""
        made = await self._once(principal, edit, partial(self._move, principal, edit))
        if made is not None:
            return made
        queue = await self._of(principal).queue_entries(edit.session_id)
        return OrderedQueue(queue.entries, queue.revision)

    async def remove(self, principal: Principal, edit: QueueEdit) -> int:
        """Removes a waiting message with its turn; returns the queue's revision when that is durable."""
        made = await self._once(principal, edit, partial(self._remove, principal, edit))
        return await self._revision(principal, edit) if made is None else made

    async def _edit(self, principal: Principal, edit: QueueEdit) -> EditedMessage:
        environment = self._environment
        session = await environment.session(principal, edit.session_id)
        contents = None
        if edit.parts:
            contents = await load_contents(
                edit.parts, readable_files(environment, session), environment.settings.limits
            )
        files = contents.changes(environment.clock()) if contents is not None else ()

        further = _further(principal, edit) + environment.within_quotas(principal.tenant)

        def change(whole: Whole) -> EditWaiting:
            others = utf8_bytes(whole.message.metadata_json)
            if contents is not None:
                contents.check_size(environment.settings.limits, others, "parts")
            parts = None if contents is None else contents.parts(environment.new_id)
            return EditWaiting(whole.waiting, whole.turn, whole.message, parts, files, edit.policy, further)

        async with self._waiting(principal, edit, edit.message_id):
            turns = self._turns.waiting_in(edit.session_id, edit.message_id)
            return EditedMessage(*await turns.edit(edit.message_id, change))

    async def _move(self, principal: Principal, edit: QueueEdit) -> OrderedQueue:
        async with self._waiting(principal, edit, edit.message_id, edit.before_message_id):
            turns = self._turns.waiting_in(edit.session_id, edit.message_id)
            moved = await turns.move(edit.message_id, edit.before_message_id, _further(principal, edit))
        return OrderedQueue(*moved)

    async def _remove(self, principal: Principal, edit: QueueEdit) -> int:
        async with self._waiting(principal, edit, edit.message_id):
            turns = self._turns.waiting_in(edit.session_id, edit.message_id)
            return await turns.remove(edit.message_id, _further(principal, edit))

    @asynccontextmanager
    async def _waiting(self, principal: Principal, edit: QueueEdit, *message_ids: str) -> AsyncIterator[None]:
        """Distinguishes a session or message that does not exist from one that does not wait. Reads no
        waiting message.
        """
        await self._environment.session(principal, edit.session_id)
        try:
            yield
        except MessageNotWaiting:
            for message_id in filter(None, message_ids):
                await self._of(principal).message(edit.session_id, message_id)
            raise

    async def _once(
        self, principal: Principal, edit: QueueEdit, carry_out: Callable[[], Coroutine[Any, Any, T]]
    ) -> T | None:
        """Carries a change out. Returns None when an earlier request of its name did."""
        made = await self._requests.once(principal, edit, carry_out)
        return None if isinstance(made, Receipt) else made

    async def _revision(self, principal: Principal, edit: QueueEdit) -> int:
        return (await self._of(principal).session(edit.session_id)).queue_revision


def _further(principal: Principal, edit: QueueEdit) -> Work:
    """Returns the additional work of a change: it may require a revision, and may have a name."""
    required = () if edit.expected_revision is None else (RequireQueueRevision(edit.expected_revision),)
    receipt = Receipt(session_id=edit.session_id, message_id=edit.message_id)
    return Work(required) + receipt_record(principal, edit, receipt)
