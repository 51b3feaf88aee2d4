"""A database as statements see it: one connection, used synchronously on a thread of its own."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from turnwire.domain.errors import StorageError
from turnwire.storage.rows import Row
from turnwire.storage.sql.changes import Change


class Interrupted(Exception):
    """Raised when a query inside of `Database.limited` was interrupted."""


class Words(NamedTuple):
    """Way in which an engine keeps words: `search_index` has rows of them by `rowid`, and `matches` finds these."""

    matches: str
    """Condition that a row is what a query, a parameter, asks for."""
    phrase: Callable[[Sequence[str], bool], str]
    """Returns a query for words next to each other, of which the last one may go on."""
    both: str
    """Between two queries, in parentheses unless they are phrases: both."""
    either: str
    """One of them."""
    but_not: str
    """The first, and not the second."""
    row: Callable[[str], str]
    """Returns words, divided by spaces, as a row has them."""
    remove: str
    """Statement that removes a row: its number, and what `row` made of its words."""
    clear: str
    """Statement that removes all rows."""


class Dialect(NamedTuple):
    """Where the engines differ in what one statement can say."""

    among: str
    """Behind a column: it is one of the keys of a parameter, which `keys` makes. One parameter, so that the engine need
    not plan the statement again for another number of keys."""
    keys: Callable[[Collection[Any]], Any]
    """Makes the parameter for `among`."""
    byte_length: Callable[[str], str]
    """Returns an expression for how many bytes a text has in UTF-8; the length of a blob is `length(blob)`."""
    field: Callable[[str, str], str]
    """Returns an expression for a text in a JSON body: the column, and the names of the fields that lead to it, with
    dots between them."""
    without: Callable[[str, str], str]
    """Returns an expression for a JSON body without one of its fields."""
    contains: Callable[[str], str]
    """Returns a condition that a text has a parameter in it."""
    beginning: Callable[[str], str] | None
    """Returns an expression for the beginning of a text. None when indexes take texts of any length; else the index of
    a text that may be long has its beginning, and rows come in its order when they are sorted by that first."""
    merges_branches: bool
    """Whether ordered branches of a UNION ALL are merged; else all their rows are sorted, unless each has a limit."""
    greatest: str
    """Function that returns the greatest of its arguments, none of them NULL."""
    least: str
    """The same for the least one."""
    hint: Callable[[str], str]
    """Returns what stands behind the name of a table to have an index used, where the planner would err."""
    row_id: str
    """Column that every row has, whatever its table: where it is."""
    words: Words
    """For searches."""


class Database(Protocol):
    """A connection of one of the engines. Used on one thread alone.

    All methods raise one of `failures` when the database fails.
    """

    dialect: Dialect
    """The dialect of this engine."""
    failures: tuple[type[Exception], ...]
    """Errors with which it fails, as far as Python tells them."""
    lane: tuple[int, int]
    """Which numbers this server gives, of those that servers choose by what is stored: those that leave the first as
    the rest of a division by the second, a power of two."""

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Returns all rows that a statement finds, or returns of what it changes; may be empty."""
        ...

    def row(self, statement: str, parameters: Sequence[Any] = ()) -> Row | None:
        """Returns the first row; None when there is none."""
        ...

    def each(self, statement: str, parameters: Sequence[Any] = ()) -> Generator[Row]:
        """Yields rows while they are read, for callers that may stop before the last one.

        To be used inside of `snapshot` or `transaction`, and closed with `contextlib.closing`.
        """
        ...

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Carries out a statement. Returns how many rows it changed."""
        ...

    def run_many(self, statement: str, parameters: Iterable[Sequence[Any]]) -> None:
        """Carries out a statement once for each of the parameters."""
        ...

    def write(self, change: Change, rows: Sequence[Row]) -> None:
        """Carries out one change for rows, of which no two have one key. Does nothing when there are none."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Lets what is written in the block be sent together: its errors are raised when the block ends, if not before.

        Nothing is read in it, and what `run` returns means nothing.
        """
        ...

    def numbers(self) -> Iterator[int]:
        """Yields numbers for rows, of those that the store makes; each once, whatever is rolled back."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Lets all reads in the block see the same moment."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Begins a transaction that writes, and commits it at the end; an error in the block rolls it back."""
        ...

    def limited(self, is_over: Callable[[], bool], max_seconds: float) -> AbstractContextManager[None]:
        """Ends what runs in the block soon after a time, and when it is over. Raises Interrupted then."""
        ...

    def has_changed(self) -> bool:
        """Returns whether the transaction has changed a row."""
        ...

    def first_position(self, after: int) -> int:
        """Returns the position of the first event of the transaction, given the one behind those of this server."""
        ...

    def horizon(self) -> int:
        """Returns the position before which no event is still to come, as the snapshot or transaction sees it.

        Where several servers write, one may still store an event before others that are stored already.
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
        """Returns whether this server may write to a session: no other one can."""
        ...

    def is_first(self, task: str) -> bool:
        """Returns whether no other server does a task in a transaction that has not ended; none begins it meanwhile."""
        ...

    def concerns_all(self, error: BaseException) -> bool:
        """Returns whether an error is of the database and not of what it was given: its disk, its connection."""
        ...

    def translate(self, error: Exception) -> StorageError:
        """Returns the storage error for one of `failures`. Its text has nothing of what is stored."""
        ...

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        ...


MAX_POSITION = 2**63 - 1
"""Greatest integer of all engines."""


class OneServer:
    """The part of a `Database` that only nodes of a cluster have otherwise: one server has the database for itself."""

    lane = (0, 1)

    def first_position(self, after: int) -> int:
        """Returns the position behind those of this server, which are all."""
        return after

    def horizon(self) -> int:
        """Returns a position behind all others: what is stored is stored in order."""
        return MAX_POSITION

    def owns(self, session_id: str) -> bool:
        """Returns True."""
        del session_id
        return True

    def is_first(self, task: str) -> bool:
        """Returns True."""
        del task
        return True
