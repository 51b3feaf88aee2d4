"""The store's operations on whole sessions: reads them for archives, and finds the ids that are free for them."""

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import Struct

from turnwire.domain.archive.records import Record


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
