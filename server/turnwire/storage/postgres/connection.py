"""PostgreSQL as a `Database`: a psycopg connection with the methods that statements of both engines use."""

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg.types.string import StrBinaryDumper, StrDumperUnknown

from turnwire.domain.errors import StorageBusy, StorageCorrupt, StorageError, StorageFull
from turnwire.domain.shards import shard_of
from turnwire.storage.postgres.writing import SHARDED, arrays_of, statement_of, types_of, with_shard
from turnwire.storage.rows import Row
from turnwire.storage.sql.changes import Change, Insert
from turnwire.storage.sql.database import Dialect, Interrupted, OneServer, Words

FAILURES: tuple[type[Exception], ...] = (psycopg.Error, UnicodeDecodeError, msgspec.DecodeError)
"""The errors that a failing database causes in Python."""

READ_ROWS = 128
"""Rows that `each` fetches at once, mostly a page of a list."""

WAITING: Mapping[str, int] = {
    "connect_timeout": 10,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
}
"""Timeouts of a connection whose server does not answer, in seconds; `tcp_user_timeout` in milliseconds. Without them,
a connection to a machine that has disappeared would wait for a quarter of an hour."""

WAITING_OF_NODES: Mapping[str, int] = {
    "connect_timeout": 2,
    "tcp_user_timeout": 3_000,
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 2,
}
"""The same timeouts for nodes, which others replace soon: a node without its writing connection has no sessions, and
one without a reading connection cannot take those of others."""

_PLANNING = {"enable_seqscan": "off", "jit": "off"}
"""Makes PostgreSQL use an index wherever there is one. A prepared statement keeps its plan, and while a table is small
the plan would read it whole: in a new database, and in a restored one, for a minute and more. Compiling a statement
takes longer than it ever runs, except for counts of everything."""

_POSITIONS = 16_383
"""Highest position of a word in a `tsvector`. Positions of later words begin at 1 again, so that phrases are also found
in long texts."""


def _phrase(words: Sequence[str], is_prefix: bool) -> str:
    return " <-> ".join(f"'{word}'" for word in words) + (":*" if is_prefix else "")


def _tsvector(words: str) -> str:
    """Returns words with their positions. PostgreSQL keeps only the first 255 positions of a word."""
    places = dict[str, list[str]]()
    for place, word in enumerate(words.split()):
        places.setdefault(word, []).append(str(place % _POSITIONS + 1))
    return " ".join(f"'{word}':{','.join(found)}" for word, found in places.items())


_TSVECTOR = Words(
    matches="search_index.terms @@ CAST(? AS tsquery)",
    phrase=_phrase,
    both=" & ",
    either=" | ",
    but_not=" & !",
    row=_tsvector,
    remove="DELETE FROM search_index WHERE rowid = ? AND ? <> ''",
    clear="DELETE FROM search_index",
)


def _field(column: str, path: str) -> str:
    return f"({_json(column)}::json #>> '{{{path.replace('.', ',')}}}')"


def _without(column: str, field: str) -> str:
    without = f"CAST({_json(column)}::jsonb - '{field}' AS text)"  # with a blank behind each comma
    return f"CASE WHEN strpos({column}, '\"{field}\":') > 0 THEN {without} ELSE {column} END"


def _json(column: str) -> str:
    return rf"replace({column}, '\u0000', '\u0001')"  # json of PostgreSQL accepts no NUL


POSTGRES = Dialect(
    among="= ANY(?)",
    keys=list,
    byte_length="octet_length({})".format,
    field=_field,
    without=_without,
    contains="strpos({}, ?) > 0".format,
    beginning="left({}, 100)".format,
    merges_branches=False,
    greatest="greatest",
    least="least",
    hint=lambda _: "",
    row_id="ctid",
    words=_TSVECTOR,
)


class _IntegerDumper(Int8Dumper):
    """All integers as bigint: psycopg would choose a type by their size, with a plan of the statement for each."""


class _IntegerBinaryDumper(Int8BinaryDumper):
    """All integers in arrays as bigint."""


class _FlagDumper(Int8Dumper):
    """Flags as integers, as in SQLite."""

    def dump(self, obj: Any) -> bytes:
        return b"1" if obj else b"0"


class _FlagBinaryDumper(Int8BinaryDumper):
    """Flags in arrays as integers."""

    def dump(self, obj: Any) -> "Buffer | None":
        return super().dump(int(obj))


class _TextDumper(StrDumperUnknown):
    """Texts without NUL, which PostgreSQL refuses; copies of a text get another character there."""

    def dump(self, obj: str) -> "Buffer | None":
        return super().dump(obj.replace("\0", "\ufffd"))


class _TextBinaryDumper(StrBinaryDumper):
    """Texts in arrays without NUL."""

    def dump(self, obj: str) -> "Buffer | None":
        return super().dump(obj.replace("\0", "\ufffd"))


class _NumericLoader(Loader):
    """Loads numeric as int: sums of bigint are numeric, and whole numbers."""

    def load(self, data: "Buffer") -> int:
        return int(bytes(data))


_DUMPERS = (
    (int, _IntegerDumper),
    (int, _IntegerBinaryDumper),
    (bool, _FlagDumper),
    (bool, _FlagBinaryDumper),
    (str, _TextBinaryDumper),
    (str, _TextDumper),
)

_COLUMNS = """
SELECT table_name, column_name, udt_name FROM information_schema.columns WHERE table_schema = current_schema()
"""

NUMBERS_AT_ONCE = 1000
"""Numbers of rows that are taken from their sequence at a time, which is also its increment."""


class PostgresDatabase(OneServer):
    """Implements `turnwire.storage.sql.database.Database`; see there. In autocommit mode."""

    dialect = POSTGRES
    failures = FAILURES
    waiting = WAITING

    def __init__(self, url: str, *, read_only: bool) -> None:
        """Connects. Raises an error of psycopg."""
        self._url = url
        self._read_only = read_only
        self.connection = self._connected()
        """The psycopg connection, for what the protocol does not have."""
        self._cursors = itertools.count()
        """The names of cursors: several may be open in a snapshot."""
        self._is_over: Callable[[], bool] = lambda: False
        self._types: dict[tuple[str, str], str] = {}
        """Types of all columns by table and name; read at the first write."""
        self._has_changed = False

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Returns all rows."""
        if self._is_over():
            raise Interrupted
        return self._execute(statement, parameters).fetchall()

    def row(self, statement: str, parameters: Sequence[Any] = ()) -> Row | None:
        """Returns the first row."""
        if self._is_over():
            raise Interrupted
        return self._execute(statement, parameters).fetchone()

    def each(self, statement: str, parameters: Sequence[Any] = ()) -> Generator[Row]:
        """Yields rows as they are read."""
        with self.connection.cursor(f"rows_{next(self._cursors)}") as cursor:
            cursor.itersize = READ_ROWS
            cursor.execute(translated(statement), parameters)
            yield from cursor

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Carries out a statement."""
        changed = self._execute(statement, parameters).rowcount
        self._has_changed |= changed > 0
        return changed

    def write(self, change: Change, rows: Sequence[Row]) -> None:
        """Carries out a change for each of the rows."""
        if not rows:
            return
        if not self._types:
            self._types = {(table, column): type_ for table, column, type_ in self.rows(_COLUMNS)}
        if isinstance(change, Insert) and (sharded := SHARDED.get(change.table)):
            at = change.columns.index(sharded)
            change, rows = with_shard(change), [(*row, shard_of(row[at])) for row in rows]
        statement = statement_of(change, types_of(change, self._types))
        self.connection.execute(statement, arrays_of(rows))
        self._has_changed = True

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Sends the statements of the block without waiting for the answer to each."""
        with self.connection.pipeline():
            yield

    def numbers(self) -> Iterator[int]:
        """Yields numbers for rows, from blocks of a sequence."""
        while True:
            [(first,)] = self.rows("SELECT nextval('row_numbers')")
            yield from range(first, first + NUMBERS_AT_ONCE)

    def has_changed(self) -> bool:
        """Returns whether the transaction has changed a row."""
        return self._has_changed

    def begins_history(self, position: int) -> bool:
        """Returns False: only a connection that writes can find that out."""
        del position
        return False

    def concerns_all(self, error: BaseException) -> bool:
        """Returns whether an error concerns the server or the connection."""
        return isinstance(error, psycopg.OperationalError | psycopg.errors.ReadOnlySqlTransaction) or (
            isinstance(error, psycopg.Error) and self.connection.closed
        )

    def run_many(self, statement: str, parameters: Iterable[Sequence[Any]]) -> None:
        """Carries out a statement for each of the parameters."""
        with self.connection.cursor() as cursor:
            cursor.executemany(translated(statement), parameters)
            self._has_changed |= cursor.rowcount > 0

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Makes all reads in the block see the same moment."""
        self._surely("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        with self._ended():
            yield

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Begins a transaction that writes."""
        self._surely("BEGIN")
        self._has_changed = False
        with self._ended():
            yield

    @contextlib.contextmanager
    def _ended(self) -> Iterator[None]:
        try:
            yield
            if self._execute("COMMIT", ()).statusmessage != "COMMIT":  # an error in it was passed over
                raise psycopg.errors.InFailedSqlTransaction("the transaction was rolled back")
        except BaseException:
            if not self.connection.closed:
                with contextlib.suppress(psycopg.OperationalError):  # the connection is gone, and its transaction too
                    self.connection.rollback()  # also forgets what was to be prepared behind the error
            raise

    @contextlib.contextmanager
    def limited(self, is_over: Callable[[], bool], max_seconds: float) -> Iterator[None]:
        """Ends what runs in the block between statements; each of them may take all the time."""
        self.run(f"SET statement_timeout = {max(1, int(max_seconds * 1000))}")
        ends_at = time.monotonic() + max_seconds
        self._is_over = lambda: is_over() or time.monotonic() > ends_at
        try:
            yield
        except psycopg.errors.QueryCanceled:
            raise Interrupted from None
        finally:
            self._is_over = lambda: False
            if not self.connection.closed:
                self.run("SET statement_timeout = 0")

    def translate(self, error: Exception) -> StorageError:
        """Returns the storage error for one of FAILURES."""
        return translate(error)

    def close(self) -> None:
        """Closes the connection."""
        self.connection.close()

    def renew(self) -> None:
        """Connects again, when the connection was lost. Raises an error of psycopg."""
        self.connection = self._connected()

    def _connected(self) -> "psycopg.Connection[Row]":
        connection = connected(self._url, waiting=self.waiting)
        if self._read_only:
            connection.execute("SET default_transaction_read_only = on")
        return connection

    def _execute(self, statement: str, parameters: Sequence[Any]) -> "psycopg.Cursor[Row]":
        if self._read_only and self.connection.info.transaction_status != TransactionStatus.INTRANS:
            return self._surely(statement, parameters)
        return self.connection.execute(translated(statement), parameters)

    def _surely(self, statement: str, parameters: Sequence[Any] = ()) -> "psycopg.Cursor[Row]":
        """Carries out a statement outside a transaction. Repeats it on a new connection when this one is lost."""
        try:
            if not self.connection.closed:
                return self._once(statement, parameters)
        except psycopg.OperationalError:
            if not self.connection.closed:
                raise
        self.renew()
        return self._once(statement, parameters)

    def _once(self, statement: str, parameters: Sequence[Any]) -> "psycopg.Cursor[Row]":
        return self.connection.execute(translated(statement), parameters)


def opened(url: str, *, read_only: bool, kind: type[PostgresDatabase] = PostgresDatabase) -> PostgresDatabase:
    """Opens a connection of a kind.

    Raises:
        StorageError: the server cannot be reached, or rejects the connection. The text has no password.
    """
    try:
        return kind(url, read_only=read_only)
    except psycopg.Error as error:
        raise translate(error) from error


def connected(
    url: str, kind: "type[psycopg.Connection[Row]]" = psycopg.Connection, *, waiting: Mapping[str, int]
) -> "psycopg.Connection[Row]":
    """Returns a connection that converts values as the store needs them. Raises an error of psycopg."""
    connection = kind.connect(url, autocommit=True, **waiting)  # type: ignore[arg-type]
    for value, dumper in _DUMPERS:
        connection.adapters.register_dumper(value, dumper)
    connection.adapters.register_loader("numeric", _NumericLoader)
    configure(connection, _PLANNING)
    return connection


def configure(connection: "psycopg.Connection[Row]", settings: Mapping[str, str | int]) -> None:
    """Sets parameters of PostgreSQL for all later statements of a connection, outside a transaction."""
    each = ", ".join("set_config(%s, %s, false)" for _ in settings)
    connection.execute(f"SELECT {each}", [str(text) for setting in settings.items() for text in setting])


_OWN_MARKS = re.compile(r"'[^']*'|\?|%")


@lru_cache(maxsize=4096)
def translated(statement: str) -> str:
    """Returns a statement with the parameter marks of psycopg."""
    return _OWN_MARKS.sub(_mark, statement)


def _mark(found: re.Match[str]) -> str:
    return "%s" if found[0] == "?" else found[0].replace("%", "%%")


_FULL = frozenset(("53100",))
_BUSY = frozenset(("53200", "53300", "53400", "55006", "55P03", "57014", "40001", "40P01"))
"""Too many connections, no memory, a lock that was not granted: a later attempt may succeed."""
_CORRUPT = frozenset(("XX001", "XX002"))


def translate(error: Exception) -> StorageError:
    """Returns the storage error for one of FAILURES. Its text has no stored data."""
    if not isinstance(error, psycopg.Error):
        return StorageCorrupt("the database is damaged: a text in it cannot be read", {"detail": type(error).__name__})
    code = error.sqlstate
    if code in _FULL:
        return StorageFull("no space is left for the database")
    if code in _BUSY:
        return StorageBusy(f"the database has no room for this now (SQLSTATE {code})")
    if code in _CORRUPT:
        return StorageCorrupt(f"the database is damaged (SQLSTATE {code})", {"detail": str(code)})
    if is_lost(error):
        return StorageBusy("the database cannot be reached", {"detail": code or type(error).__name__})
    detail = code or type(error).__name__  # the text of the server quotes values
    return StorageError(f"the database failed: {detail}", {"detail": detail})


def is_lost(error: BaseException) -> bool:
    """Returns whether the connection is lost. Whether a COMMIT that failed so was carried out is unknown."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or error.sqlstate[:2] in ("08", "57")
