"""The statements of SQLite for what `turnwire.storage.units` reads and writes. Runs on the writer's thread."""

import itertools
import sqlite3
from collections.abc import Collection, Iterable, Sequence

import msgspec

from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import BusyPolicy
from turnwire.ports.commit import JoinSession, Rewound, SelectPath, UseUpload
from turnwire.storage.rows import COUNTS, KNOWN, MessageHead, RequestHead, Row, Rows, SessionHead, TurnHead
from turnwire.storage.sql.alternatives import alternatives
from turnwire.storage.sql.columns import SESSION_COLUMNS, read_messages, session_of, stored_bytes
from turnwire.storage.sql.words import WordIndex, change_index
from turnwire.storage.sqlite import quotas, states, tree
from turnwire.storage.sqlite.database import SQLITE, SqliteDatabase
from turnwire.storage.sqlite.log.pruning import prune
from turnwire.storage.sqlite.uploads import rows as uploads

_AMONG = "IN (SELECT value FROM json_each(?))"
"""By one parameter, so that SQLite need not parse the statement again for another number of keys."""

_SESSIONS = f"SELECT session_id, {', '.join(SessionHead._fields)} FROM sessions WHERE session_id {_AMONG}"

_MESSAGES = f"""
SELECT message_id, id, session, queued, place, on_path, taken_back, turn_id, previous, branch_turn,
    {stored_bytes(SQLITE)},
    (SELECT coalesce(max(n), 0) FROM drafts WHERE message = messages.id),
    EXISTS (SELECT 1 FROM message_files WHERE message = messages.id),
    EXISTS (SELECT 1 FROM search_entries WHERE message = messages.id),
    (SELECT count(*) FROM tool_calls WHERE message = messages.id)
FROM messages WHERE message_id {_AMONG}
"""

_TURNS = f"""
SELECT turn_id, id, session, start_sequence, end_sequence, first_sequence, length(CAST(body AS BLOB)),
    coalesce(length(CAST(settings AS BLOB)), 0)
FROM turns WHERE turn_id {_AMONG}
"""

_QUEUES = "SELECT message_id, turn_id FROM messages WHERE session = ? AND on_path = 1 AND queued = 1 ORDER BY place"


def _upsert(table: str, columns: str, key: str = "id") -> str:
    """Returns a statement that writes a row, whether there is one of its key or not."""
    names, keys = columns.split(", "), key.split(", ")
    changes = ", ".join(f"{name} = excluded.{name}" for name in names if name not in keys)
    return f"{_insert(table, columns)} ON CONFLICT ({key}) DO UPDATE SET {changes}"


def _insert(table: str, columns: str) -> str:
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(columns.split(', ')))})"


_SETTINGS = "body, body_bytes, revision, is_titled, title_key, created_at_us"

_REQUEST = "tenant, subject, request_id, session, fingerprint, receipt, before_sequence"

_USAGE_KEY = "tenant, quarter, session_id, subject, provider_id, model_id"

_PUT = {
    "new_sessions": _insert(
        "sessions",
        "id, session_id, tenant, state, joins, head_sequence, pruned_through, stored_bytes, first_words, archived,"
        f" archived_at_us, updated_at_us, {_SETTINGS}",
    ),
    "settings": "UPDATE sessions SET body = ?, body_bytes = ?, revision = ?, is_titled = ?, title_key = ?,"
    " created_at_us = ? WHERE id = ?",
    "first_words": "UPDATE sessions SET first_words = ?, title_key = CASE WHEN is_titled THEN title_key ELSE ? END"
    " WHERE id = ?",
    "archived": "UPDATE sessions SET archived = ?, archived_at_us = ? WHERE id = ?",
    "heads": "UPDATE sessions SET head_sequence = ?, updated_at_us = ?, stored_bytes = ?, branched_at = ?,"
    " queue_revision = ?, last_place = ?, tip = ? WHERE id = ?",
    "files": _insert("files", "id, tenant, sha256, content"),
    "imported_files": _insert("imported_files", "session, file") + " ON CONFLICT DO NOTHING",
    "turns": _upsert(
        "turns", "id, turn_id, session, ended, body, settings, start_sequence, end_sequence, first_sequence"
    ),
    "turn_headers": "UPDATE turns SET ended = ?, body = ?, start_sequence = ?, end_sequence = ? WHERE id = ?",
    "messages": _upsert(
        "messages",
        "id, message_id, session, queued, place, version, on_path, taken_back, turn_id, previous, branch_turn,"
        " times, sent_context, body, parts, provider_states",
    ),
    "open_calls": _upsert(
        "open_calls", "message, part_index, session, tenant, tool, tool_call_id, since_us", "message, part_index"
    ),
    "message_files": _insert("message_files", "message, file") + " ON CONFLICT DO NOTHING",
    "permissions": _upsert("permissions", "id, permission_id, session, tenant, open, body"),
    "questions": _upsert("questions", "id, question_id, session, tenant, open, body, hold"),
    "requests": _upsert("requests", _REQUEST, "tenant, subject, request_id"),
    "search_entries": _insert("search_entries", "id, message, part_index, at_us, words, excerpt"),
}
"""Write the rows of a table, in this order: what others name comes first."""

_REMOVE = {
    "open_calls": "DELETE FROM open_calls WHERE message = ? AND part_index = ?",
    "message_files": "DELETE FROM message_files WHERE message = ? AND file = ?",
    "search_entries": "DELETE FROM search_entries WHERE id = ?",
}

_WHOLE = {
    "facets": ("DELETE FROM session_facets WHERE session = ?", _insert("session_facets", "tenant, facet, session")),
    "calls": ("DELETE FROM tool_calls WHERE message = ?", _insert("tool_calls", "tool_call_id, message, call_id")),
}
"""Rows that are written for all of their owner."""

_ADD_USAGE = (
    _insert("usage", f"{_USAGE_KEY}, {', '.join((*KNOWN, *COUNTS))}")
    + f" ON CONFLICT ({_USAGE_KEY}) DO UPDATE SET "
    + ", ".join(f"{name} = coalesce({name} + excluded.{name}, {name}, excluded.{name})" for name in (*KNOWN, *COUNTS))
)

_EVENT = "position, session_id, sequence, at_us, turn_id, kind, message_id, facts, tenant"

_EVENTS = {
    size: f"INSERT INTO events ({_EVENT}) VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?, ?)'] * size)}"
    for size in (64, 16, 4, 1)
}
"""By how many rows they insert: a few sizes, so that SQLite need not parse them again. For each row of its own the
thread would wait for the interpreter."""


class SqliteEngine:
    """Implements `turnwire.storage.units.Engine` inside the open transaction of a connection; see there."""

    def __init__(self, db: SqliteDatabase) -> None:
        """Takes the writing connection."""
        self.db = db
        """The writing connection."""
        self._words = WordIndex(db)

    # what is stored

    def sessions(self, session_ids: list[str]) -> dict[str, SessionHead]:
        """Returns heads of sessions."""
        return {row[0]: SessionHead(*row[1:]) for row in self.db.execute(_SESSIONS, (_json(session_ids),))}

    def messages(self, message_ids: list[str]) -> dict[str, MessageHead]:
        """Returns heads of messages."""
        return {row[0]: MessageHead(*row[1:]) for row in self.db.execute(_MESSAGES, (_json(message_ids),))}

    def turns(self, turn_ids: list[str]) -> dict[str, TurnHead]:
        """Returns heads of turns."""
        return {row[0]: TurnHead(*row[1:]) for row in self.db.execute(_TURNS, (_json(turn_ids),))}

    def files(self, keys: list[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Returns the numbers of files."""
        query = "SELECT id FROM files WHERE tenant = ? AND sha256 = ?"
        found = ((key, self.db.execute(query, key).fetchone()) for key in keys)
        return {key: row[0] for key, row in found if row}

    def requests(self, keys: list[tuple[str, str, str]]) -> dict[tuple[str, str, str], bool]:
        """Returns whether the sessions of named requests are live."""
        query = (
            "SELECT EXISTS (SELECT 1 FROM live_sessions WHERE id = requests.session) FROM requests"
            " WHERE tenant = ? AND subject = ? AND request_id = ?"
        )
        found = ((key, self.db.execute(query, key).fetchone()) for key in keys)
        return {key: bool(row[0]) for key, row in found if row}

    def permissions(self, permission_ids: list[str]) -> dict[str, RequestHead]:
        """Returns heads of permission requests."""
        return self._asked("permission", permission_ids)

    def questions(self, question_ids: list[str]) -> dict[str, RequestHead]:
        """Returns heads of questions."""
        return self._asked("question", question_ids)

    def _asked(self, kind: str, ids: list[str]) -> dict[str, RequestHead]:
        columns = f"{kind}_id, id, session, length(CAST(body AS BLOB))"
        rows = self.db.execute(f"SELECT {columns} FROM {kind}s WHERE {kind}_id {_AMONG}", (_json(ids),))
        return {row[0]: RequestHead(*row[1:]) for row in rows}

    def queues(self, sessions: list[int]) -> dict[int, tuple[tuple[str, str], ...]]:
        """Returns the waiting messages of sessions."""
        return {session: tuple(self.db.execute(_QUEUES, (session,))) for session in sessions}

    def totals(self, tenants: list[str]) -> dict[str, tuple[int, int]]:
        """Returns what tenants have."""
        return {tenant: quotas.totals(self.db, tenant) for tenant in tenants}

    def open_calls(self, message: int) -> frozenset[int]:
        """Returns the indexes of open calls."""
        rows = self.db.execute("SELECT part_index FROM open_calls WHERE message = ?", (message,))
        return frozenset(index for (index,) in rows)

    def files_of(self, message: int) -> frozenset[int]:
        """Returns the files of a message."""
        return frozenset(states.files_of(self.db, "message = ?", message))

    # writing

    def write(self, rows: Rows) -> None:
        """Writes rows."""
        db = self.db
        for name, statement in _REMOVE.items():
            keys = [key for key, row in getattr(rows, name).items() if row is None]
            if gone := [key if isinstance(key, tuple) else (key,) for key in keys]:
                db.executemany(statement, gone)
        for name, statement in _PUT.items():
            if values := [row for row in getattr(rows, name).values() if row is not None]:
                db.executemany(statement, values)
        if rows.ended_drafts:
            db.executemany("DELETE FROM drafts WHERE message = ?", [(message,) for message in rows.ended_drafts])
        _write_all(db, _insert("drafts", "message, n, body"), rows.drafts.values())
        for name, (delete, insert) in _WHOLE.items():
            if owned := getattr(rows, name):
                db.executemany(delete, [(owner,) for owner in owned])
                _write_all(db, insert, owned.values())
        if rows.usage:
            db.executemany(_ADD_USAGE, [(*key, *columns) for key, columns in rows.usage.items()])
        at = 0
        for size, statement in _EVENTS.items():
            while len(rows.events) - at >= size:
                db.execute(statement, tuple(itertools.chain.from_iterable(rows.events[at : at + size])))
                at += size

    def forget(self) -> None:
        """Looks anew for ids of the index: a statement may have given some."""
        self._words = WordIndex(self.db)

    def write_words(self, rows: Rows) -> None:
        """Writes the words of rows, which the index wants all at once, last."""
        change_index(self.db, rows.words)

    def savepoint(self) -> None:
        """Begins what `undo` takes back."""
        self.db.execute("SAVEPOINT unit")

    def undo(self) -> None:
        """Takes back what was written since."""
        self.db.execute("ROLLBACK TO unit")
        self.db.execute("RELEASE unit")

    def release(self) -> None:
        """Keeps it."""
        self.db.execute("RELEASE unit")

    def index(self, rows: Rows, session: SessionHead, message: int, new: Message, *, is_indexed: bool) -> bool:
        """Adds what changes in the index of words."""
        return self._words.replace(rows, session.tenant, session.found_in, message, new, is_indexed=is_indexed)

    # statements

    def end_of_path(self, session: int) -> tuple[int, str]:
        """Returns the highest place, and the last message of the path."""
        return tree.end_of_path(self.db, session)

    def alternatives(self, session: int, message_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Returns the alternatives of messages."""
        return alternatives(self.db, session, message_ids)

    def message(self, message_id: str) -> Message:
        """Returns a message."""
        [message] = read_messages(self.db, "messages.message_id = ?", (message_id,), "place")
        return message

    def take_back(self, session: int, first_message_id: str, sequence: int) -> Rewound:
        """Hides messages."""
        return tree.take_back(self.db, session, first_message_id, sequence)

    def restore(self, session: int, session_id: str) -> Rewound:
        """Shows messages again."""
        return tree.restore(self.db, session, session_id)

    def select_path(self, session: int, change: SelectPath) -> tuple[Rewound, dict[str, str]]:
        """Leads the path through a message."""
        return tree.select_path(self.db, session, change)

    def leave_place(self, session: int, message_id: str) -> None:
        """Takes a message from before the one behind it."""
        tree.leave_place(self.db, session, message_id)

    def keep_turn(self, session: int, message_id: str, turn_id: str) -> None:
        """Keeps the turn of a message for what follows it."""
        tree.keep_turn(self.db, session, message_id, turn_id)

    def carry_branches(self, session: int, message_id: str) -> None:
        """Moves what follows a message."""
        tree.carry_branches(self.db, session, message_id)

    def policies(self, turn_ids: Collection[str]) -> dict[str, BusyPolicy]:
        """Returns the policies of turns."""
        policy = "coalesce(json_extract(body, '$.busy_policy'), ?)"
        query = f"SELECT turn_id, {policy} FROM turns WHERE turn_id {_AMONG}"
        rows = self.db.execute(query, (BusyPolicy.QUEUE, _json(turn_ids)))
        return {turn_id: BusyPolicy(policy) for turn_id, policy in rows}

    def order_queue(self, session: int, message_ids: Iterable[str]) -> None:
        """Orders the queue."""
        tree.order_queue(self.db, session, message_ids)

    def remove_message(self, session: SessionHead, message: int, rows: Rows) -> int:
        """Removes a message."""
        return states.remove_messages(self.db, self._words, session, [message], rows)

    def remove_unused(self, files: Iterable[int]) -> int:
        """Removes files."""
        return states.remove_unused(self.db, files)

    def use_upload(self, tenant: str, change: UseUpload) -> bytes:
        """Uses an upload up."""
        return uploads.use(self.db, tenant, change)

    def prune(self, session: int, session_id: str, through: int) -> tuple[int, int]:
        """Drops events."""
        _, size = prune(self.db, session, session_id, through)
        (pruned,) = self.db.execute("SELECT pruned_through FROM sessions WHERE id = ?", (session,)).fetchone()
        return pruned, size

    def note_turn(self, turn_id: str, *, start: int = 0, end: int = 0) -> None:
        """Gives a turn the numbers of its events."""
        for column, sequence in (("start_sequence", start), ("end_sequence", end)):
            if sequence:
                self.db.execute(f"UPDATE turns SET {column} = ? WHERE turn_id = ?", (sequence, turn_id))

    def session(self, session: int) -> Session:
        """Returns a session."""
        return session_of(
            *self.db.execute(f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = ?", (session,)).fetchone()
        )

    def former(self, tenant: str, session_id: str, joins: str) -> tuple[int, int, int | None]:
        """Returns what an imported session begins with."""
        return states.former(self.db, tenant, session_id, joins)

    def publish(self, session: int, session_id: str, messages: int) -> int:
        """Makes a session a live one."""
        return states.publish(self.db, session, session_id, messages)

    def join(self, session: int, change: JoinSession) -> tuple[int, int, int]:
        """Puts what was imported behind a conversation."""
        return states.join(self.db, session, change)

    def remove(self, session: SessionHead, session_id: str, rows: Rows) -> int:
        """Removes some of a session."""
        return states.remove(self.db, self._words, session, session_id, rows)


def _write_all(db: sqlite3.Connection, statement: str, groups: Iterable[Sequence[Row]]) -> None:
    if rows := [row for group in groups for row in group]:
        db.executemany(statement, rows)


def _json(keys: Collection[str]) -> str:
    return msgspec.json.encode(list(keys)).decode()


def last_position(db: sqlite3.Connection) -> int:
    """Returns the newest position that the log has ever given.

    Events may be gone from its end while older ones are kept for a turn.
    """
    (position,) = db.execute(
        "SELECT max(coalesce((SELECT max(position) FROM events), 0), pruned_through, newest_dropped) FROM log_state"
    ).fetchone()
    return int(position)


def last_number(db: sqlite3.Connection) -> int:
    """Returns the highest number of a row, of those that the store makes."""
    tables = ("sessions", "turns", "messages", "files", "permissions", "questions")
    return max(int(db.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]) for table in tables)
