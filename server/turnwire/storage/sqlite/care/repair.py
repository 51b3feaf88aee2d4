"""Repairs what can be recomputed, after a copy of the database as it was."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from turnwire.storage.sqlite.care.backup import back_up
from turnwire.storage.sqlite.care.examination import Examiner
from turnwire.storage.sqlite.care.findings import Finding, Report
from turnwire.storage.sqlite.care.opening import translated
from turnwire.storage.sqlite.connection import BUSY_TIMEOUT_SECONDS, ProcessLock
from turnwire.storage.sqlite.files import DatabaseFiles

MAX_ROUNDS = 5
"""One repair can show another: an index that is made anew shows rows, a row that is removed leaves a file unused."""


class Repairs(Struct, frozen=True, kw_only=True):
    """What a repair did."""

    before: Report
    after: Report
    """Equal to `before` when nothing could be repaired."""
    copy: str
    """Where the copy of the database as it was is; "" when nothing was changed."""


def repair(
    path: Path,
    examiner: Examiner,
    now: datetime,
    advance: Callable[[int, int], None] = lambda _done, _all: None,
) -> Repairs:
    """Examines a database, copies it and repairs it until nothing more can be. No server can start meanwhile.

    Each round is one transaction, so an interrupted repair has changed nothing, or as much as whole rounds.

    Args:
        path: The database.
        examiner: Finds what is wrong.
        now: Part of the copy's name.
        advance: Hears how the copy goes on; see `back_up`.

    Raises:
        StorageBusy: a server has the database open. Nothing was changed.
        StorageError: it cannot be read, copied or written.
    """
    before = after = examiner.examine(path)  # also that the file is there, so that no lock is made for a wrong name
    if not before.is_repairable:
        return Repairs(before=before, after=before, copy="")
    lock = ProcessLock(DatabaseFiles(path))
    lock.acquire()
    try:
        copy = path.with_name(f"{path.name}.before-repair-{now:%Y%m%dT%H%M%S}")
        back_up(path, copy, keeps_damage=True, advance=advance)
        for _ in range(MAX_ROUNDS):
            _repair_once(path, examiner)
            after = examiner.examine(path)
            if not after.is_repairable:
                break
    finally:
        lock.release()
    return Repairs(before=before, after=after, copy=str(copy))


def _repair_once(path: Path, examiner: Examiner) -> None:
    """Writes while another connection reads the state before: in WAL mode neither disturbs the other."""
    with (
        translated(path),
        closing(sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_SECONDS)) as db,
    ):
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA foreign_keys=ON")
        db.execute("BEGIN IMMEDIATE")

        def apply(finding: Finding) -> None:
            for statement in finding.repair:
                db.execute(statement.sql, statement.parameters)

        examiner.visit(path, apply)
        db.execute("COMMIT")
