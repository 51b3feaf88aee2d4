"""What waits: the messages in the queue of a session, permission requests and questions."""

import sqlite3

from turnwire.domain.conversation.questions import HeldQuestion, Question
from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry
from turnwire.domain.errors import QuestionNotFound
from turnwire.domain.pages import MAX_PAGE_BYTES, decode_token, encode_token
from turnwire.ports.pages import Page, PermissionPage, QuestionPage, QueuePage
from turnwire.storage.rows import hold_of, permission_of, question_of
from turnwire.storage.sqlite.message_rows import MESSAGE_BYTES
from turnwire.storage.sqlite.reading.fitting import check_light, fitting
from turnwire.storage.sqlite.reading.pages import cut, limit_of
from turnwire.storage.sqlite.reading.rows import read_messages, session_row


def queue(
    db: sqlite3.Connection, tenant: str, session_id: str, page: Page, *, max_bytes: int | None = None
) -> QueuePage:
    """Returns waiting messages; see `TenantStore.queue`. Raises HeavyRead: they have more bytes."""
    listing = f"queue of {session_id}"
    db.execute("BEGIN")  # so that messages and revision are of the same moment
    try:
        row = session_row(db, tenant, session_id)
        [after] = decode_token(page.token, listing, int) if page.token else [0]
        (revision,) = db.execute("SELECT queue_revision FROM sessions WHERE id = ?", (row,)).fetchone()
        found = db.execute(
            f"SELECT id, place, {MESSAGE_BYTES}, message_id, turn_id,"
            " (SELECT json_extract(turns.body, '$.busy_policy') FROM turns WHERE turns.turn_id = messages.turn_id)"
            " FROM messages WHERE session = ? AND on_path = 1 AND queued = 1 AND place > ? ORDER BY place LIMIT ?",
            (row, after, limit_of(page)),
        )
        rows, left_out = fitting(found, lambda one: one[2], None if page.size is None else MAX_PAGE_BYTES)
        rows, more = cut(rows, page, left_out)
        check_light(sum(one[2] for one in rows), max_bytes)
        messages = read_messages(db, f"messages.id IN ({','.join(str(one[0]) for one in rows)})", (), "place")
    finally:
        db.execute("COMMIT")
    entries = (QueueEntry(message, turn, BusyPolicy(policy or BusyPolicy.QUEUE)) for *_, message, turn, policy in rows)
    return QueuePage(tuple(entries), messages, revision, encode_token(listing, rows[-1][1]) if more else "")


def queue_entries(db: sqlite3.Connection, tenant: str, session_id: str) -> QueuePage:
    """Returns all waiting messages without content; see `TenantStore.queue_entries`."""
    rows = db.execute(  # one statement, so that all of it is of the same moment
        "SELECT queue_revision, message_id, messages.turn_id, json_extract(turns.body, '$.busy_policy') FROM sessions"
        " LEFT JOIN messages ON messages.session = sessions.id AND on_path = 1 AND queued = 1"
        " LEFT JOIN turns ON turns.turn_id = messages.turn_id WHERE sessions.id = ? ORDER BY place",
        (session_row(db, tenant, session_id),),
    ).fetchall()
    waiting = ((message, turn, BusyPolicy(policy or BusyPolicy.QUEUE)) for _, message, turn, policy in rows if message)
    return QueuePage(tuple(QueueEntry(*one) for one in waiting), (), rows[0][0], "")


def question(db: sqlite3.Connection, tenant: str, session_id: str, question_id: str) -> Question:
    """Returns a question; see `TenantStore.question`."""
    row = db.execute(
        "SELECT questions.body FROM questions JOIN live_sessions AS sessions ON sessions.id = questions.session"
        " WHERE question_id = ? AND session_id = ? AND sessions.tenant = ?",
        (question_id, session_id, tenant),
    ).fetchone()
    if row is None:
        raise QuestionNotFound(question_id)
    return question_of(row[0])


def open_permissions(
    db: sqlite3.Connection, tenant: str, session_id: str | None, page: Page, *, max_bytes: int | None = None
) -> PermissionPage:
    """Returns open permission requests; see `TenantStore.open_permissions`. Raises HeavyRead: they have more bytes."""
    bodies, token = _open_page(db, "permission", tenant, session_id, page, max_bytes=max_bytes)
    return PermissionPage(tuple(map(permission_of, bodies)), token)


def open_questions(
    db: sqlite3.Connection, tenant: str, session_id: str | None, page: Page, *, max_bytes: int | None = None
) -> QuestionPage:
    """Returns open questions; see `TenantStore.open_questions`. Raises HeavyRead: they have more bytes."""
    bodies, token = _open_page(db, "question", tenant, session_id, page, max_bytes=max_bytes)
    return QuestionPage(tuple(map(question_of, bodies)), token)


def _open_page(
    db: sqlite3.Connection, kind: str, tenant: str, session_id: str | None, page: Page, *, max_bytes: int | None
) -> tuple[list[str], str]:
    """Returns the bodies of what is open of a kind, oldest first, and the token of the next page.

    The token has an id, because the row would show how many the server has. What is open is few of what there is.
    """
    listing = f"{kind}s of {session_id}" if session_id else f"all {kind}s of {tenant}"
    [after] = decode_token(page.token, listing, str) if page.token else [""]
    owner = "" if session_id is None else f" AND session = {session_row(db, tenant, session_id)}"
    found = db.execute(
        f"SELECT body, {kind}_id FROM {kind}s INDEXED BY {kind}s_open WHERE open = 1 AND tenant = ?{owner}"
        f" AND id > coalesce((SELECT id FROM {kind}s WHERE {kind}_id = ? AND tenant = ?), 0) ORDER BY id LIMIT ?",
        (tenant, after, tenant, limit_of(page)),
    )
    most = None if page.size is None else MAX_PAGE_BYTES
    rows, left_out = fitting(found, lambda row: len(row[0].encode()), most, light_bytes=max_bytes)
    rows, more = cut(rows, page, left_out)
    return [body for body, _ in rows], encode_token(listing, rows[-1][1]) if more else ""


def pending_questions(db: sqlite3.Connection, tenant: str, session_id: str) -> tuple[HeldQuestion, ...]:
    """Returns open and held questions; see `TenantStore.pending_questions`."""
    row = session_row(db, tenant, session_id)
    rows = db.execute(
        "SELECT body, hold FROM questions WHERE id IN ("
        "SELECT id FROM questions WHERE session = ? AND open = 1"
        " UNION SELECT id FROM questions WHERE session = ? AND hold IS NOT NULL) ORDER BY id",
        (row, row),
    )
    return tuple(HeldQuestion(question_of(body), None if hold is None else hold_of(hold)) for body, hold in rows)
