"""The changes of a commit as SQL. Everything here runs inside the writer's transaction."""

import sqlite3
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import NamedTuple

import msgspec

from turnwire.domain.conversation.events import (
    ConversationChanged,
    DurableKind,
    Event,
    MessageAdded,
    MessageFinished,
    MessageReplaced,
    QueueChanged,
    TurnEnded,
    TurnStarted,
)
from turnwire.domain.conversation.messages import File, MessageStatus, Part, ToolUse
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.turns import TurnStatus
from turnwire.domain.errors import SessionNotFound, StaleVersion, StorageError
from turnwire.domain.money import Consumption
from turnwire.ports.codec import Codec
from turnwire.ports.commit import (
    AddSpending,
    Change,
    Commit,
    Committed,
    HideMessages,
    PutFile,
    PutMessage,
    PutPermission,
    PutSession,
    PutTurn,
    RecordRequest,
    RemoveMessage,
    RemoveSession,
    RequireHead,
    Rewound,
    ShowMessages,
)
from turnwire.ports.store import StoredEvent
from turnwire.storage.accounts import Delta
from turnwire.storage.sqlite.accounts import add_spending
from turnwire.storage.sqlite.hiding.changes import leave_place, rewind

PRUNE_SLACK = 256
"""How many events over the limit a session may have: pruning one at a time would write more than it frees."""

_encode_json = msgspec.json.Encoder().encode


class _SessionRow(NamedTuple):
    """The session of a commit, as it was before the commit."""

    id: int
    tenant: str
    head_sequence: int
    pruned_through: int
    stored_bytes: int
    is_new: bool = False


class CommitWriter:
    """Applies commits on the writing connection. Not safe for concurrent use: the writer's thread owns it."""

    def __init__(self, codec: Codec, retained_events: int) -> None:
        """Args:
        codec: Makes the frames.
        retained_events: How many of its newest events a session keeps.
        """
        self._codec = codec
        self._retained_events = retained_events
        self.next_position = 0
        """Position of the next event. The writer sets it before a transaction and restores it after a rollback."""
        self.deltas: list[Delta] = []
        """What the commits have changed in the accounts. The writer empties it, and cuts it after a rollback."""
        self._file_bytes = 0  # of the files that the current commit added, less those that it removed
        self._spent: list[tuple[date, Consumption]] = []

    def apply(self, db: sqlite3.Connection, commit: Commit) -> tuple[Committed, list[StoredEvent]]:
        """Applies one commit inside the open transaction.

        Raises:
            SessionNotFound: the session does not exist and the commit does not create it.
            StaleVersion: the session's settings were changed since they were read.
            sqlite3.Error: the database failed.
        """
        self._file_bytes, self._spent = 0, []
        row = self._session_row(db, commit)
        session, before, stored_bytes = row.id, row.head_sequence, 0
        removed, rewound, previous = False, None, dict[str, str]()
        for change in commit.changes:
            if isinstance(change, RemoveSession):
                removed = True
            elif isinstance(change, PutMessage):
                before_it = self._put_message(db, row, change)
                previous[change.message.message_id] = before_it
            elif isinstance(change, HideMessages | ShowMessages):
                rewound = rewind(db, session, commit.session_id, change, before + 1)
            else:
                self._carry_out(db, row, change)
        if removed:
            self._remove_session(db, session, commit.session_id)
        stored = self._append_events(db, row, commit, previous, rewound)
        head = before + len(stored)
        if not removed:
            if head - row.pruned_through > self._retained_events + PRUNE_SLACK:
                self._prune(db, session, commit.session_id, head - self._retained_events)
            (stored_bytes,) = db.execute(
                "UPDATE sessions SET head_sequence = ?, updated_at_us = ? WHERE id = ? RETURNING stored_bytes",
                (head, _microseconds(commit.at), session),
            ).fetchone()
        self._note_delta(row, stored_bytes, is_removed=removed)
        known = {message: other for message, other in previous.items() if other}
        return Committed(before, head, known, rewound), stored

    def _note_delta(self, row: _SessionRow, stored_bytes: int, *, is_removed: bool) -> None:
        delta = Delta(
            tenant=row.tenant,
            sessions=row.is_new - is_removed,
            stored_bytes=stored_bytes - row.stored_bytes + self._file_bytes,
            spent=tuple(self._spent),
        )
        if any(delta[1:]):
            self.deltas.append(delta)

    def _session_row(self, db: sqlite3.Connection, commit: Commit) -> _SessionRow:
        query = "SELECT id, tenant, head_sequence, pruned_through, stored_bytes FROM sessions WHERE session_id = ?"
        row = db.execute(query, (commit.session_id,)).fetchone()
        if row is not None:
            return _SessionRow(*row)
        for change in commit.changes:
            if isinstance(change, PutSession) and change.session.revision == 1:
                cursor = db.execute(
                    "INSERT INTO sessions (session_id, tenant, body, updated_at_us) VALUES (?, ?, ?, ?)",
                    (commit.session_id, change.session.tenant, _text(change.session), _microseconds(commit.at)),
                )
                return _SessionRow(cursor.lastrowid or 0, change.session.tenant, 0, 0, 0, is_new=True)
        raise SessionNotFound(commit.session_id)

    def _carry_out(self, db: sqlite3.Connection, row: _SessionRow, change: Change) -> None:
        session = row.id
        match change:
            case PutTurn(turn):
                db.execute(
                    "INSERT INTO turns (turn_id, session, ended, body) VALUES (?, ?, ?, ?)"
                    " ON CONFLICT (turn_id) DO UPDATE SET ended = excluded.ended, body = excluded.body",
                    (turn.turn_id, session, turn.status is TurnStatus.ENDED, _text(turn)),
                )
            case PutSession(value):
                self._put_session(db, session, value)
            case RemoveMessage(message_id):
                where = "messages.message_id = ? AND messages.session = ?"
                files = _files_of(db, where, message_id, session)
                db.execute(f"DELETE FROM messages WHERE {where}", (message_id, session))
                self._remove_unused(db, files)
            case PutPermission(permission):
                db.execute(
                    "INSERT INTO permissions (permission_id, session, tenant, open, body) VALUES (?, ?, ?, ?, ?)"
                    " ON CONFLICT (permission_id) DO UPDATE SET open = excluded.open, body = excluded.body",
                    (permission.permission_id, session, row.tenant, permission.answer is None, _text(permission)),
                )
            case PutFile(sha256, content):
                added = db.execute(
                    "INSERT INTO files (tenant, sha256, content) VALUES (?, ?, ?)"
                    " ON CONFLICT (tenant, sha256) DO NOTHING",
                    (row.tenant, sha256, content),
                ).rowcount
                self._file_bytes += added * len(content)
            case RecordRequest(principal, request_id, fingerprint, receipt_json):
                values = (request_id, session, fingerprint, receipt_json, row.head_sequence)
                db.execute(
                    "INSERT INTO requests (tenant, subject, request_id, session, fingerprint, receipt, before_sequence)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (principal.tenant, principal.subject, *values),
                )
            case RequireHead(sequence):
                if sequence != row.head_sequence:
                    raise StaleVersion("the session has changed meanwhile", {"headSequence": str(row.head_sequence)})
            case AddSpending(spending):
                self._spent.append(add_spending(db, spending))

    def _put_session(self, db: sqlite3.Connection, session: int, value: Session) -> None:
        if value.revision == 1:  # inserted when the commit began
            return
        before = "coalesce(json_extract(body, '$.revision'), 1)"
        updated = db.execute(
            f"UPDATE sessions SET body = ? WHERE id = ? AND {before} = ?", (_text(value), session, value.revision - 1)
        )
        if updated.rowcount == 0:
            (revision,) = db.execute(f"SELECT {before} FROM sessions WHERE id = ?", (session,)).fetchone()
            raise StaleVersion(f"the session has revision {revision}", {"currentRevision": str(revision)})

    def _put_message(self, db: sqlite3.Connection, session: _SessionRow, change: PutMessage) -> str:
        """Writes a message. Returns the id of the message before it; "" when there is none, or while it is queued."""
        message = change.message
        if change.at_end:
            leave_place(db, session.id, message.message_id)
        queued = message.status is MessageStatus.QUEUED
        values = {
            "message_id": message.message_id,
            "session": session.id,
            "queued": queued,
            "turn_id": message.turn_id,
            "at_end": change.at_end,
            "body": _text(msgspec.structs.replace(message, parts=(), previous_message_id="")),
            "display": self._codec.encode_display(message),
            "display_version": self._codec.version,
        }
        row = db.execute(_PUT_MESSAGE, values).fetchone()
        if row is None:
            raise StorageError(f"message {message.message_id} belongs to another session", {"id": message.message_id})
        for index in change.part_indexes:
            self._put_part(db, session.tenant, row[0], message.parts[index])
        return str(row[1])

    def _put_part(self, db: sqlite3.Connection, tenant: str, message_row: int, part: Part) -> None:
        if isinstance(part.content, ToolUse):
            self._put_tool_call(db, tenant, message_row, part, part.content)
            return
        file = _file_row(db, tenant, part.content.sha256) if isinstance(part.content, File) else None
        db.execute(_PUT_PART, (message_row, part.index, _text(part), file, None))

    def _put_tool_call(self, db: sqlite3.Connection, tenant: str, message_row: int, part: Part, call: ToolUse) -> None:
        """Writes a tool call and the files of its result. Only a call that has or had files needs more statements."""
        query = f"{_PUT_PART} RETURNING id, EXISTS (SELECT 1 FROM part_files WHERE part = parts.id)"
        row, had_files = db.execute(query, (message_row, part.index, _text(part), None, part.part_id)).fetchone()
        hashes = {file.sha256 for file in (*call.files, call.full_output) if file is not None}
        files = {_file_row(db, tenant, sha256) for sha256 in hashes}
        before: set[int] = set()
        if had_files:
            before = {file for (file,) in db.execute("SELECT file FROM part_files WHERE part = ?", (row,))}
        if files == before:
            return
        db.execute("DELETE FROM part_files WHERE part = ?", (row,))
        db.executemany("INSERT INTO part_files (part, file) VALUES (?, ?)", [(row, file) for file in sorted(files)])
        self._remove_unused(db, before - files)

    def _append_events(
        self,
        db: sqlite3.Connection,
        session: _SessionRow,
        commit: Commit,
        previous: Mapping[str, str],
        rewound: Rewound | None,
    ) -> list[StoredEvent]:
        stored = []
        rows = []
        for sequence, new in enumerate(commit.events, session.head_sequence + 1):
            event = Event(
                session_id=commit.session_id,
                kind=_placed(_numbered(db, session.id, new.kind, sequence), previous, rewound),
                at=commit.at,
                turn_id=new.turn_id,
                sequence=sequence,
                position=self.next_position,
            )
            frame = self._codec.encode_event(event)
            stored.append(StoredEvent(event, frame, session.tenant))
            kind = type(new.kind).__name__
            rows.append((self.next_position, commit.session_id, sequence, kind, frame, session.tenant))
            self.next_position += 1
        if rows:
            columns = "position, session_id, sequence, kind, frame, tenant"
            db.executemany(f"INSERT INTO events ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
        return stored

    def _remove_session(self, db: sqlite3.Connection, session: int, session_id: str) -> None:
        files = _files_of(db, "messages.session = ?", session)
        db.execute("DELETE FROM sessions WHERE id = ?", (session,))
        db.execute("DELETE FROM events WHERE session_id = ?", (session_id,))
        self._remove_unused(db, files)

    def _remove_unused(self, db: sqlite3.Connection, files: Iterable[int]) -> None:
        """Removes the files among these that no message uses any more."""
        for file in files:
            removed = db.execute(_REMOVE_UNUSED, (file,)).fetchone()
            self._file_bytes -= removed[0] if removed else 0

    def _prune(self, db: sqlite3.Connection, session: int, session_id: str, through: int) -> None:
        (position,) = db.execute(
            "SELECT max(position) FROM events WHERE session_id = ? AND sequence <= ?", (session_id, through)
        ).fetchone()
        db.execute("DELETE FROM events WHERE session_id = ? AND sequence <= ?", (session_id, through))
        db.execute(
            "UPDATE sessions SET pruned_through = ?, pruned_position = coalesce(?, pruned_position) WHERE id = ?",
            (through, position, session),
        )


def _numbered(db: sqlite3.Connection, session: int, kind: DurableKind, sequence: int) -> DurableKind:
    """Returns what happened with the numbers that are only known here, and stores those."""
    match kind:
        case TurnStarted(turn):
            db.execute("UPDATE turns SET start_sequence = ? WHERE turn_id = ?", (sequence, turn.turn_id))
            return TurnStarted(msgspec.structs.replace(turn, start_sequence=sequence))
        case TurnEnded(turn):
            update = "UPDATE turns SET end_sequence = ? WHERE turn_id = ? RETURNING start_sequence"
            row = db.execute(update, (sequence, turn.turn_id)).fetchone()
            start = row[0] if row else 0
            return TurnEnded(msgspec.structs.replace(turn, start_sequence=start, end_sequence=sequence))
        case QueueChanged(entries):
            update = "UPDATE sessions SET queue_revision = queue_revision + 1 WHERE id = ? RETURNING queue_revision"
            return QueueChanged(entries, db.execute(update, (session,)).fetchone()[0])
        case _:
            return kind


def _placed(kind: DurableKind, previous: Mapping[str, str], rewound: Rewound | None) -> DurableKind:
    """Returns what happened with the message before the one that it carries, or the last one that it keeps.

    Args:
        kind: What happened.
        previous: The message before each message that the commit wrote, by its id.
        rewound: Which messages the commit hid or brought back.
    """
    if isinstance(kind, ConversationChanged) and rewound is not None:
        return msgspec.structs.replace(kind, kept_through_message_id=rewound.kept_through_message_id)
    if not isinstance(kind, MessageAdded | MessageFinished | MessageReplaced):
        return kind
    before_it = previous.get(kind.message.message_id, kind.message.previous_message_id)
    return type(kind)(msgspec.structs.replace(kind.message, previous_message_id=before_it))


def _file_row(db: sqlite3.Connection, tenant: str, sha256: str) -> int:
    """Returns the row of a stored file."""
    row = db.execute("SELECT id FROM files WHERE tenant = ? AND sha256 = ?", (tenant, sha256)).fetchone()
    if row is None:
        raise StorageError(f"file {sha256} is not stored", {"sha256": sha256})
    return int(row[0])


def _files_of(db: sqlite3.Connection, where: str, *parameters: object) -> list[int]:
    """Returns the rows of the files that some messages use, in their parts and in the results of their tool calls."""
    used = "JOIN messages ON messages.id = parts.message WHERE"
    rows = db.execute(
        f"SELECT file FROM parts {used} file IS NOT NULL AND {where}"
        f" UNION SELECT part_files.file FROM part_files JOIN parts ON parts.id = part_files.part {used} {where}",
        (*parameters, *parameters),
    )
    return [file for (file,) in rows]


_REMOVE_UNUSED = (
    "DELETE FROM files WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM parts WHERE file = ?1)"
    " AND NOT EXISTS (SELECT 1 FROM part_files WHERE file = ?1) RETURNING length(content)"
)

_PUT_PART = (
    "INSERT INTO parts (message, part_index, body, file, tool_call_id) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (message, part_index) DO UPDATE SET body = excluded.body, file = excluded.file"
)

_PUT_MESSAGE = """
INSERT INTO messages (message_id, session, queued, place, turn_id, body, display, display_version, previous)
VALUES (:message_id, :session, :queued,
        1 + max(
            (SELECT coalesce(max(place), 0) FROM messages WHERE session = :session AND hidden = 0 AND queued = :queued),
            (SELECT coalesce(max(place), 0) FROM messages WHERE session = :session AND hidden = 1 AND queued = :queued)
        ),
        :turn_id, :body, :display, :display_version,
        CASE WHEN :queued THEN '' ELSE coalesce(
            (SELECT message_id FROM messages
             WHERE session = :session AND hidden = 0 AND queued = 0 AND message_id <> :message_id
             ORDER BY place DESC LIMIT 1), ''
        ) END)
ON CONFLICT (message_id) DO UPDATE SET
    queued = excluded.queued,
    place = CASE WHEN queued = excluded.queued AND NOT :at_end THEN place ELSE excluded.place END,
    previous = CASE WHEN queued = excluded.queued AND NOT :at_end THEN previous ELSE excluded.previous END,
    turn_id = excluded.turn_id,
    body = excluded.body,
    display = excluded.display,
    display_version = excluded.display_version
WHERE messages.session = excluded.session
RETURNING id, previous
"""


def _text(value: msgspec.Struct) -> str:
    return _encode_json(value).decode()


def _microseconds(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)
