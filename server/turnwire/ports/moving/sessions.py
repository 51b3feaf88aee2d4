"""The store's operations on whole sessions: reads them for archives, and finds the ids that are free for them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from turnwire.domain.archive.records import Record
from turnwire.domain.conversation.sessions import Session


class SessionNames(Struct, frozen=True):
    """The ids in a session that is to be imported."""

    session_id: str = ""
    turn_ids: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()
    call_ids: tuple[str, ...] = ()
    """Ids of parts that are tool calls."""


class SessionArchive(Protocol):
    """Reads whole sessions of a tenant, each as of one moment."""

    async def records(self, session_id: str, *, include_files: bool) -> AsyncGenerator[tuple[Record, ...]]:
        """Yields the records of a session in small batches; their memory does not grow with the session.

        Waiting messages are left out. While a turn runs, the session ends before the first message that is not
        complete, and the turn counts as interrupted. Turns come before messages, a file before the first message that
        names it. The store keeps its snapshot until the generator is closed, so nothing slow may happen between two
        batches.

        Args:
            session_id: The session.
            include_files: Whether to yield records of files.

        Raises:
            SessionNotFound: the session does not exist any more.
            StorageError: it could not be read.
        """
        yield ()


class ArchivableStore(Protocol):
    """Whole sessions of one tenant; a part of `ports.store.TenantStore`."""

    async def session_ids(self) -> tuple[str, ...]:
        """Returns the ids of all sessions in the order of their creation; ids of one moment are sorted."""
        ...

    async def known_sessions(self, session_ids: Sequence[str]) -> tuple[Session, ...]:
        """Returns the tenant's sessions that have one of these ids."""
        ...

    async def stored_files(self, hashes: Sequence[str]) -> frozenset[str]:
        """Returns those of the digests whose bytes the tenant has. Does not read the bytes."""
        ...

    async def is_taken(self, names: SessionNames) -> bool:
        """Returns whether one of these ids belongs to something else, in any tenant.

        A deleted session of the same tenant leaves its id free.
        """
        ...

    def archive(self) -> AbstractAsyncContextManager[SessionArchive]:
        """Returns a reader of whole sessions, separate from all other reads. Raises StorageError when it is entered."""
        ...
