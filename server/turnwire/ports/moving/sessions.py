"""The store's operations on whole sessions: it reads them for archives, and finds which ids are free for them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from turnwire.domain.archive.records import Record
from turnwire.domain.conversation.sessions import Session


class SessionNames(Struct, frozen=True):
    """Ids that a session would bring along."""

    session_id: str = ""
    turn_ids: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()
    call_ids: tuple[str, ...] = ()
    """Ids of parts that are tool calls."""


class SessionArchive(Protocol):
    """Reads whole sessions of a tenant, each as of one moment."""

    async def records(self, session_id: str, *, include_files: bool) -> AsyncGenerator[tuple[Record, ...]]:
        """Yields the records of a session in small batches; their memory does not grow with the session.

        Without waiting messages. While a turn runs, the session ends before the first message that is not complete, and
        the turn counts as interrupted. Turns come before messages, a file before the first message that names it.
        The store keeps the moment until the generator is closed, so nothing slow may wait between two batches.

        Args:
            session_id: The session.
            include_files: Whether there are records of files.

        Raises:
            SessionNotFound: there is no such session any more.
            StorageError: it could not be read.
        """
        yield ()


class ArchivableStore(Protocol):
    """Whole sessions of one tenant; a part of `ports.store.TenantStore`."""

    async def session_ids(self) -> tuple[str, ...]:
        """Returns the ids of all sessions in the order of their creation; those of one moment by id."""
        ...

    async def known_sessions(self, session_ids: Sequence[str]) -> tuple[Session, ...]:
        """Returns the tenant's sessions that have one of these ids."""
        ...

    async def stored_files(self, hashes: Sequence[str]) -> frozenset[str]:
        """Returns those of some digests of which the tenant has the bytes. Does not read these."""
        ...

    async def is_taken(self, names: SessionNames) -> bool:
        """Returns whether something else has one of these ids, whatever tenant has it.

        A deleted session of the same tenant leaves its id free.
        """
        ...

    def archive(self) -> AbstractAsyncContextManager[SessionArchive]:
        """Returns what reads whole sessions, apart from all other reads. Raises StorageError when it is entered."""
        ...
