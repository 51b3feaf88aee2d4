"""Examines a database without changing it, also while a server uses it."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from turnwire.ports.codec import Codec
from turnwire.storage.sqlite.care.checks.events import check_events
from turnwire.storage.sqlite.care.checks.files import check_files
from turnwire.storage.sqlite.care.checks.listing import check_listing, check_totals
from turnwire.storage.sqlite.care.checks.messages import check_messages, check_order
from turnwire.storage.sqlite.care.checks.questions import check_questions
from turnwire.storage.sqlite.care.checks.search import check_search
from turnwire.storage.sqlite.care.checks.sessions import check_permissions, check_sessions, check_turns
from turnwire.storage.sqlite.care.checks.structure import (
    CHANGED_INDEX,
    CHANGED_TABLE,
    DAMAGED_FILE,
    DAMAGED_INDEX,
    check_pages,
    check_references,
    check_schema,
)
from turnwire.storage.sqlite.care.checks.uploads import check_uploads
from turnwire.storage.sqlite.care.findings import Finding, Report, Tally
from turnwire.storage.sqlite.care.inspection import FrameReader, Inspection
from turnwire.storage.sqlite.care.opening import read_only, schema_version
from turnwire.storage.sqlite.schema import MIGRATIONS

TABLES = ("sessions", "turns", "permissions", "questions", "messages", "events", "files", "uploads")
"""The tables whose rows an examination reads, in its order."""

_CONTENTS = (
    *(check_sessions, check_turns, check_permissions, check_questions, check_messages, check_order),
    *(check_events, check_files, check_uploads, check_search, check_listing, check_totals),
)

_UNRELIABLE = frozenset({DAMAGED_FILE, DAMAGED_INDEX, CHANGED_TABLE, CHANGED_INDEX})
"""Problems that keep the contents from being examined: a query could miss rows or fail."""


class Progress:
    """Hears how an examination goes on. This one ignores it."""

    def begin(self, rows: dict[str, int]) -> None:
        """The pages are examined, the rows of these tables follow."""

    def advance(self, table: str, rows: int) -> None:
        """So many more rows of a table are examined."""


class Examiner(Struct, frozen=True):
    """Examines databases."""

    codec: Codec
    frames: FrameReader
    progress: Progress = Progress()

    def examine(self, path: Path) -> Report:
        """Returns what is wrong with a database.

        Raises:
            StorageSchemaTooNew: a newer version of Turnwire has written it.
            StorageCorrupt: it is damaged beyond reading, or no Turnwire database.
            StorageError: it is not there or cannot be read.
        """
        with read_only(path) as db:
            version = schema_version(db)
            examination = _Examination(self, db)
            tally = Tally()
            tally.add(examination.findings())
            return Report(
                path=str(path),
                schema_version=version,
                known_schema_version=len(MIGRATIONS),
                is_complete=examination.is_complete,
                rows=examination.rows,
                findings=tally.summaries(),
            )

    def visit(self, path: Path, take: Callable[[Finding], None]) -> None:
        """Examines a database and hands each finding over as it is found, however many there are; see `examine`."""
        with read_only(path) as db:
            schema_version(db)  # refuses what cannot be examined
            for finding in _Examination(self, db).findings():
                take(finding)


class _Examination:
    """One pass over one database."""

    def __init__(self, examiner: Examiner, db: sqlite3.Connection) -> None:
        self._examiner = examiner
        self._db = db
        self.is_complete = False
        self.rows: dict[str, int] = {}

    def findings(self) -> Iterator[Finding]:
        """Yields what is found: first of the file, then, where that is reliable, of its contents."""
        is_reliable = True
        for finding in self._of_structure():
            is_reliable &= finding.problem not in _UNRELIABLE
            yield finding
        if not is_reliable:
            return
        self._examiner.progress.begin({table: self._count(table) for table in TABLES})
        inspection = Inspection(self._db, self._examiner.codec, self._examiner.frames, self._advance)
        yield from check_references(self._db)
        for check in _CONTENTS:
            yield from check(inspection)
        self.is_complete = True

    def _of_structure(self) -> Iterator[Finding]:
        try:
            yield from check_pages(self._db)
            yield from check_schema(self._db)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # busy, or an I/O error
                raise
            yield Finding(DAMAGED_FILE, str(error))

    def _count(self, table: str) -> int:
        self.rows[table] = 0
        (count,) = self._db.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)

    def _advance(self, table: str, rows: int) -> None:
        self.rows[table] += rows
        self._examiner.progress.advance(table, rows)
