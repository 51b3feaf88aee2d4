"""Examines a database, and recomputes what can be computed from the rest: indexes and counters.

An examination changes nothing and may run while a server does. It makes SQLite check the file, and recounts what the
server counts. Only the server interprets stored values; they are not repaired here.
"""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from turnwire.storage.sql.accounts import count_anew, wrong_stored_bytes, wrong_totals
from turnwire.storage.sql.words import forget_words
from turnwire.storage.sqlite.care.backup import back_up
from turnwire.storage.sqlite.care.integrity import IntegrityReport, integrity_report
from turnwire.storage.sqlite.care.opening import read_only, schema_version, translated
from turnwire.storage.sqlite.connection import BUSY_TIMEOUT_SECONDS, locked
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.files import DatabaseFiles
from turnwire.storage.sqlite.schema import MIGRATIONS

SHOWN_SUBJECTS = 5
"""Number of subjects with one problem that a report lists."""

_OF_INDEX = re.compile(r"(?:row \d+ missing from|wrong # of entries in|non-unique entry in) index (\w+)")


class Problem(Struct, frozen=True):
    """A kind of finding."""

    name: str
    """Stable, such as "tenants.totals"."""
    meaning: str
    """One sentence for people, which fits any number of findings."""
    is_repairable: bool = False


DAMAGED_FILE = Problem("file.damaged", "SQLite finds the file damaged: restore a backup")
DAMAGED_INDEX = Problem("file.index", "an index does not agree with its table", is_repairable=True)
LOST_REFERENCE = Problem("references", "rows of a table name something that is missing")
WRONG_STORED = Problem("sessions.stored", "the bytes that a session has stored are counted wrongly", is_repairable=True)
WRONG_TOTALS = Problem("tenants.totals", "the sessions and bytes of a tenant are counted wrongly", is_repairable=True)


class Finding(Struct, frozen=True, kw_only=True):
    """Everything that has one problem."""

    name: str
    meaning: str
    count: int
    repairable: int
    """The number of findings that a repair can end: all or none."""
    first: tuple[str, ...]
    """The first few: ids, names of tables or indexes, or lines of SQLite."""


class Report(Struct, frozen=True, kw_only=True):
    """The result of one examination."""

    path: str
    schema_version: int
    known_schema_version: int
    """The newest version that this program knows."""
    is_complete: bool
    """False when an older schema or a damaged file kept the counters from being examined."""
    rows: dict[str, int]
    """Number of rows of each table; -1 where the file is too damaged to count."""
    findings: tuple[Finding, ...]

    @property
    def is_clean(self) -> bool:
        """Returns whether there is no finding."""
        return not self.findings

    @property
    def is_repairable(self) -> bool:
        """Returns whether a repair would change something."""
        return any(finding.repairable for finding in self.findings)


class Repairs(Struct, frozen=True, kw_only=True):
    """The result of a repair."""

    before: Report
    after: Report
    """Equal to `before` when nothing could be repaired."""
    copy: str
    """The path of the copy of the database before the repair; "" when nothing was changed."""


def examine(path: Path) -> Report:
    """Returns what is wrong with a database.

    Raises:
        StorageSchemaTooNew: a newer version of Turnwire has written it.
        StorageCorrupt: it is damaged beyond reading, or is not a Turnwire database.
        StorageError: it does not exist or cannot be read.
    """
    with read_only(path) as db:
        version, report = schema_version(db), integrity_report(db)
        is_complete = report.is_whole and version == len(MIGRATIONS)
        findings = [*_of_file(report), *(_of_counters(db) if is_complete else ())]
        return Report(
            path=str(path),
            schema_version=version,
            known_schema_version=len(MIGRATIONS),
            is_complete=is_complete,
            rows=report.rows,
            findings=tuple(findings),
        )


def repair(path: Path, now: datetime, advance: Callable[[int, int], None] = lambda _done, _all: None) -> Repairs:
    """Examines a database, copies it, and recomputes what it can. No server can start meanwhile.

    Args:
        path: The database.
        now: Part of the copy's name.
        advance: Called with the progress of the copy; see `back_up`.

    Raises:
        StorageBusy: a server has the database open. Nothing was changed.
        StorageError: it cannot be read, copied or written.
    """
    before = after = examine(path)  # also checks that the file exists, so that no lock is made for a wrong name
    if not before.is_repairable:
        return Repairs(before=before, after=before, copy="")
    copy = path.with_name(f"{path.name}.before-repair-{now:%Y%m%dT%H%M%S}")
    with locked(DatabaseFiles(path)):
        back_up(path, copy, keeps_damage=True, advance=advance)
        while after.is_repairable:
            names = {finding.name for finding in after.findings}
            with _writing(path) as db:
                _repair(db, after)
            after = examine(path)
            if names == {finding.name for finding in after.findings}:  # nothing was repaired
                break
    return Repairs(before=before, after=after, copy=str(copy))


def rebuild_search(path: Path) -> None:
    """Makes the next start index all messages again. Nothing is lost: the words come from the messages.

    Raises:
        StorageBusy: a server has the database open.
        StorageError: it cannot be read or written, or is not a Turnwire database.
    """
    with read_only(path) as db:
        schema_version(db)
    with locked(DatabaseFiles(path)), _writing(path) as db:
        forget_words(db)


def _of_file(report: IntegrityReport) -> Iterator[Finding]:
    if not report.is_whole:
        indexes = [_OF_INDEX.search(line) for line in report.integrity]
        yield from _finding(DAMAGED_INDEX, dict.fromkeys(found[1] for found in indexes if found))
        lines = zip(report.integrity, indexes, strict=True)
        yield from _finding(DAMAGED_FILE, [line for line, found in lines if not found])
    yield from _finding(LOST_REFERENCE, report.lost_references)


def _of_counters(db: SqliteDatabase) -> Iterator[Finding]:
    yield from _finding(WRONG_STORED, wrong_stored_bytes(db))
    yield from _finding(WRONG_TOTALS, wrong_totals(db))


def _finding(problem: Problem, subjects: Iterable[str]) -> Iterator[Finding]:
    if found := tuple(subjects):
        yield Finding(
            name=problem.name,
            meaning=problem.meaning,
            count=len(found),
            repairable=len(found) if problem.is_repairable else 0,
            first=found[:SHOWN_SUBJECTS],
        )


def _repair(db: SqliteDatabase, report: Report) -> None:
    if any(finding.name == DAMAGED_INDEX.name for finding in report.findings):
        db.execute("REINDEX")
    if report.is_complete:
        count_anew(db)


@contextmanager
def _writing(path: Path) -> Iterator[SqliteDatabase]:
    """Opens a connection in a transaction, which is committed unless the context raises."""
    connecting = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_SECONDS, factory=SqliteDatabase)
    with translated(path), closing(connecting) as db:
        db.execute("PRAGMA synchronous=FULL")
        with db.transaction():
            yield db
