"""The file of pynchy: which file is one, and how its rows are read. Every form that pynchy has ever had is read.

| form | has |
|---|---|
| before types | seven columns; later `chats.cleared_at` |
| today's | `message_type TEXT DEFAULT 'user'`, may be NULL; `metadata TEXT`; `idx_messages_by_chat` |
| half way | one of these; types of some rows; no `chats` |
| the plan of its refactoring | `message_type TEXT NOT NULL`, `content JSON`, `metadata JSON`, no `is_from_me` |
| migrated here | the columns of `NEW_COLUMNS`, with their checks |

Further columns are kept as they are.
"""

import json
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from turnwire_adapters.importers.problems import FileError
from turnwire_adapters.importers.pynchy.rows import TYPES
from turnwire_adapters.importers.sqlite_file import lenient, quoted

OLD_COLUMNS = ("id", "chat_jid", "sender", "sender_name", "content", "timestamp", "is_from_me")
"""Columns of `messages` before the migration. Programs that know only these can still read and write the file."""

_REQUIRED = ("id", "chat_jid", "sender", "content", "timestamp")

_TYPES = ", ".join(f"'{type_}'" for type_ in TYPES)

NEW_COLUMNS = {
    "message_type": f"message_type TEXT NOT NULL DEFAULT 'user' CHECK (message_type IN ({_TYPES}))",
    "metadata": "metadata TEXT CHECK (metadata IS NULL OR json_valid(metadata))",
}
"""Columns that a migration adds where they are missing. In a column declared as JSON, the text "007" would become 7.

A check that is NULL passes in SQLite, but some versions refuse to add it to a table with rows.
"""

INDEX = "idx_messages_by_chat"

INDEX_COLUMNS = ("chat_jid", "timestamp")

_MIN_ROWID, _MAX_ROWID = -(2**63), 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Columns, index and tables of a file."""

    columns: tuple[str, ...]
    """Columns of `messages`, in their order."""
    has_index: bool
    chat_columns: tuple[str, ...]
    """Columns of `chats`; empty when there is no such table."""
    content_is_json: bool
    """Whether `content` is declared as JSON, so that a text is a JSON string there."""

    @property
    def missing_columns(self) -> tuple[str, ...]:
        """Columns that a migration adds."""
        return tuple(name for name in NEW_COLUMNS if name not in self.columns)

    @property
    def is_complete(self) -> bool:
        """Whether only rows may be left to migrate."""
        return self.has_index and not self.missing_columns

    @property
    def further_columns(self) -> tuple[str, ...]:
        """Columns that nothing here knows."""
        return tuple(name for name in self.columns if name not in (*OLD_COLUMNS, *NEW_COLUMNS))


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of `messages`."""

    rowid: int
    old: tuple[Any, ...]
    """The values of the old columns in their order, of any type that SQLite has. Text that is not valid is kept."""
    message_type: Any
    """"user" while the column is missing; None where no program has typed the row."""
    metadata: Any
    """JSON text or None; another program may have stored a number, which is JSON too."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Values of columns that nothing here knows, without those that are NULL."""
    content_is_json: bool = False

    @property
    def sender(self) -> str | None:
        """Name of the sender; None when the row does not name a sender as text."""
        sender = self.old[2]
        return sender if isinstance(sender, str) else None

    @property
    def content(self) -> str:
        """Content as text; "" when there is none."""
        content = self.old[4]
        if isinstance(content, bytes):
            return content.decode(errors="replace")
        if content is None:
            return ""
        return _text_of_json(str(content)) if self.content_is_json else str(content)

    @property
    def facts(self) -> dict[str, Any]:
        """Parsed `metadata`; {} when it is no JSON object."""
        try:
            facts = json.loads(self.metadata) if isinstance(self.metadata, str) else None
        except (ValueError, RecursionError):
            return {}
        return facts if isinstance(facts, dict) else {}

    @property
    def is_typed(self) -> bool:
        """Whether a program has typed it; "user" without metadata is what a new column gives to all rows."""
        return not (self.message_type in (None, "", "user") and self.metadata is None)

    @property
    def name(self) -> str:
        """Names it to people."""
        return f"{self.old[1]}/{self.old[0]}"


def examine(db: sqlite3.Connection) -> Shape:
    """Returns what the file has.

    Raises:
        FileError: it is another program's file, or a newer version of pynchy has written it.
    """
    tables = dict(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
    if {"sessions", "turns"} <= tables.keys():
        raise FileError("the file is a Turnwire database, not one of pynchy")
    if "messages" not in tables:
        raise FileError("the file has no table messages: it is no file of pynchy")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version:
        raise FileError(f"the file has version {version}, files of pynchy that are known here have none: it is newer")
    declared = _columns(db, "messages")
    if missing := [name for name in _REQUIRED if name not in declared]:
        raise FileError(f"the table messages has no column {missing[0]}: it is no file of pynchy")
    if "without rowid" in " ".join(tables["messages"].lower().split()):
        raise FileError("the table messages is WITHOUT ROWID, which files of pynchy never are")
    chats = tuple(_columns(db, "chats")) if "chats" in tables else ()
    if chats and "jid" not in chats:
        raise FileError("the table chats has no column jid: it is no file of pynchy")
    index = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?", (INDEX,)).fetchone()
    return Shape(
        columns=tuple(declared),
        has_index=index is not None,
        chat_columns=chats,
        content_is_json=declared["content"].upper() == "JSON",
    )


def rows_after(
    db: sqlite3.Connection, shape: Shape, after: int | None = None, last: int | None = None
) -> Generator[Row, None, None]:
    """Gives rows in the order of their rowids, each when it is asked for.

    Args:
        db: The file.
        shape: What it has.
        after: Rows after this one; None for all.
        last: The last row to give; None for no end.
    """
    query = f"SELECT {columns_of_rows(shape)} FROM messages"
    query += " WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
    first = _MIN_ROWID if after is None else after + 1
    while True:
        try:
            with closing(db.execute(query, (first, _MAX_ROWID if last is None else last))) as found:
                for values in found:
                    yield row_of(shape, values)
                    first = values[0] + 1
            return
        except sqlite3.OperationalError as error:
            if "decode" not in str(error) or db.text_factory is lenient:
                raise
            db.text_factory = lenient  # several times slower, so only once it is needed


def columns_of_rows(shape: Shape) -> str:
    """Returns what a query selects of `messages`, for `row_of`."""
    stand_ins = {"message_type": "'user'"}
    known = [name if name in shape.columns else stand_ins.get(name, "NULL") for name in (*OLD_COLUMNS, *NEW_COLUMNS)]
    further = [f"messages.{quoted(name)}" for name in shape.further_columns]
    return ", ".join(("messages.rowid", *known, *further))


def row_of(shape: Shape, values: tuple[Any, ...]) -> Row:
    """Returns the row of what a query has selected."""
    rowid, old, (type_, metadata), further = values[0], values[1:8], values[8:10], values[10:]
    named = zip(shape.further_columns, further, strict=True)
    return Row(
        rowid=rowid,
        old=tuple(old),
        message_type=type_,
        metadata=metadata,
        further={name: value for name, value in named if value is not None},
        content_is_json=shape.content_is_json,
    )


def count_rows(db: sqlite3.Connection) -> int:
    """Returns how many messages there are."""
    (count,) = db.execute("SELECT count(*) FROM messages").fetchone()
    return int(count)


def _columns(db: sqlite3.Connection, table: str) -> dict[str, str]:
    """Returns the names and declared types of the columns of a table."""
    return dict(db.execute("SELECT name, type FROM pragma_table_info(?)", (table,)))


def _text_of_json(content: str) -> str:
    """Returns the text of a content declared as JSON: a JSON string, or text blocks; others stay as they are."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if isinstance(found, str):
        return found
    blocks = found if isinstance(found, list) else [found]
    texts = [block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)]
    return "".join(texts) if texts and len(texts) == len(blocks) else content
