"""Changes in the form of PostgreSQL: one statement for all rows of a table, with one array for each column."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from turnwire.storage.rows import Row
from turnwire.storage.sql.changes import Change, Delete, Insert

Types = tuple[str, ...]
"""The types of the values of a change, in their order."""

SHARDED = {"sessions": "session_id", "uploads": "upload_id"}
"""Tables with a column `shard`, and the column from which it is computed."""


def with_shard(change: Insert) -> Insert:
    """Returns an insert with one more value, the shard."""
    return change._replace(columns=(*change.columns, "shard"))


def columns_of(change: Change) -> tuple[str, ...]:
    """Returns the columns for which the rows of a change have values."""
    if isinstance(change, Insert | Delete):
        return change.columns
    return (*(name for name, _ in change.expressions), change.key)


@lru_cache
def statement_of(change: Change, types: Types) -> str:
    """Returns a change as a statement of psycopg, whose parameters are the arrays of the values."""
    arrays = ", ".join(f"%b::{type_}[]" for type_ in types)
    names = ", ".join(f"v{number}" for number in range(len(types)))
    rows = f"unnest({arrays}) AS given ({names})"
    if isinstance(change, Insert):
        return f"INSERT INTO {change.table} ({', '.join(change.columns)}) SELECT {names} FROM {rows}{change.tail}"
    if isinstance(change, Delete):
        same = " AND ".join(f"{change.table}.{name} = v{number}" for number, name in enumerate(change.columns))
        return f"DELETE FROM {change.table} USING {rows} WHERE {same}"
    expressions = enumerate(change.expressions)
    changes = ", ".join(f"{name} = {expression.format(f'v{number}')}" for number, (name, expression) in expressions)
    last = len(change.expressions)
    return f"UPDATE {change.table} SET {changes} FROM {rows} WHERE {change.table}.{change.key} = v{last}"


def types_of(change: Change, catalog: Mapping[tuple[str, str], str]) -> Types:
    """Returns the types of the values of a change, from the types of all columns by table and name."""
    return tuple(catalog[change.table, name] for name in columns_of(change))


def arrays_of(rows: Sequence[Row]) -> list[list[Any] | None]:
    """Returns an array of the values of each column of rows; one NULL for a column without values."""
    return [None if all(value is None for value in column) else list(column) for column in zip(*rows, strict=True)]
