"""Rows of one table that are written together: SQLite does it row by row, PostgreSQL in one statement."""

from typing import NamedTuple


class Insert(NamedTuple):
    """Adds rows, whose values are in the order of the columns."""

    table: str
    columns: tuple[str, ...]
    tail: str = ""
    """The end of the statement, after the values: its action for a key that exists."""
    is_apart: bool = False
    """Whether SQLite takes one row at a time; see `turnwire.storage.sql.words.change_index`."""


class Update(NamedTuple):
    """Changes rows that exist. Their values are in the order of the expressions, and the key of each is last."""

    table: str
    expressions: tuple[tuple[str, str], ...]
    """By column, its new value: `{}` stands for the given value, names for those of the row."""
    key: str = "id"


class Delete(NamedTuple):
    """Removes rows, whose values are in the order of the columns."""

    table: str
    columns: tuple[str, ...]


Change = Insert | Update | Delete


def insert(table: str, columns: str, tail: str = "") -> Insert:
    """Returns an insert of columns, which are separated by commas."""
    return Insert(table, tuple(columns.split(", ")), tail)


def upsert(table: str, columns: str, key: str = "id") -> Insert:
    """Returns a change that writes a row, whether or not its key exists."""
    keys = key.split(", ")
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", ") if name not in keys)
    return insert(table, columns, f" ON CONFLICT ({key}) DO UPDATE SET {changes}")


def update(table: str, columns: str, **expressions: str) -> Update:
    """Returns an update of columns, separated by commas; by name the expressions that are not plain values."""
    return Update(table, tuple((name, expressions.get(name, "{}")) for name in columns.split(", ")))
