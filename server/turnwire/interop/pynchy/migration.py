"""Adds the types of messages to a file of pynchy in place. Nothing that is there changes.

A row counts as not migrated while it has the values that the columns give a row of an old program. So a migration that
was killed goes on where it was, a second one changes nothing, and one more gives rows their types that an old program
has added or replaced since. Rows that a newer program has typed are left as they are.
"""

import contextlib
import itertools
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator

from msgspec import Struct

from turnwire.domain.errors import StorageBusy
from turnwire.interop.pynchy.classification import Classification, classify
from turnwire.interop.pynchy.legacy_file import (
    INDEX,
    INDEX_COLUMNS,
    NEW_COLUMNS,
    Row,
    Shape,
    count_rows,
    data_version,
    examine,
    last_row,
    rows_after,
    transaction,
)

BATCH_ROWS = 2_000
"""Rows of one transaction: another program waits some 50 ms for them."""

BATCH_CHARS = 8 * 1024 * 1024
"""Text of one transaction, at which it ends, so that rows with much text do not fill the memory."""

MAX_ATTEMPTS = 5
"""How often a batch is begun while another program changes its rows."""

MAX_PASSES = 5
"""How often the rows are gone through while another program adds some."""

Advance = Callable[[int, int], None]
"""Hears how many rows are done, and how many there are."""


def silent(_done: int, _all: int) -> None:
    """Hears nothing."""


class Rules(Struct, frozen=True, kw_only=True):
    """How rows are classified; see `classify`."""

    bot_names: frozenset[str] = frozenset()
    reclassify: bool = False

    def of(self, row: Row) -> Classification:
        """Returns what a row is."""
        return classify(row.sender, row.content, self.bot_names, reclassify=self.reclassify)

    def change(self, row: Row) -> Classification | None:
        """Returns what a row is to become; None when it stays as it is."""
        is_open = row.message_type == "user" and row.metadata is None
        if not is_open and not (self.reclassify and row.legacy_kind):
            return None
        what = self.of(row)
        return None if (str(what.type), what.metadata_json) == (row.message_type, row.metadata) else what


class Survey(Struct, frozen=True, kw_only=True):
    """What a migration does to a file."""

    shape: Shape
    rows: int
    types: dict[str, int]
    """How many rows of each type there are afterwards."""
    legacy_kinds: dict[str, int]
    """How many rows of each kind are no conversation afterwards."""
    to_change: int
    """Rows whose values are to change."""


def survey(db: sqlite3.Connection, rules: Rules, advance: Advance = silent) -> Survey:
    """Returns what a migration would do. Reads one moment of the file and writes nothing.

    Raises:
        StorageError: the file cannot be migrated; see `examine`.
    """
    types, kinds = Counter[str](), Counter[str]()
    changes = 0
    with transaction(db, "BEGIN"):
        shape = examine(db)
        rows = count_rows(db)
        for number, row in enumerate(rows_after(db, shape), 1):
            change = rules.change(row)
            changes += change is not None
            types[row.message_type if change is None else str(change.type)] += 1
            if kind := row.legacy_kind if change is None else change.legacy_kind:
                kinds[str(kind)] += 1
            if number % BATCH_ROWS == 0 or number == rows:
                advance(number, rows)
    return Survey(
        shape=shape, rows=rows, types=dict(sorted(types.items())), legacy_kinds=dict(sorted(kinds.items())),
        to_change=changes,
    )  # fmt: skip


def migrate(db: sqlite3.Connection, rules: Rules, advance: Advance = silent, *, batch_rows: int = BATCH_ROWS) -> int:
    """Adds what is missing and returns how many rows have changed.

    Columns and index are added in one transaction, rows change in batches, each in one. Whenever this ends, killed or
    not, the file is whole and another migration finishes it. Other programs may read and write meanwhile.

    Raises:
        StorageBusy: another program held the file too long, or changed the same rows again and again.
        StorageError: the file cannot be migrated, or SQLite refused; earlier batches stay.
    """
    with transaction(db):
        shape = examine(db)
        for name in shape.missing_columns:
            db.execute(f"ALTER TABLE messages ADD COLUMN {NEW_COLUMNS[name]}")
        if not shape.has_index:
            db.execute(f"CREATE INDEX {INDEX} ON messages({', '.join(INDEX_COLUMNS)})")
    changed, after = 0, None
    for _ in range(MAX_PASSES):
        version, last = data_version(db), last_row(db)
        changed += _pass(db, rules, advance, batch_rows, (after, last))
        if data_version(db) == version:
            break
        after = last - 1  # what others have stored meanwhile is behind, or in place of the last row
    return changed


def _pass(
    db: sqlite3.Connection, rules: Rules, advance: Advance, batch_rows: int, between: tuple[int | None, int]
) -> int:
    """Goes once through the rows after one and up to another; without an end it could follow a program for ever."""
    after, last = between
    changed, done, total = 0, 0, count_rows(db)
    while batch := _batch(db, after, last, batch_rows):
        for _ in range(MAX_ATTEMPTS):
            # Rows are read and classified while others may write: SQLite has no queue for writers, and one that looks
            # for the file every 100 ms would find it held each time if nothing came between two transactions.
            changes = [(row, what) for row in batch if (what := rules.change(row)) is not None]
            if not changes or _write(db, changes, after):
                break
            batch = _batch(db, after, last, batch_rows)
        else:
            raise StorageBusy("the old columns of rows change with their types: another program or a trigger does so")
        if batch:
            after, done, changed = batch[-1].rowid, done + len(batch), changed + len(changes)
        advance(done, max(total, done))
    return changed


def _batch(db: sqlite3.Connection, after: int | None, last: int, batch_rows: int) -> list[Row]:
    batch, chars = list[Row](), 0
    with contextlib.closing(_rows(db, after, last)) as rows:
        for row in itertools.islice(rows, batch_rows):
            batch.append(row)
            chars += len(row.content)
            if chars >= BATCH_CHARS:
                break
    return batch


def _rows(db: sqlite3.Connection, after: int | None, last: int) -> Generator[Row, None, None]:
    return rows_after(db, Shape((), True), after, last)


def _write(db: sqlite3.Connection, changes: list[tuple[Row, Classification]], after: int | None) -> bool:
    """Stores what rows are; not if an old column of one of them is then no longer as it was read."""
    before = {row.rowid: row.old for row, _ in changes}
    with contextlib.suppress(_Changed), transaction(db):
        db.executemany(
            "UPDATE messages SET message_type = ?, metadata = ? WHERE rowid = ? AND message_type = ? AND metadata IS ?",
            [(str(what.type), what.metadata_json, row.rowid, row.message_type, row.metadata) for row, what in changes],
        )
        now = {row.rowid: row.old for row in _rows(db, after, changes[-1][0].rowid)}
        if any(now.get(rowid) != old for rowid, old in before.items()):
            raise _Changed
        return True
    return False


class _Changed(Exception):
    """Rows are no longer what they were when they were read."""
