"""Sessions that are stored in parts, so that a long one does not hold up the commits of others."""

import asyncio
from asyncio import Future
from collections.abc import Iterable, Iterator, Sequence

from turnwire.core.environment import Environment
from turnwire.core.work import Work
from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.sessions import Session
from turnwire.ports.commit import (
    Change,
    Commit,
    Committed,
    PublishSession,
    PutFile,
    PutMessage,
    PutSession,
    RemoveSession,
    SessionState,
)

PART_CHANGES = 100
PART_BYTES = 2**20
"""Of one commit: others wait some tens of milliseconds for it at most."""
PART_WEIGHT = 256
"""Bytes that one more part of a message counts as: a row takes time however short it is."""


class SessionInParts:
    """One session while it is stored in parts. Used by one task; nobody sees the session until it is published."""

    def __init__(self, environment: Environment, session: Session) -> None:
        """Takes the session as it is to be."""
        self._environment = environment
        self._session = session
        self._is_begun = False
        self._storing: Future[Committed] | None = None  # the last part; the one before it is durable

    async def put(self, changes: Sequence[Change]) -> None:
        """Stores changes in one commit. Returns when those before are durable: the next ones can be made meanwhile.

        Raises:
            IdTaken: something else has an id of this or an earlier part, or of the session.
            StorageError: this or an earlier part could not be stored.
        """
        await self.stored()
        first = () if self._is_begun else (PutSession(self._session),)
        self._is_begun = True
        self._storing = self._commit(Work((*first, *changes)))
        self._storing.add_done_callback(_retrieve)

    async def stored(self) -> None:
        """Returns when all that was put is durable. Raises what `put` raises."""
        if self._storing is not None:
            await asyncio.shield(self._storing)

    def publish(self, messages: int, work: Work) -> "Future[Committed]":
        """Lets everybody see the session, with further work in the same commit.

        Args:
            messages: How many messages it has.
            work: For instance its events.

        Returns:
            The store's own future, which nobody may cancel.
        """
        publishing = self._commit(Work((PublishSession(messages, self._session.updated_at),)) + work)
        publishing.add_done_callback(self._give_up_unless_published)
        return publishing

    async def give_up(self) -> None:
        """Removes what was stored. The store does so at its next start too, so failing here is no harm."""
        if self._is_begun:
            await asyncio.wait((self._remove(),))

    def _give_up_unless_published(self, publishing: "Future[Committed]") -> None:
        if publishing.cancelled() or publishing.exception() is not None:
            self._remove()

    def _remove(self) -> "Future[Committed]":
        removing = self._commit(Work((RemoveSession(),)))
        removing.add_done_callback(_retrieve)
        return removing

    def _commit(self, work: Work) -> "Future[Committed]":
        return self._environment.store.commit(
            Commit(
                tenant=self._session.tenant,
                session_id=self._session.session_id,
                state=SessionState.IMPORTING,
                at=self._environment.clock(),
                changes=work.changes,
                events=work.events,
            )
        )


def _retrieve(storing: "Future[Committed]") -> None:
    """Takes the error of a part, so that asyncio does not log it when nobody waits for the part any more."""
    if not storing.cancelled():
        storing.exception()


def parts_of(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Yields changes in parts for `SessionInParts.put`, in order."""
    part, size = list[Change](), 0
    for change in changes:
        part.append(change)
        size += len(change.content) if isinstance(change, PutFile) else 0
        size += weight(change.message) if isinstance(change, PutMessage) else 0
        if len(part) >= PART_CHANGES or size >= PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def weight(message: Message) -> int:
    """Returns about how many bytes a message has, without encoding it. Each part counts as storing it takes time."""
    size = 0
    for part in message.parts:
        texts = (getattr(part.content, name, "") for name in ("text", "output", "input_json"))
        size += PART_WEIGHT + len(part.provider_state or "") + sum(len(text or "") for text in texts)
    return size
