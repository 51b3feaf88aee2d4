"""The changes of a commit as SQL. Everything here runs inside the writer's transaction."""

import sqlite3
from datetime import UTC, datetime

import msgspec

from turnwire.domain.conversation.sessions import Session, begun, first_words_of
from turnwire.domain.errors import IdTaken, SessionNotFound, StaleVersion, StorageError
from turnwire.ports.codec import Codec
from turnwire.ports.commit import (
    AddSpending,
    Change,
    Commit,
    Committed,
    FileChange,
    HideMessages,
    JoinSession,
    MarkArchived,
    NoteFirstWords,
    OrderQueue,
    PublishSession,
    PutDraft,
    PutFile,
    PutMessage,
    PutPermission,
    PutQuestion,
    PutSession,
    PutTurn,
    RecordRequest,
    RemoveMessage,
    RemoveSession,
    RequireHead,
    RequireQueueRevision,
    RequireQuota,
    SelectPath,
    SessionState,
    ShowMessages,
    UseUpload,
)
from turnwire.ports.store import StoredEvent, Watched
from turnwire.storage.accounts import Delta
from turnwire.storage.sqlite import states
from turnwire.storage.sqlite.accounts import usage_row
from turnwire.storage.sqlite.listing.entries import list_session, note_first_words
from turnwire.storage.sqlite.log.pruning import MAX_PRUNED, PRUNE_SLACK, prune
from turnwire.storage.sqlite.quotas import check_totals
from turnwire.storage.sqlite.reading.alternatives import alternatives
from turnwire.storage.sqlite.reading.rows import read_messages
from turnwire.storage.sqlite.tree import restore, select_path, take_back
from turnwire.storage.sqlite.writing.archived import mark_archived
from turnwire.storage.sqlite.writing.events import numbered_events
from turnwire.storage.sqlite.writing.messages import add_draft, put_file, put_message, remove_message
from turnwire.storage.sqlite.writing.queue import order_queue, require_revision
from turnwire.storage.sqlite.writing.rows import Rows
from turnwire.storage.sqlite.writing.turns import put_turn
from turnwire.storage.sqlite.writing.unit import SessionRow, Unit, microseconds, session_text, text
from turnwire.storage.sqlite.writing.used_uploads import use_upload


class CommitWriter:
    """Applies commits on the writing connection. Not safe for concurrent use: the writer's thread owns it."""

    def __init__(self, codec: Codec, retained_events: int, is_watched: Watched = lambda *_: True) -> None:
        """Args:
        codec: Makes the frames.
        retained_events: How many of its newest events a session keeps.
        is_watched: Says which sessions need frames of their events at once.
        """
        self._is_watched = is_watched
        self._codec = codec
        self._retained_events = retained_events
        self.next_position = 0
        """Position of the next event. The writer sets it before a transaction and restores it after a rollback."""
        self.deltas: list[Delta] = []
        """What the commits have changed in the accounts. The writer empties it, and cuts it after a rollback."""
        self.rows = Rows()
        """What they have yet to write. The writer makes it anew, and drops some of it after a rollback."""

    def apply(self, db: sqlite3.Connection, commit: Commit) -> tuple[Committed, list[StoredEvent]]:
        """Applies one commit inside the open transaction.

        Raises:
            SessionNotFound: the tenant has no such session and the commit does not create it.
            IdTaken: something that the commit creates has an id of something else.
            QuotaExceeded: the tenant may not have as much.
            StaleVersion: the session's settings, or what a Require… names, were changed since they were read.
            sqlite3.Error: the database failed.
        """
        reads_all = any(isinstance(one, RemoveSession | JoinSession) for one in commit.changes)
        if commit.session_id in self.rows.sessions or commit.state is not SessionState.LIVE or reads_all:
            self.rows.write(db)
        row = _session_row(db, commit)
        unit = Unit(
            db,
            row,
            commit.session_id,
            self.rows,
            is_branched=row.branched_at > 0,
            archived_at_us=row.archived_at_us,
            state=SessionState(row.state),
            first_words=row.first_words,
        )
        before, stored_bytes = row.head_sequence, 0
        for change in commit.changes:
            if isinstance(change, MarkArchived):
                mark_archived(unit, change, commit)
            else:
                self._carry_out(unit, change)
        if unit.is_branched:
            unit.alternatives = alternatives(db, row.id, unit.previous)
        stored = numbered_events(unit, commit, self._codec, self.next_position, self._is_watched)
        self.next_position += len(stored)
        head = before + len(stored)
        if unit.state is not SessionState.DELETING:
            if head - row.pruned_through > self._retained_events + PRUNE_SLACK:
                through = min(head - self._retained_events, row.pruned_through + MAX_PRUNED)
                self.rows.write(db)
                unit.added_bytes -= prune(db, row.id, commit.session_id, through)[1]
            stored_bytes = row.stored_bytes + unit.added_bytes
            changed = (head, microseconds(_updated_at(commit)), stored_bytes, row.id)
            self.rows.sessions[commit.session_id] = changed
        self._note_delta(unit, stored_bytes)
        known = {message: other for message, other in unit.previous.items() if other}
        return Committed(before, head, known, unit.rewound, unit.alternatives, unit.queue_revision), stored

    def _note_delta(self, unit: Unit, stored_bytes: int) -> None:
        """Notes what the commit has changed in its tenant's account: live sessions count there, and all files."""
        sessions, counted_bytes = (1, stored_bytes) if unit.state is SessionState.LIVE else (0, 0)
        sessions_before, bytes_before = unit.session.counted
        delta = Delta(
            tenant=unit.session.tenant,
            sessions=sessions - sessions_before,
            stored_bytes=counted_bytes - bytes_before + unit.file_bytes,
            spent=tuple(unit.spent),
        )
        if unit.quota is not None:
            self._check_quota(unit, unit.quota, delta, stored_bytes)
        if any(delta[1:]):
            self.deltas.append(delta)

    def _check_quota(self, unit: Unit, quota: RequireQuota, delta: Delta, stored_bytes: int) -> None:
        """Raises QuotaExceeded. What is imported counts once it is there as a whole, and is refused before that."""
        if unit.state is SessionState.IMPORTING:
            sessions = 0 if unit.session.joins else 1
            delta = delta._replace(sessions=sessions, stored_bytes=delta.stored_bytes + stored_bytes)
        check_totals(
            unit.db,
            self.deltas,
            delta,
            max_sessions=quota.max_sessions,
            max_stored_bytes=quota.max_stored_bytes,
        )

    def _carry_out(self, unit: Unit, change: Change) -> None:
        match change:
            case PutMessage() | PutDraft():
                put_message(unit, change) if isinstance(change, PutMessage) else add_draft(unit, change)
            case HideMessages() | ShowMessages() | SelectPath():
                self._change_path(unit, change)
            case PutTurn():
                put_turn(unit, change)
            case PutSession() | NoteFirstWords():
                _change_session(unit, change)
            case PublishSession() | JoinSession() | RemoveSession():
                _change_state(unit, change)
            case RemoveMessage(message_id):
                remove_message(unit, message_id)
            case PutPermission() | PutQuestion():
                _put_request(unit, change)
            case PutFile() | UseUpload():
                _store_file(unit, change)
            case RecordRequest():
                _record_request(unit, change)
            case RequireHead() | RequireQueueRevision() | RequireQuota():
                _require(unit, change)
            case OrderQueue(message_ids):
                order_queue(unit, message_ids)
            case AddSpending(spending):
                unit.rows.usage.append(usage_row(spending))
                unit.spent.append((spending.at.astimezone(UTC).date(), spending.consumption))

    def _change_path(self, unit: Unit, change: HideMessages | ShowMessages | SelectPath) -> None:
        db, session, sequence = unit.db, unit.session.id, unit.session.head_sequence + 1
        if isinstance(change, HideMessages):
            unit.rewound = take_back(db, session, change.from_message_id, sequence)
            return
        if isinstance(change, ShowMessages):
            unit.rewound = restore(db, session, unit.session_id)
            return
        path = select_path(db, session, change)
        unit.rewound, unit.is_branched = path.rewound, True
        if not path.rewound.messages:
            return
        db.execute("UPDATE sessions SET branched_at = ? WHERE id = ?", (sequence, session))
        for message_id, turn_id in path.turns.items():
            [message] = read_messages(db, "messages.message_id = ?", (message_id,), "place")
            put_message(unit, PutMessage(msgspec.structs.replace(message, turn_id=turn_id)))


def _session_row(db: sqlite3.Connection, commit: Commit) -> SessionRow:
    numbers = "head_sequence, pruned_through, stored_bytes, branched_at, archived_at_us"
    columns = f"id, tenant, {numbers}, state, first_words, joins"
    row = db.execute(f"SELECT {columns} FROM sessions WHERE session_id = ?", (commit.session_id,)).fetchone()
    new = next((one for one in commit.changes if _is_new(one)), None)
    if new is not None and row is not None:  # whoever has it
        raise IdTaken.of("session", commit.session_id)
    found = _begun(db, commit, new) if row is None else SessionRow(*row)
    if found.tenant != commit.tenant or found.state != commit.state:
        raise SessionNotFound(commit.session_id)
    return found


def _is_new(change: Change) -> bool:
    return isinstance(change, PutSession) and change.session.revision == 1


def _begun(db: sqlite3.Connection, commit: Commit, new: Change | None) -> SessionRow:
    """Stores the session that a commit begins with."""
    if not isinstance(new, PutSession):
        raise SessionNotFound(commit.session_id)
    session, tenant, first_words = new.session, new.session.tenant, first_words_of(new.session)
    archived_at_us = microseconds(session.archived_at) if session.archived_at else 0
    body = session_text(session)
    columns = "session_id, tenant, body, first_words, updated_at_us, archived, archived_at_us, stored_bytes"
    cursor = db.execute(
        f"INSERT INTO sessions ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            commit.session_id,
            tenant,
            body,
            first_words,
            microseconds(commit.at),
            archived_at_us > 0,
            archived_at_us,
            len(body.encode()),
        ),
    )
    row_id = cursor.lastrowid or 0
    list_session(db, row_id, session, tenant)
    new_row = SessionRow(
        row_id, tenant, 0, 0, len(body.encode()), 0, archived_at_us, first_words=first_words, is_new=True
    )
    if commit.state is SessionState.LIVE:
        return new_row
    return states.begin(db, new_row, commit.session_id, new.joins)


def _require(unit: Unit, change: RequireHead | RequireQueueRevision | RequireQuota) -> None:
    """Raises StaleVersion unless the session, or its queue, is as it was read. Notes a quota."""
    head = unit.session.head_sequence
    if isinstance(change, RequireQuota):
        unit.quota = change
    elif isinstance(change, RequireQueueRevision):
        require_revision(unit, change.revision)
    elif change.sequence != head:
        raise StaleVersion("the session has changed meanwhile", {"headSequence": str(head)})


def _change_state(unit: Unit, change: PublishSession | JoinSession | RemoveSession) -> None:
    if isinstance(change, PublishSession):
        states.publish(unit, change)
    elif isinstance(change, JoinSession):
        states.join(unit, change)
    else:
        states.remove(unit)


def _store_file(unit: Unit, change: FileChange) -> None:
    if isinstance(change, PutFile):
        put_file(unit, change)
        if unit.state is SessionState.IMPORTING:
            states.keep_file(unit, change.sha256)
    else:
        use_upload(unit, change)


def _updated_at(commit: Commit) -> datetime:
    """Returns when the session has changed last: an imported one may have done so before it came."""
    said = (one.updated_at for one in commit.changes if isinstance(one, PublishSession | JoinSession))
    return next(said, commit.at)


def _record_request(unit: Unit, change: RecordRequest) -> None:
    """Remembers an answer. One of a session that is being removed may have the name still."""
    caller, session = change.principal, unit.session
    before_sequence = session.head_sequence + change.events_before
    values = (change.request_id, session.id, change.fingerprint, change.receipt_json, before_sequence)
    if not unit.db.execute(_RECORD_REQUEST, (caller.tenant, caller.subject, *values)).rowcount:
        raise StorageError(f"request {change.request_id} is remembered already", {"id": change.request_id})


_RECORD_REQUEST = (
    "INSERT INTO requests (tenant, subject, request_id, session, fingerprint, receipt, before_sequence)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, subject, request_id) DO UPDATE SET"
    " session = excluded.session, fingerprint = excluded.fingerprint, receipt = excluded.receipt,"
    " before_sequence = excluded.before_sequence"
    " WHERE requests.session NOT IN (SELECT id FROM live_sessions WHERE id = requests.session)"
)


def _put_request(unit: Unit, change: PutPermission | PutQuestion) -> None:
    """Writes a permission request or a question. Raises IdTaken: another session has one of its id."""
    db, session, tenant = unit.db, unit.session.id, unit.session.tenant
    if isinstance(change, PutPermission):
        kind, request_id, value = "permission", change.permission.permission_id, text(change.permission)
        is_open, further = change.permission.answer is None, dict[str, str | None]()
    else:
        kind, request_id, value = "question", change.question.question_id, text(change.question)
        is_open, hold = change.question.answer is None, None if change.hold is None else text(change.hold)
        further = {"hold": hold}
    columns: dict[str, object] = {"open": is_open, "body": value, **further}
    find = f"SELECT id, session, length(CAST(body AS BLOB)) FROM {kind}s WHERE {kind}_id = ?"
    row, owner, size = db.execute(find, (request_id,)).fetchone() or (None, session, 0)
    if owner != session:
        raise IdTaken.of(kind, request_id)
    unit.added_bytes += len(value.encode()) - size
    if row is None:
        columns |= {f"{kind}_id": request_id, "session": session, "tenant": tenant}
        names = ", ".join(columns)
        db.execute(f"INSERT INTO {kind}s ({names}) VALUES ({', '.join('?' * len(columns))})", tuple(columns.values()))
    else:
        names = ", ".join(f"{name} = ?" for name in columns)
        db.execute(f"UPDATE {kind}s SET {names} WHERE id = ?", (*columns.values(), row))


def _change_session(unit: Unit, change: PutSession | NoteFirstWords) -> None:
    if isinstance(change, PutSession):
        _put_session(unit, change.session)
    else:
        note_first_words(unit, change)


def _put_session(unit: Unit, value: Session) -> None:
    if value.revision == 1:  # inserted when the commit began
        return
    db, session, body = unit.db, unit.session.id, session_text(value)
    find = "SELECT coalesce(json_extract(body, '$.revision'), 1), length(CAST(body AS BLOB)) FROM sessions WHERE id = ?"
    revision, size = db.execute(find, (session,)).fetchone()
    if revision != value.revision - 1:
        raise StaleVersion(f"the session has revision {revision}", {"currentRevision": str(revision)})
    db.execute("UPDATE sessions SET body = ? WHERE id = ?", (body, session))
    unit.added_bytes += len(body.encode()) - size
    list_session(db, session, begun(value, unit.first_words), unit.session.tenant)
