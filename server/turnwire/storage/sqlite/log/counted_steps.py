"""Steps that change what tenants have stored."""

import sqlite3
from collections.abc import Callable

from turnwire.storage.accounts import Delta
from turnwire.storage.sqlite.steps import Steps
from turnwire.storage.sqlite.writing.writer import GroupWriter, Other


class CountedSteps(Steps):
    """As `Steps`, through the writer: a step shares a transaction with commits, and the accounts hear what it freed."""

    def __init__(
        self,
        writer: GroupWriter,
        step: Callable[[sqlite3.Connection, list[Delta]], bool],
        pause_seconds: float,
        name: str,
        *,
        idle_seconds: float | None = None,
    ) -> None:
        """Args:
        writer: Carries the steps out. Close it after `aclose`.
        step: As for `Steps`; appends what it changes in the accounts.
        pause_seconds: Between steps.
        name: Of the task.
        idle_seconds: As for `Steps`.
        """
        super().__init__(writer.connection, lambda db: step(db, []), pause_seconds, name, idle_seconds=idle_seconds)
        self._writer = writer
        self._counted = step

    async def _carry_out(self) -> bool:
        return await self._writer.carry_out(Other(self._counted, is_step=True))


class Counted:
    """Notes what some sessions have stored before a step, and tells what has changed after it."""

    def __init__(self, db: sqlite3.Connection, sessions: set[int]) -> None:
        """Takes the rows of the sessions."""
        self._db = db
        self._sessions = sessions
        self._before = self._read()

    def deltas(self) -> list[Delta]:
        """Returns the changes so far. Sessions that are not live count nowhere."""
        after = self._read()
        changes = ((tenant, after.get(row, ("", 0))[1] - size) for row, (tenant, size) in self._before.items())
        return [Delta(tenant, stored_bytes=size) for tenant, size in changes if size]

    def _read(self) -> dict[int, tuple[str, int]]:
        among = ",".join(map(str, self._sessions))
        rows = self._db.execute(f"SELECT id, tenant, stored_bytes FROM live_sessions WHERE id IN ({among})")
        return {row: (tenant, size) for row, tenant, size in rows}
