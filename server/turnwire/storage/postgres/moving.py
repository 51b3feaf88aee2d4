"""PostgreSQL's part of a move: reads all rows of a large table, and continues the numbers after those of the rows."""

from collections.abc import Iterable, Iterator

from turnwire.storage.postgres.connection import PostgresDatabase, translated
from turnwire.storage.rows import Row


def every_row(db: PostgresDatabase, statement: str) -> Iterator[Row]:
    """Yields all rows of a statement as they arrive, one at a time; those of `each` come in pages, however large.

    The caller has to take all of them.
    """
    with db.connection.cursor() as cursor:
        yield from cursor.stream(translated(statement), binary=True)


def number_behind(db: PostgresDatabase, tables: Iterable[str]) -> None:
    """Makes the database number new rows after the last rows of tables."""
    find = "SELECT table_name, is_identity = 'YES' FROM information_schema.columns"
    rows = db.rows(f"{find} WHERE table_schema = current_schema() AND column_name = 'id'")
    numbered: dict[str, bool] = dict(rows)
    last = 0
    for table in tables:
        if table not in numbered:
            continue
        [(newest,)] = db.rows(f"SELECT coalesce(max(id), 0) FROM {table}")
        if numbered[table]:
            db.row("SELECT setval(pg_get_serial_sequence(?, 'id'), ?, false)", (table, newest + 1))
        else:
            last = max(last, newest)
    db.row("SELECT setval('row_numbers', ?, false)", (last + 1,))
