"""Moves a complete database, whose server is stopped, to an empty one: between a file and PostgreSQL, or within a kind.

All databases have the same tables, so rows are copied as they are, with their numbers, positions and timelines, and the
resume tokens of clients stay valid. All rows are written in one transaction, which ends once the copied rows were
compared with those that were read. Until then the target has a mark, and no server serves it.

The word index is not copied, because that of a file cannot be read: the next start rebuilds it. The tokens of callers
are copied too, although a file database keeps them in another file.
"""

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from turnwire.domain.errors import StorageCorrupt, StorageError
from turnwire.storage.rows import Row
from turnwire.storage.sql.changes import Insert
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.schema import MARK, Unfinished
from turnwire.storage.sql.tokens import put_tokens, token_rows
from turnwire.storage.sqlite import schema
from turnwire.storage.sqlite.care.damaged_log import refuse_damaged_log
from turnwire.storage.sqlite.connection import locked, opened
from turnwire.storage.sqlite.files import DatabaseFiles
from turnwire.storage.sqlite.tokens import opened_tokens
from turnwire.storage.tokens import is_address

MADE_ANEW = ("search_index", "search_entries", "search_state")
"""Tables that the next start fills."""

BATCH_ROWS = 1000
BATCH_BYTES = 4 * 2**20
"""Size of the rows that are in memory at once; the row that exceeds it is the last of them."""

CHECKSUM_BYTES = 16


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a move, after the copied rows were verified in the target."""

    source: str
    target: str
    rows: dict[str, int]
    """Number of rows, by table."""
    checksums: dict[str, str]
    """Checksums of the rows of each table, which depend neither on their order nor on the engine."""
    tokens: int
    """Number of copied tokens of callers."""


class _End(NamedTuple):
    """A database of one of the engines, with its lock."""

    name: str
    db: Database
    version: Callable[[], int]
    """Returns the version of its schema, 0 when it is empty. Raises Unfinished for one with the mark, and another
    StorageError for one that is not Turnwire's."""
    newest: int
    """The version of the schema of this version of Turnwire."""
    migrate: Callable[[], None]
    read: Callable[[str], Iterator[Row]]
    """Yields all rows of a statement as they arrive."""
    settle: Callable[[Iterable[str]], None]
    """Makes the engine number new rows of tables after those that they have."""


def move(
    source: str,
    target: str,
    advance: Callable[[int, int], None] = lambda _done, _all: None,
    *,
    tokens: tuple[str, str] | None = None,
) -> Moved:
    """Copies a complete database into an empty one, and returns when the copy is verified and stored.

    The source is only read. An interrupted move has stored no rows, and may be repeated.

    Args:
        source: The path of a file, or the address of a PostgreSQL database.
        target: A file to create, or a database without tables.
        advance: Called with the number of rows that were copied or compared so far, and with the total.
        tokens: Where the tokens of callers are, and where to copy them: one of the two databases, or a file for them.
            None leaves them where they are.

    Raises:
        StorageBusy: a server uses one of them, or it cannot be reached.
        StorageCorrupt: the source is damaged, or is not a Turnwire database, or the copy is incomplete.
        StorageError: the source has another schema, or the target is not empty or has other tokens; or the database
            failed.
    """
    columns = tables()
    with _opened(source, is_target=False) as old:
        _refuse_other_schema(old)
        with _opened(target, is_target=True) as new:
            _prepare(new)
            with _named(old), old.db.snapshot():
                progress = _Progress(advance, 2 * sum(_count(old, table) for table in columns))
                with _named(new), new.db.transaction():
                    read = {table: _copy(old, new, table, names, progress) for table, names in columns.items()}
                    found = {table: _tally(new, table, names, progress) for table, names in columns.items()}
                    if wrong := [table for table in columns if read[table] != found[table]]:
                        raise StorageCorrupt(f"{new.name}: not all of {', '.join(wrong)} was copied; nothing is stored")
                    new.settle(columns)
                    carried = 0 if tokens is None else _carry_tokens(old, new, *tokens)
                    new.db.run(f"DROP TABLE {MARK}")
    return Moved(
        source=old.name,
        target=new.name,
        rows={table: tally.rows for table, tally in read.items()},
        checksums={table: tally.checksum for table, tally in read.items()},
        tokens=carried,
    )


def tables() -> Mapping[str, tuple[str, ...]]:
    """Returns the tables that a move copies, with their columns. Tables that others refer to come first."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        schema.migrate(db)
        made = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")
        names = [name for (name,) in made if not name.startswith(("sqlite_", *MADE_ANEW))]
        columns = "SELECT name FROM pragma_table_info(?) ORDER BY cid"
        return {name: tuple(column for (column,) in db.execute(columns, (name,))) for name in names}


class _Tally:
    """The number of rows that were read, and the sum of their checksums, which is equal for equal rows in any order."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, row: Row) -> int:
        """Counts a row. Returns its approximate size in bytes."""
        # PostgreSQL stores no NUL in a text
        values = [value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in row]
        encoded = msgspec.msgpack.encode(values)
        self.rows += 1
        self._sum += int.from_bytes(hashlib.blake2b(encoded, digest_size=CHECKSUM_BYTES).digest())
        return len(encoded)

    @property
    def checksum(self) -> str:
        """The sum."""
        return f"{self._sum % 2 ** (8 * CHECKSUM_BYTES):0{2 * CHECKSUM_BYTES}x}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tally) and (self.rows, self.checksum) == (other.rows, other.checksum)

    __hash__ = None  # type: ignore[assignment]


class _Progress:
    """Reports the number of rows that are done."""

    def __init__(self, advance: Callable[[int, int], None], total: int) -> None:
        self._advance = advance
        self._total = total
        self._done = 0

    def add(self, rows: int) -> None:
        self._done += rows
        self._advance(self._done, self._total)


def _refuse_other_schema(old: _End) -> None:
    with _named(old):
        version = old.version()
    if not version:
        raise StorageCorrupt(f"{old.name} is empty, not a Turnwire database")
    if version != old.newest:
        problem = f"has schema version {version}, this version of Turnwire moves {old.newest}"
        raise StorageError(f"{old.name} {problem}: run a server of this version with it once")


def _prepare(new: _End) -> None:
    """Writes the mark, with which no server serves the target, then creates the tables."""
    with _named(new):
        with contextlib.suppress(Unfinished):
            if new.version():
                raise StorageError(f"{new.name} is not empty: it has a Turnwire database", {"target": new.name})
        new.db.run(f"CREATE TABLE IF NOT EXISTS {MARK} (id bigint)")
        new.migrate()


def _copy(old: _End, new: _End, table: str, columns: Sequence[str], progress: _Progress) -> _Tally:
    """Writes the rows of a table in batches."""
    new.db.run(f"DELETE FROM {table}")  # rows that each new database has
    change, tally = Insert(table, tuple(columns)), _Tally()
    rows, size = list[Row](), 0

    def write() -> None:
        with _named(new):
            new.db.write(change, rows)
        progress.add(len(rows))

    for row in _rows(old, table, columns):
        rows.append(row)
        size += tally.add(row)
        if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
            write()
            rows, size = [], 0
    write()
    return tally


def _tally(end: _End, table: str, columns: Sequence[str], progress: _Progress) -> _Tally:
    tally = _Tally()
    for row in _rows(end, table, columns):
        tally.add(row)
        if tally.rows % BATCH_ROWS == 0:
            progress.add(BATCH_ROWS)
    progress.add(tally.rows % BATCH_ROWS)
    return tally


def _carry_tokens(old: _End, new: _End, source: str, target: str) -> int:
    """Copies the tokens. Tokens that the target has from being the source of an earlier move are overwritten."""
    if not is_address(source) and not Path(source).exists():
        return 0
    with _tokens(old, source) as db:
        rows = token_rows(db)
    if rows:
        with _tokens(new, target) as db:
            if {row[0] for row in token_rows(db)} - {row[0] for row in rows}:
                raise StorageError(f"{target} has tokens that {source} does not have: move that file away")
            put_tokens(db, rows)
    return len(rows)


@contextlib.contextmanager
def _tokens(end: _End, place: str) -> Iterator[Database]:
    """Yields the database with the tokens of an end: in its transaction, or in one of a file of tokens."""
    if is_address(place):
        with _named(end):
            yield end.db
        return
    with closing(opened_tokens(Path(place), create=True)) as db:
        try:
            with db.transaction():
                yield db
        except db.failures as error:
            raise StorageError(f"{place}: {db.translate(error).message}", {"path": place}) from error


def _rows(end: _End, table: str, columns: Sequence[str]) -> Iterator[Row]:
    return end.read(f"SELECT {', '.join(columns)} FROM {table}")


def _count(end: _End, table: str) -> int:
    [(count,)] = end.db.rows(f"SELECT count(*) FROM {table}")
    return int(count)


@contextlib.contextmanager
def _named(end: _End) -> Iterator[None]:
    """Translates errors of a database into those of the store; the text names the database."""
    try:
        yield
    except end.db.failures as error:
        found = end.db.translate(error)
        raise type(found)(f"{end.name}: {found.message}", found.metadata) from error


def _opened(name: str, *, is_target: bool) -> AbstractContextManager[_End]:
    return _server(name, is_target=is_target) if is_address(name) else _file(Path(name), is_target=is_target)


@contextlib.contextmanager
def _file(path: Path, *, is_target: bool) -> Iterator[_End]:
    if not is_target and not path.is_file():
        raise StorageError(f"the file {path} does not exist", {"path": str(path)})
    with locked(files := DatabaseFiles(path), create=is_target):
        refuse_damaged_log(files.beside(""))
        with closing(opened(path, read_only=not is_target)) as db:
            if is_target:
                db.execute("PRAGMA journal_mode=DELETE")  # a log would become as large as the database
            yield _End(
                name=str(path),
                db=db,
                version=partial(schema.schema_version, db),
                newest=len(schema.MIGRATIONS),
                migrate=partial(schema.migrate, db, takes_unfinished=True),
                read=db.each,
                settle=lambda _: None,
            )


@contextlib.contextmanager
def _server(url: str, *, is_target: bool) -> Iterator[_End]:
    from turnwire.storage.postgres import schema as server_schema  # noqa: PLC0415 - an extra
    from turnwire.storage.postgres.moving import every_row, number_behind  # noqa: PLC0415
    from turnwire.storage.postgres.store import writing  # noqa: PLC0415

    with closing(writing(url)) as db:
        yield _End(
            name=url,
            db=db,
            version=partial(server_schema.schema_version, db),
            newest=len(server_schema.MIGRATIONS),
            migrate=partial(server_schema.migrate, db, takes_unfinished=True),
            read=partial(every_row, db),
            settle=partial(number_behind, db),
        )
        if is_target:
            with contextlib.suppress(*db.failures):
                db.run("ANALYZE")  # without it, the first plans do not consider the sizes of the tables
