"""Proves that a migration has added types and changed nothing else."""

import hashlib
import sqlite3
from typing import Any

import msgspec
from msgspec import Struct

from turnwire.interop.pynchy.classification import classify
from turnwire.interop.pynchy.legacy_file import (
    Row,
    check_pages,
    count_rows,
    data_version,
    examine,
    rows_after,
    transaction,
)
from turnwire.interop.pynchy.migration import BATCH_ROWS, Advance, Rules, silent

NAMED_ROWS = 5
"""Rows that are named as examples."""


class Fingerprint(Struct, frozen=True, kw_only=True):
    """What the old columns of all rows are at one moment."""

    rows: int
    digest: str
    """Equal for equal rows in any order."""
    data_version: int
    """Compares only with that of the same connection."""


class Verification(Struct, frozen=True, kw_only=True):
    """What was found."""

    before: Fingerprint
    after: Fingerprint
    is_complete: bool
    """Whether columns and index are there."""
    open_rows: int
    """Rows that another migration would change."""
    wrong_rows: int
    """Rows whose type is not what the rules give them."""
    first_wrong: tuple[str, ...]
    """Chat and id of the first of these."""

    @property
    def is_same(self) -> bool:
        """Whether the old columns are as they were."""
        return (self.before.rows, self.before.digest) == (self.after.rows, self.after.digest)

    @property
    def is_written_meanwhile(self) -> bool:
        """Whether another program has written to the file, so that old columns may differ and rows be open."""
        return self.before.data_version != self.after.data_version

    @property
    def is_right(self) -> bool:
        """Whether everything is as it should be.

        Where another program has written, the checks of each batch stand in for the comparison of all rows.
        """
        as_it_was = self.is_same and not self.open_rows
        return self.is_complete and not self.wrong_rows and (as_it_was or self.is_written_meanwhile)


def fingerprint(db: sqlite3.Connection, advance: Advance = silent) -> Fingerprint:
    """Returns what the old columns are. Reads one moment of the file.

    Raises:
        StorageError: it is no file of pynchy; see `examine`.
        StorageCorrupt: the file is damaged.
    """
    total = RowDigest()
    with transaction(db, "BEGIN"):
        shape = examine(db)
        check_pages(db)
        rows = count_rows(db)
        for row in rows_after(db, shape):
            total.add(row.old)
            if total.rows % BATCH_ROWS == 0 or total.rows == rows:
                advance(total.rows, rows)
        return Fingerprint(rows=total.rows, digest=total.digest, data_version=data_version(db))


def verify(db: sqlite3.Connection, before: Fingerprint, rules: Rules, advance: Advance = silent) -> Verification:
    """Compares a migrated file with what it was. Reads one moment and writes nothing.

    Args:
        db: The connection that `before` was read with.
        before: Of the moment before the migration.
        rules: Those of the migration. Rows may have been reclassified or not, whatever they say about that.
        advance: Hears how it goes on.

    Raises:
        StorageError: it is no file of pynchy; see `examine`.
        StorageCorrupt: the file is damaged.
    """
    total, wrong, open_rows = RowDigest(), list[Row](), 0
    wrong_rows = 0
    with transaction(db, "BEGIN"):
        shape = examine(db)
        check_pages(db)
        rows = count_rows(db)
        for row in rows_after(db, shape):
            total.add(row.old)
            if rules.change(row) is not None:
                open_rows += 1
            elif not _is_right(row, rules):
                wrong_rows += 1
                wrong += [row] if len(wrong) < NAMED_ROWS else []
            if total.rows % BATCH_ROWS == 0 or total.rows == rows:
                advance(total.rows, rows)
        return Verification(
            before=before,
            after=Fingerprint(rows=total.rows, digest=total.digest, data_version=data_version(db)),
            is_complete=shape.is_complete,
            open_rows=open_rows,
            wrong_rows=wrong_rows,
            first_wrong=tuple(f"{row.old[1]}/{row.old[0]}" for row in wrong),
        )


def _is_right(row: Row, rules: Rules) -> bool:
    found = (row.message_type, row.metadata)
    either = (classify(row.sender, row.content, rules.bot_names, reclassify=switch) for switch in (False, True))
    return any((str(what.type), what.metadata_json) == found for what in either)


class RowDigest:
    """Adds up the old columns of rows, so that their order does not count: a replaced row moves to the end."""

    def __init__(self) -> None:
        """Begins without a row."""
        self.rows = 0
        """How many were added."""
        self._sum = 0

    def add(self, old: tuple[Any, ...]) -> None:
        """Adds the old columns of a row in their order."""
        encoded = msgspec.msgpack.encode([_tagged(value) for value in old])
        self._sum += int.from_bytes(hashlib.blake2b(encoded, digest_size=32).digest())
        self.rows += 1

    @property
    def digest(self) -> str:
        """Equal for equal rows in any order."""
        return f"{self._sum % (1 << 256):064x}"


def _tagged(value: Any) -> Any:
    """Returns a value that differs from those of other types; text as its bytes, since it may not be valid."""
    return ["text", value.encode(errors="surrogateescape")] if isinstance(value, str) else value
