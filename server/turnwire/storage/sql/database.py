"""A database as statements see it: one connection, used synchronously on a thread of its own."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from turnwire.domain.errors import StorageError
from turnwire.storage.rows import Row
from turnwire.storage.sql.changes import Change


class Interrupted(Exception):
    """Raised when a query inside `Database.limited` was interrupted."""


class Words(NamedTuple):
    """An engine's index of words: `search_index` has the words of a row by `rowid`, and `matches` finds rows."""

    matches: str
    """Condition that a row matches a query, which is a parameter."""
    phrase: Callable[[Sequence[str], bool], str]
    """Returns a query for consecutive words, of which the last one may continue if the flag is set."""
    both: str
    """Stands between two queries, in parentheses unless they are phrases: both match."""
    either: str
    """The same: one of them matches."""
    but_not: str
    """The same: the first matches, and the second does not."""
    row: Callable[[str], str]
    """Returns words, separated by spaces, in the form of a row."""
    remove: str
    """Statement that removes a row: takes its number, and the result of `row` for its words."""
    clear: str
    """Statement that removes all rows."""


class Dialect(NamedTuple):
    """The differences between the statements of the engines."""

    among: str
    """Follows a column: it is one of the keys of a parameter, which `keys` makes. One parameter, so that the engine
    need not plan the statement again for another number of keys."""
    keys: Callable[[Collection[Any]], Any]
    """Makes the parameter for `among`."""
    byte_length: Callable[[str], str]
    """Returns an expression for the bytes of a text in UTF-8; the length of a blob is `length(blob)`."""
    field: Callable[[str, str], str]
    """Returns an expression for a text in a JSON body: takes the column, and the names of nested fields, separated by
    dots."""
    without: Callable[[str, str], str]
    """Returns an expression for a JSON body without one of its fields."""
    contains: Callable[[str], str]
    """Returns a condition that a text contains a parameter."""
    beginning: Callable[[str], str] | None
    """Returns an expression for the beginning of a text. None if indexes accept texts of any length; else the index of
    a text that may be long has its beginning, and rows come in its order when they are sorted by that first."""
    merges_branches: bool
    """Whether ordered branches of a UNION ALL are merged; else all their rows are sorted, unless each has a limit."""
    greatest: str
    """Function that returns the greatest of its arguments, none of them NULL."""
    least: str
    """The same for the least one."""
    hint: Callable[[str], str]
    """Returns the text after the name of a table that makes the planner use an index, where it would choose wrongly."""
    row_id: str
    """Column of every row of every table: its physical location."""
    words: Words
    """For searches."""


class Database(Protocol):
    """A connection of one of the engines. Used on one thread only.

    All methods raise one of `failures` when the database fails.
    """

    dialect: Dialect
    """The dialect of this engine."""
    failures: tuple[type[Exception], ...]
    """The exceptions with which it fails."""
    lane: tuple[int, int]
    """The numbers that this server gives, of those that servers choose by what is stored: their remainder in a division
    by the second number, a power of two, is the first."""

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Returns all rows that a statement finds, or returns of what it changes; may be empty."""
        ...

    def row(self, statement: str, parameters: Sequence[Any] = ()) -> Row | None:
        """Returns the first row; None when there is none."""
        ...

    def each(self, statement: str, parameters: Sequence[Any] = ()) -> Generator[Row]:
        """Yields rows while they are read, for callers that may stop before the last one.

        Use it inside `snapshot` or `transaction`, and close it with `contextlib.closing`.
        """
        ...

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Carries out a statement. Returns the number of rows that it changed."""
        ...

    def run_many(self, statement: str, parameters: Iterable[Sequence[Any]]) -> None:
        """Carries out a statement once for each of the parameters."""
        ...

    def write(self, change: Change, rows: Sequence[Row]) -> None:
        """Carries out one change for rows, no two of which have the same key. Does nothing without rows."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Sends the writes of the block together: their errors are raised at the end of the block at the latest.

        Nothing is read in it, and the result of `run` means nothing.
        """
        ...

    def numbers(self) -> Iterator[int]:
        """Yields numbers for rows that the store makes; each once, whatever is rolled back."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Makes all reads in the block see the same moment."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Begins a transaction that writes, and commits it at the end; an error in the block rolls it back."""
        ...

    def limited(self, is_over: Callable[[], bool], max_seconds: float) -> AbstractContextManager[None]:
        """Interrupts what runs in the block soon after a time, or when it is over. Raises Interrupted then."""
        ...

    def has_changed(self) -> bool:
        """Returns whether the transaction has changed a row."""
        ...

    def first_position(self, after: int) -> int:
        """Returns the position of the transaction's first event, given the position after the events of this server."""
        ...

    def horizon(self) -> int:
        """Returns the position before which no event can still appear, as the snapshot or transaction sees it.

        Where several servers write, one may still store an event before others that are already stored.
        """
        ...

    def begins_history(self, position: int) -> bool:
        """Returns whether a history begins in this transaction, and remembers it.

        A database that cannot tell whether it was restored from a backup begins one at each start.

        Args:
            position: The newest position that the log has given.
        """
        ...

    def owns(self, session_id: str) -> bool:
        """Returns whether this server may write to a session; then no other one can."""
        ...

    def is_first(self, task: str) -> bool:
        """Returns whether no other server does a task in an open transaction; none begins it meanwhile."""
        ...

    def concerns_all(self, error: BaseException) -> bool:
        """Returns whether an error is of the database, its disk or its connection, and not of its input."""
        ...

    def translate(self, error: Exception) -> StorageError:
        """Returns the storage error for one of `failures`. Its text contains nothing that is stored."""
        ...

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        ...


MAX_POSITION = 2**63 - 1
"""Greatest integer of all engines."""


class OneServer:
    """The part of a `Database` that differs only for nodes of a cluster: one server has the database to itself."""

    lane = (0, 1)

    def first_position(self, after: int) -> int:
        """Returns the position after those of this server, which are all."""
        return after

    def horizon(self) -> int:
        """Returns a position after all others: events are stored in order."""
        return MAX_POSITION

    def owns(self, session_id: str) -> bool:
        """Returns True."""
        del session_id
        return True

    def is_first(self, task: str) -> bool:
        """Returns True."""
        del task
        return True
