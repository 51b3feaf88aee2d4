"""The removal of sessions: each is gone for all readers at once; its rows are removed in small steps
between commits.
"""

import asyncio
import contextlib
from collections.abc import Callable

from turnwire.domain.errors import SessionMoving, SessionNotFound, StorageError
from turnwire.ports.clock import utc_now
from turnwire.ports.commit import Commit, Committed, RemoveSession, SessionState
from turnwire.storage.sql.connection import Connection
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.sessions import DELETING
from turnwire.storage.sql.writer import GroupWriter

GIVE_UP = (
    "UPDATE sessions SET state = 'deleting', head_sequence = pruned_through"
    " WHERE state <> 'live' AND state = 'importing'"
)

LOOKED_AT = 1000
"""Number of sessions among which a step searches for one that this server may remove."""

LOOK_SECONDS = 0.2
"""Longest time between two looks at what is left: another server may remove it."""


def give_up_imports(db: Database) -> None:
    """Discards everything that an earlier run has stored in parts and not published."""
    db.run(GIVE_UP)


class Removal:
    """Removes what commits have marked; see `states.remove`. Each step is a commit.

    No order of steps, commits and crashes removes anything else.
    """

    def __init__(self, writer: GroupWriter, reading: Connection[Database]) -> None:
        """Takes the writer of the steps, and the connection on which to find what is left."""
        self._writer = writer
        self._reading = reading
        self._gone = asyncio.Event()
        """Set, and replaced, when something was removed."""
        self._failed: dict[str, Commit] = {}
        """Removals of importing sessions that failed, by session: nobody else repeats them before the next start."""

    def note(self, commit: Commit, storing: "asyncio.Future[Committed]") -> None:
        """Notes the outcome of a removal that was asked for."""
        failed = not storing.cancelled() and isinstance(storing.exception(), StorageError)
        if failed and commit.state is SessionState.IMPORTING:
            self._failed[commit.session_id] = commit

    async def settled(self) -> None:
        """Returns when nothing is left of the sessions that are being removed now. Safe to cancel.

        Raises:
            StorageError: an importing session still cannot be removed.
        """
        await self._repeat()
        waited_for: set[int] | None = None
        while waited_for is None or waited_for:
            gone = self._gone
            left = await self._reading.run(lambda db: {row for (row,) in db.rows(f"SELECT id {DELETING}")})
            waited_for = left if waited_for is None else left & waited_for
            if waited_for:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await gone.wait()

    async def step(self) -> bool:
        """Carries out a step. Returns False when nothing is left to remove. Raises StorageError."""
        await self._repeat()
        found = await self._reading.run(_next, self._writer.owns)
        if found is not None:
            tenant, session_id = found
            step = Commit(
                tenant=tenant,
                session_id=session_id,
                state=SessionState.DELETING,
                at=utc_now(),
                changes=(RemoveSession(),),
            )
            with contextlib.suppress(SessionMoving):  # its next owner goes on
                await self._writer.commit(step)
        self._gone.set()
        self._gone = asyncio.Event()
        return found is not None

    async def _repeat(self) -> None:
        """Repeats the removals that have failed. Raises StorageError: one of them fails again.

        Each is looked up just before it is repeated: the next import under its id begins when none is left.
        """
        while self._failed:
            session_id, commit = next(iter(self._failed.items()))
            with contextlib.suppress(SessionMoving, SessionNotFound):  # its next owner discards it; nothing was stored
                await self._writer.commit(commit)
            self._failed.pop(session_id, None)


def _next(db: Database, owns: Callable[[str], bool]) -> tuple[str, str] | None:
    rows = db.rows(f"SELECT tenant, session_id {DELETING} ORDER BY id LIMIT ?", (LOOKED_AT,))
    return next(((tenant, session_id) for tenant, session_id in rows if owns(session_id)), None)
