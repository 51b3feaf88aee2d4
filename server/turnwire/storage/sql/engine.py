"""The statements that read and write for `turnwire.storage.units`. Runs on the writer's thread."""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from turnwire.domain.conversation.messages import Message
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import BusyPolicy
from turnwire.storage.rows import COUNTS, KNOWN, MessageHead, RequestHead, Row, Rows, SessionHead, TurnHead
from turnwire.storage.sql import accounts
from turnwire.storage.sql.changes import Change, Delete, insert, update, upsert
from turnwire.storage.sql.columns import SESSION_COLUMNS, read_messages, session_of, stored_bytes
from turnwire.storage.sql.database import Database, Dialect
from turnwire.storage.sql.states import prune
from turnwire.storage.sql.words import ADD_ENTRIES, WordIndex

_SESSIONS = f"SELECT session_id, {', '.join(SessionHead._fields)} FROM sessions WHERE session_id "


@lru_cache
def _messages(dialect: Dialect) -> str:
    return f"""
SELECT message_id, id, session, queued, place, on_path, taken_back, turn_id, previous, branch_turn,
    {stored_bytes(dialect)}, (SELECT coalesce(max(n), 0) FROM drafts WHERE message = messages.id),
    EXISTS (SELECT 1 FROM message_files WHERE message = messages.id),
    EXISTS (SELECT 1 FROM search_entries WHERE message = messages.id),
    (SELECT count(*) FROM tool_calls WHERE message = messages.id)
FROM messages WHERE message_id {dialect.among}
"""


@lru_cache
def _turns(dialect: Dialect) -> str:
    return f"""
SELECT turn_id, id, session, start_sequence, end_sequence, first_sequence, {dialect.byte_length("body")},
    coalesce({dialect.byte_length("settings")}, 0)
FROM turns WHERE turn_id {dialect.among}
"""


_QUEUES = """
SELECT session, message_id, turn_id FROM messages WHERE session {among} AND on_path = 1 AND queued = 1
ORDER BY session, place
"""

_SETTINGS = "body, body_bytes, revision, is_titled, title_key, created_at_us"

_REQUEST = "tenant, subject, request_id, session, fingerprint, receipt, before_sequence"

_TAKE_NAME = (
    " ON CONFLICT (tenant, subject, request_id) DO UPDATE SET session = excluded.session,"
    " fingerprint = excluded.fingerprint, receipt = excluded.receipt, before_sequence = excluded.before_sequence,"
    " request_id = CASE WHEN EXISTS (SELECT 1 FROM sessions WHERE id = requests.session AND state = 'deleting')"
    " THEN excluded.request_id END"
)
"""A name is taken from a session that is being removed. Else another server has stored a request of the name since it
was looked for: NULL is refused."""

_USAGE_KEY = "tenant, quarter, session_id, subject, provider_id, model_id"

_SUMS = (*KNOWN, *COUNTS)

_REMOVE = {
    "open_calls": Delete("open_calls", ("message", "part_index")),
    "message_files": Delete("message_files", ("message", "file")),
    "search_entries": Delete("search_entries", ("id",)),
}

_PUT: dict[str, Change] = {
    "new_sessions": insert(
        "sessions",
        "id, session_id, tenant, state, joins, head_sequence, pruned_through, stored_bytes, first_words, archived,"
        f" archived_at_us, updated_at_us, {_SETTINGS}",
    ),
    "settings": update("sessions", _SETTINGS),
    "first_words": update(
        "sessions", "first_words, title_key", title_key="CASE WHEN is_titled = 1 THEN title_key ELSE {} END"
    ),
    "archived": update("sessions", "archived, archived_at_us"),
    "heads": update(
        "sessions", "head_sequence, updated_at_us, stored_bytes, branched_at, queue_revision, last_place, tip"
    ),
    "files": insert("files", "id, tenant, sha256, content"),
    "imported_files": insert("imported_files", "session, file", " ON CONFLICT DO NOTHING"),
    "turns": upsert(
        "turns", "id, turn_id, session, ended, body, settings, start_sequence, end_sequence, first_sequence"
    ),
    "turn_headers": update("turns", "ended, body, start_sequence, end_sequence"),
    "messages": upsert(
        "messages",
        "id, message_id, session, queued, place, version, on_path, taken_back, turn_id, previous, branch_turn,"
        " times, sent_context, body, parts, provider_states",
    ),
    "open_calls": upsert(
        "open_calls", "message, part_index, session, tenant, tool, tool_call_id, since_us", "message, part_index"
    ),
    "message_files": insert("message_files", "message, file", " ON CONFLICT DO NOTHING"),
    "permissions": upsert("permissions", "id, permission_id, session, tenant, open, body"),
    "questions": upsert("questions", "id, question_id, session, tenant, open, body, hold"),
    "requests": insert("requests", _REQUEST, _TAKE_NAME),
    "search_entries": ADD_ENTRIES,
}
"""Write the rows of a table, in this order: tables to which others refer come first."""

_END_DRAFTS = Delete("drafts", ("message",))
_DRAFTS = insert("drafts", "message, n, body")

_WHOLE = {
    "facets": (Delete("session_facets", ("session",)), insert("session_facets", "tenant, facet, session")),
    "calls": (Delete("tool_calls", ("message",)), insert("tool_calls", "tool_call_id, message, call_id")),
}
"""Rows that are replaced together for their owner."""

_ADD_USAGE = insert(
    "usage",
    f"{_USAGE_KEY}, {', '.join(_SUMS)}",
    f" ON CONFLICT ({_USAGE_KEY}) DO UPDATE SET "
    + ", ".join(f"{sum_} = coalesce(usage.{sum_} + excluded.{sum_}, usage.{sum_}, excluded.{sum_})" for sum_ in _SUMS),
)

_EVENTS = insert("events", "position, session_id, sequence, at_us, turn_id, kind, message_id, facts, tenant")


Queue = tuple[tuple[str, str], ...]
"""Waiting messages and their turns."""


class SqlEngine:
    """Reads what a transaction needs to know, and writes its rows.

    Numbers are those of rows. What is read by keys leaves out those without a row.
    """

    def __init__(self, db: Database) -> None:
        """Takes the writing connection."""
        self.db = db
        self.words = WordIndex(db)

    # what is stored

    def sessions(self, session_ids: list[str]) -> dict[str, SessionHead]:
        """Returns heads of sessions of all tenants and in every state."""
        return {row[0]: SessionHead(*row[1:]) for row in self._among(_SESSIONS + self.db.dialect.among, session_ids)}

    def messages(self, message_ids: list[str]) -> dict[str, MessageHead]:
        """Returns heads of messages."""
        return {row[0]: MessageHead(*row[1:]) for row in self._among(_messages(self.db.dialect), message_ids)}

    def turns(self, turn_ids: list[str]) -> dict[str, TurnHead]:
        """Returns heads of turns."""
        return {row[0]: TurnHead(*row[1:]) for row in self._among(_turns(self.db.dialect), turn_ids)}

    def files(self, keys: list[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Returns the numbers of files by tenant and digest."""
        query = f"SELECT sha256, id FROM files WHERE tenant = ? AND sha256 {self.db.dialect.among}"
        found = dict[tuple[str, str], int]()
        for (tenant,), hashes in _grouped(keys).items():
            rows = self.db.rows(query, (tenant, self.db.dialect.keys(hashes)))
            found.update(((tenant, sha256), number) for sha256, number in rows)
        return found

    def requests(self, keys: list[tuple[str, str, str]]) -> dict[tuple[str, str, str], bool]:
        """Returns whether the sessions of named requests are live, by tenant, subject and name."""
        query = (
            "SELECT request_id, EXISTS (SELECT 1 FROM live_sessions WHERE id = requests.session) FROM requests"
            f" WHERE tenant = ? AND subject = ? AND request_id {self.db.dialect.among}"
        )
        found = dict[tuple[str, str, str], bool]()
        for (tenant, subject), names in _grouped(keys).items():
            rows = self.db.rows(query, (tenant, subject, self.db.dialect.keys(names)))
            found.update(((tenant, subject, name), bool(is_live)) for name, is_live in rows)
        return found

    def permissions(self, permission_ids: list[str]) -> dict[str, RequestHead]:
        """Returns heads of permission requests."""
        return self._asked("permission", permission_ids)

    def questions(self, question_ids: list[str]) -> dict[str, RequestHead]:
        """Returns heads of questions."""
        return self._asked("question", question_ids)

    def _asked(self, kind: str, ids: list[str]) -> dict[str, RequestHead]:
        dialect = self.db.dialect
        columns = f"{kind}_id, id, session, {dialect.byte_length('body')}"
        rows = self._among(f"SELECT {columns} FROM {kind}s WHERE {kind}_id {dialect.among}", ids)
        return {row[0]: RequestHead(*row[1:]) for row in rows}

    def _among(self, query: str, keys: Collection[str]) -> list[Row]:
        return self.db.rows(query, (self.db.dialect.keys(keys),))

    def queues(self, sessions: list[int]) -> dict[int, Queue]:
        """Returns the waiting messages of sessions, next first."""
        found: dict[int, list[tuple[str, str]]] = {session: [] for session in sessions}
        dialect = self.db.dialect
        rows = self.db.rows(_QUEUES.format(among=dialect.among), (dialect.keys(sessions),))
        for session, message_id, turn_id in rows:
            found[session].append((message_id, turn_id))
        return {session: tuple(waiting) for session, waiting in found.items()}

    def totals(self, tenants: list[str]) -> dict[str, tuple[int, int]]:
        """Returns the numbers of sessions and bytes that tenants had before the transaction."""
        return {tenant: accounts.totals(self.db, tenant) for tenant in tenants}

    def open_calls(self, message: int) -> frozenset[int]:
        """Returns the indexes of the calls of a message that clients may run."""
        rows = self.db.rows("SELECT part_index FROM open_calls WHERE message = ?", (message,))
        return frozenset(index for (index,) in rows)

    # writing

    def write(self, rows: Rows) -> None:
        """Writes rows except for their words, which are written last. Uses one statement for each table."""
        with self.db.together():
            self._write(rows)

    def _write(self, rows: Rows) -> None:
        db = self.db
        for name, gone in _REMOVE.items():
            keys = [key for key, row in getattr(rows, name).items() if row is None]
            db.write(gone, [key if isinstance(key, tuple) else (key,) for key in keys])
        for name, put in _PUT.items():
            db.write(put, [row for row in getattr(rows, name).values() if row is not None])
        db.write(_END_DRAFTS, [(message,) for message in rows.ended_drafts])
        db.write(_DRAFTS, _flat(rows.drafts.values()))
        for name, (delete, put) in _WHOLE.items():
            owned: dict[int, list[Row]] = getattr(rows, name)
            db.write(delete, [(owner,) for owner in owned])
            db.write(put, _flat(owned.values()))
        db.write(_ADD_USAGE, [(*key, *columns) for key, columns in rows.usage.items()])
        db.write(_EVENTS, rows.events)

    def forget(self) -> None:
        """Searches again for ids of the index: a statement may have given some."""
        self.words = WordIndex(self.db)

    def index(self, rows: Rows, session: SessionHead, message: int, new: Message, *, is_indexed: bool) -> bool:
        """Adds to the rows the changes of the word index when a message is written; see `WordIndex.replace`."""
        return self.words.replace(rows, session.tenant, session.found_in, message, new, is_indexed=is_indexed)

    # statements

    def message(self, message_id: str) -> Message:
        """Returns a stored message."""
        [message] = read_messages(self.db, "messages.message_id = ?", (message_id,), "place")
        return message

    def policies(self, turn_ids: Collection[str]) -> dict[str, BusyPolicy]:
        """Returns the policies of turns."""
        dialect = self.db.dialect
        policy = f"coalesce({dialect.field('body', 'busy_policy')}, '{BusyPolicy.QUEUE}')"
        rows = self._among(f"SELECT turn_id, {policy} FROM turns WHERE turn_id {dialect.among}", turn_ids)
        return {turn_id: BusyPolicy(policy) for turn_id, policy in rows}

    def prune(self, session: int, session_id: str, through: int) -> tuple[int, int]:
        """Drops events up to a sequence. Returns the sequence up to which it could, and the bytes of the events."""
        _, size = prune(self.db, session, session_id, through)
        [(pruned,)] = self.db.rows("SELECT pruned_through FROM sessions WHERE id = ?", (session,))
        return pruned, size

    def note_turn(self, turn_id: str, *, start: int = 0, end: int = 0) -> None:
        """Gives a stored turn the numbers of its events."""
        for column, sequence in (("start_sequence", start), ("end_sequence", end)):
            if sequence:
                self.db.run(f"UPDATE turns SET {column} = ? WHERE turn_id = ?", (sequence, turn_id))

    def session(self, session: int) -> Session:
        """Returns a stored session."""
        [row] = self.db.rows(f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = ?", (session,))
        return session_of(*row)


def _grouped(keys: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], list[str]]:
    """Returns the last parts of keys, grouped by the parts before them: one statement finds those of a group."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for *beginning, last in keys:
        groups.setdefault(tuple(beginning), []).append(last)
    return groups


def _flat(groups: Iterable[Sequence[Row]]) -> list[Row]:
    return [row for group in groups for row in group]


def last_position(db: Database) -> int:
    """Returns the newest position that the log has ever given.

    Events may be gone from its end while older ones are kept for a turn.
    """
    greatest = db.dialect.greatest
    query = f"SELECT {greatest}(coalesce((SELECT max(position) FROM events), 0), pruned_through, newest_dropped)"
    [(position,)] = db.rows(f"{query} FROM log_state")
    return int(position)
