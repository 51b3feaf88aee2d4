"""Gives the messages of a file of pynchy their types in place. Nothing else that is there changes.

A row counts as not typed while it has the values that a new column gives to every row. So a migration that was killed
goes on where it was, a second one changes nothing, and one more types the rows that an old program has added or
replaced since. What another program has typed wins over the rules and stays.

Triggers of the owner do not fire: a transaction takes those of `messages` away and puts them back before it commits, so
no other program ever sees the table without them.
"""

import hashlib
import itertools
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from turnwire_adapters.importers.problems import FileError
from turnwire_adapters.importers.pynchy.file import INDEX, INDEX_COLUMNS, NEW_COLUMNS, Row, Shape, examine, rows_after
from turnwire_adapters.importers.pynchy.rows import Classification, classify
from turnwire_adapters.importers.sqlite_file import check_pages, quoted, transaction

BATCH_ROWS = 2_000
"""Rows of one transaction: another program waits some 50 ms for them."""

BATCH_CHARS = 8 * 1024 * 1024
"""Text of one transaction, at which it ends, so that rows with much text do not fill the memory."""

MAX_ATTEMPTS = 5
"""Maximum attempts at one batch while another program changes its rows."""

MAX_PASSES = 5
"""Maximum passes over all rows while another program adds some."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The options of `classify`."""

    bot_names: frozenset[str] = frozenset()
    reclassify: bool = False

    def change(self, row: Row) -> Classification | None:
        """Returns what a row is to become; None when it stays as it is."""
        if row.is_typed and not (self.reclassify and row.facts.get("legacy_kind")):
            return None
        what = classify(row.sender, row.content, self.bot_names, reclassify=self.reclassify)
        return None if (what.type, what.metadata) == (row.message_type, row.metadata) else what


@dataclass(frozen=True, kw_only=True)
class Survey:
    """State of a file at one moment, and the changes that a migration would make."""

    shape: Shape
    rows: int
    types: dict[str, int]
    """Number of rows of each type afterwards."""
    legacy_kinds: dict[str, int]
    """Number of rows, by kind, that are no conversation afterwards."""
    to_change: int
    """Rows whose values are to change."""
    digest: str
    """Digest of the old columns of all rows, whatever their order."""
    typed_digest: str
    """Digest of all rows as they are after the migration, with types and metadata."""


@dataclass(kw_only=True)
class Done:
    """Result of a migration."""

    changed: int = 0
    bad: dict[int, str] = field(default_factory=dict)
    """Rows that SQLite did not let change, and why."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """A file before and after its migration."""

    before: Survey
    after: Survey
    is_written_meanwhile: bool
    """Whether another program has written to the file, so that old columns may differ and rows be open."""
    bad: int = 0
    """Rows that did not let themselves be typed."""

    @property
    def is_same(self) -> bool:
        """Whether the old columns are as they were."""
        return (self.before.rows, self.before.digest) == (self.after.rows, self.after.digest)

    @property
    def is_right(self) -> bool:
        """Whether columns and index are there, old columns as they were, and each row of the type that it is to have.

        Where another program has written, the checks of each batch stand in for the comparison of all rows.
        """
        as_foreseen = self.before.typed_digest == self.after.typed_digest or self.bad > 0
        as_foreseen = as_foreseen and self.after.to_change == self.bad
        return self.after.shape.is_complete and (self.is_written_meanwhile or (self.is_same and as_foreseen))


class RowDigest:
    """Adds up rows, so that their order does not count: a replaced row moves to the end."""

    def __init__(self) -> None:
        """Begins without a row."""
        self.rows = 0
        self._sum = 0

    def add(self, values: tuple[Any, ...]) -> None:
        """Adds the values of a row. The text of a number is another value than the number."""
        self._sum += _number_of(values)
        self.rows += 1

    def remove(self, values: tuple[Any, ...]) -> None:
        """Takes a row away that was added."""
        self._sum -= _number_of(values)
        self.rows -= 1

    @property
    def digest(self) -> str:
        """Equal for equal rows in any order."""
        return f"{self._sum % (1 << 256):064x}"


def _number_of(values: tuple[Any, ...]) -> int:
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=32).digest())


def survey(db: sqlite3.Connection, rules: Rules) -> Survey:
    """Returns what a migration would do. Reads one moment of the file and writes nothing.

    Raises:
        FileError: it is no file of pynchy (see `examine`), or it is damaged.
    """
    types, kinds, changes, old, typed = Counter[str](), Counter[str](), 0, RowDigest(), RowDigest()
    with transaction(db, "BEGIN"):
        shape = examine(db)
        check_pages(db)
        for row in rows_after(db, shape):
            change = rules.change(row)
            changes += change is not None
            type_, metadata = (row.message_type, row.metadata) if change is None else (change.type, change.metadata)
            kind = row.facts.get("legacy_kind") if change is None else change.legacy_kind
            types[str(type_)] += 1
            if kind:
                kinds[str(kind)] += 1
            old.add(row.old)
            typed.add((*row.old, type_, metadata))
    return Survey(
        shape=shape,
        rows=old.rows,
        types=dict(sorted(types.items())),
        legacy_kinds=dict(sorted(kinds.items())),
        to_change=changes,
        digest=old.digest,
        typed_digest=typed.digest,
    )


def migrate(db: sqlite3.Connection, rules: Rules, *, skip_bad: bool = False, batch_rows: int = BATCH_ROWS) -> Done:
    """Adds what is missing and types the rows.

    Columns and index are added in one transaction, rows change in batches, each in one. Whenever this ends, killed or
    not, the file is whole and another migration finishes it. Other programs may read and write meanwhile.

    Args:
        db: The file, opened for writing.
        rules: How rows are classified.
        skip_bad: Whether to go on without the rows that a constraint of the file does not let change.
        batch_rows: Rows of one transaction.

    Raises:
        FileError: another program changed the same rows again and again, a constraint does not let a row change, or the
            file cannot be migrated; earlier batches stay.
    """
    with transaction(db):
        shape = examine(db)
        for name in shape.missing_columns:
            db.execute(f"ALTER TABLE messages ADD COLUMN {NEW_COLUMNS[name]}")
        if not shape.has_index:
            db.execute(f"CREATE INDEX {INDEX} ON messages({', '.join(INDEX_COLUMNS)})")
    run = _Run(db, rules, examine(db), skip_bad=skip_bad, batch_rows=batch_rows)
    after = None
    for _ in range(MAX_PASSES):
        version, last = data_version(db), _last_row(db)
        run.go_through(after, last)
        if data_version(db) == version:
            break
        after = last - 1  # what others have stored meanwhile is behind, or in place of the last row
    return run.done


def data_version(db: sqlite3.Connection) -> int:
    """Returns a number that is another one once another connection has changed the file."""
    (version,) = db.execute("PRAGMA data_version").fetchone()
    return int(version)


class _Run:
    """One migration."""

    def __init__(self, db: sqlite3.Connection, rules: Rules, shape: Shape, *, skip_bad: bool, batch_rows: int) -> None:
        self.done = Done()
        self._db = db
        self._rules = rules
        self._shape = shape
        self._skip_bad = skip_bad
        self._batch_rows = batch_rows

    def go_through(self, after: int | None, last: int) -> None:
        """Goes once through the rows after one and up to another; without an end it could follow a program for ever."""
        while batch := self._batch(after, last):
            for _ in range(MAX_ATTEMPTS):
                # Rows are read and classified while others may write: SQLite has no queue for writers, and one that
                # looks for the file every 100 ms would find it held each time if nothing came between two transactions.
                changes = [(row, what) for row in batch if (what := self._change(row)) is not None]
                if not changes or self._write(changes, after):
                    break
                batch = self._batch(after, last)
            else:
                raise FileError("the old columns of rows change with their types: another program does so")
            after = batch[-1].rowid if batch else last

    def _change(self, row: Row) -> Classification | None:
        return None if row.rowid in self.done.bad else self._rules.change(row)

    def _batch(self, after: int | None, last: int) -> list[Row]:
        batch, chars = list[Row](), 0
        with closing(rows_after(self._db, self._shape, after, last)) as rows:
            for row in itertools.islice(rows, self._batch_rows):
                batch.append(row)
                chars += len(row.content)
                if chars >= BATCH_CHARS:
                    break
        return batch

    def _write(self, changes: list[tuple[Row, Classification]], after: int | None) -> bool:
        """Stores what rows are; not if an old column of one of them is then no longer as it was read."""
        before = {row.rowid: row.old for row, _ in changes}
        changed = 0
        with suppress(_Changed), transaction(self._db), _without_triggers(self._db):
            for row, what in changes:
                changed += self._update(row, what)
            with closing(rows_after(self._db, self._shape, after, changes[-1][0].rowid)) as rows:
                now = {row.rowid: row.old for row in rows}
            if any(now.get(rowid) != old for rowid, old in before.items()):
                raise _Changed
            self.done.changed += changed
            return True
        return False

    def _update(self, row: Row, what: Classification) -> int:
        try:
            done = self._db.execute(
                "UPDATE messages SET message_type = ?, metadata = ?"
                " WHERE rowid = ? AND message_type IS ? AND metadata IS ?",
                (what.type, what.metadata, row.rowid, row.message_type, row.metadata),
            )
        except sqlite3.IntegrityError as error:
            if not self._skip_bad:
                raise FileError(
                    f"message {row.name} cannot have the type {what.type!r} ({error}); --skip-bad leaves such rows out"
                ) from error
            self.done.bad[row.rowid] = f"{row.name}: cannot have the type {what.type!r} ({error})"
            return 0
        return done.rowcount


@contextmanager
def _without_triggers(db: sqlite3.Connection) -> Iterator[None]:
    """Takes the triggers of `messages` away until the end of the block, within the transaction that runs."""
    triggers = db.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'messages' COLLATE NOCASE"
        " ORDER BY rowid"
    ).fetchall()
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {quoted(name)}")
    yield
    for _, sql in triggers:
        db.execute(sql)


def _last_row(db: sqlite3.Connection) -> int:
    """Returns the largest rowid; 0 when there is no row."""
    (rowid,) = db.execute("SELECT coalesce(max(rowid), 0) FROM messages").fetchone()
    return int(rowid)


class _Changed(Exception):
    """Rows are no longer what they were when they were read."""
