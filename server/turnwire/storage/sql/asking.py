"""Pending work: permission requests and questions for people, and open calls for clients."""

from collections.abc import Iterator
from operator import itemgetter

from turnwire.domain.conversation.messages import Part
from turnwire.domain.conversation.permissions import PermissionChoice, PermissionRequest
from turnwire.domain.conversation.questions import HeldQuestion, Question
from turnwire.domain.errors import PermissionRequestNotFound, QuestionNotFound
from turnwire.domain.pages import decode_token, encode_token
from turnwire.ports.pages import OpenCall, OpenCallPage, Page, PermissionPage, QuestionPage
from turnwire.storage.rows import hold_of, parts_of, permission_of, question_of
from turnwire.storage.sql.columns import MESSAGE_BYTES, session_row
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.pages import fitting_page, limit_of

_ONE = (
    "SELECT {kind}s.body FROM {kind}s JOIN live_sessions AS sessions ON sessions.id = {kind}s.session"
    " WHERE {kind}_id = ? AND session_id = ? AND sessions.tenant = ?"
)

_OPEN_CALLS = f"""
SELECT sessions.session_id, messages.message_id, messages.turn_id, messages.id, part_index,
    {MESSAGE_BYTES} / (SELECT count(*) FROM tool_calls WHERE message = messages.id), since_us, open_calls.tool_call_id
FROM open_calls {{hint}} CROSS JOIN messages CROSS JOIN turns CROSS JOIN live_sessions AS sessions
WHERE {{where}} AND (since_us, open_calls.tool_call_id) > (?, ?) AND messages.id = open_calls.message
    AND turns.turn_id = messages.turn_id AND turns.ended = 0 AND sessions.id = open_calls.session
ORDER BY since_us, open_calls.tool_call_id LIMIT ?
"""
"""The sixth column is a share of the size of its message. CROSS JOIN keeps SQLite from reordering the tables.

A turn whose end could not be stored with its messages has left calls for which no turn waits: `turns.ended`."""


def permission(db: Database, tenant: str, session_id: str, permission_id: str) -> PermissionRequest:
    """Returns a permission request; see `TenantStore.permission`."""
    row = db.row(_ONE.format(kind="permission"), (permission_id, session_id, tenant))
    if row is None:
        raise PermissionRequestNotFound(permission_id)
    return permission_of(row[0])


def question(db: Database, tenant: str, session_id: str, question_id: str) -> Question:
    """Returns a question; see `TenantStore.asked_question`."""
    row = db.row(_ONE.format(kind="question"), (question_id, session_id, tenant))
    if row is None:
        raise QuestionNotFound(question_id)
    return question_of(row[0])


def always_allowed(db: Database, tenant: str, session_id: str) -> frozenset[str]:
    """Returns the patterns that were allowed; see `TenantStore.always_allowed`."""
    query = (
        "SELECT permissions.body FROM permissions JOIN live_sessions AS sessions ON sessions.id = permissions.session"
        f" WHERE session_id = ? AND sessions.tenant = ? AND {db.dialect.field('permissions.body', 'answer.response')}"
        " = ?"
    )
    rows = db.rows(query, (session_id, tenant, PermissionChoice.ALWAYS.value))
    return frozenset(pattern for (body,) in rows for pattern in permission_of(body).patterns)


def open_permissions(
    db: Database, tenant: str, session_id: str | None, page: Page, *, max_bytes: int | None = None
) -> PermissionPage:
    """Returns open permission requests; see `TenantStore.open_permissions`. Raises HeavyRead: they have more bytes."""
    bodies, token = _open_page(db, "permission", tenant, session_id, page, max_bytes=max_bytes)
    return PermissionPage(tuple(map(permission_of, bodies)), token)


def open_questions(
    db: Database, tenant: str, session_id: str | None, page: Page, *, max_bytes: int | None = None
) -> QuestionPage:
    """Returns open questions; see `TenantStore.open_questions`. Raises HeavyRead: they have more bytes."""
    bodies, token = _open_page(db, "question", tenant, session_id, page, max_bytes=max_bytes)
    return QuestionPage(tuple(map(question_of, bodies)), token)


def _open_page(
    db: Database, kind: str, tenant: str, session_id: str | None, page: Page, *, max_bytes: int | None
) -> tuple[list[str], str]:
    """Returns the bodies of the open rows of a kind, oldest first, and the token of the next page.

    The token has an id, because a row number would show how many rows the server has. Few rows are open.
    """
    listing = f"{kind}s of {session_id}" if session_id else f"all {kind}s of {tenant}"
    [after] = decode_token(page.token, listing, str) if page.token else [""]
    owner = "" if session_id is None else f" AND session = {session_row(db, tenant, session_id)}"
    query = (
        f"SELECT body, {kind}_id FROM {kind}s {db.dialect.hint(f'{kind}s_open')} WHERE open = 1 AND tenant = ?{owner}"
        f" AND id > coalesce((SELECT id FROM {kind}s WHERE {kind}_id = ? AND tenant = ?), 0) ORDER BY id LIMIT ?"
    )
    with db.snapshot():
        found = db.each(query, (tenant, after, tenant, limit_of(page)))
        rows, more = fitting_page(found, lambda row: len(row[0].encode()), page, light_bytes=max_bytes)
    return [body for body, _ in rows], encode_token(listing, rows[-1][1]) if more else ""


def pending_questions(db: Database, tenant: str, session_id: str) -> tuple[HeldQuestion, ...]:
    """Returns open and held questions; see `TenantStore.pending_questions`."""
    row = session_row(db, tenant, session_id)
    query = (
        "SELECT body, hold FROM questions WHERE id IN ("
        "SELECT id FROM questions WHERE session = ? AND open = 1"
        " UNION SELECT id FROM questions WHERE session = ? AND hold IS NOT NULL) ORDER BY id"
    )
    rows = db.rows(query, (row, row))
    return tuple(HeldQuestion(question_of(body), None if hold is None else hold_of(hold)) for body, hold in rows)


def open_calls(
    db: Database, tenant: str, session_id: str, tools: frozenset[str], page: Page, *, max_bytes: int | None = None
) -> OpenCallPage:
    """Returns open calls; see `TenantStore.open_calls`. Raises HeavyRead: they have more bytes."""
    names = sorted(tools)
    listed = f"open calls of {session_id or tenant} {names}"
    after = decode_token(page.token, listed, int, str) if page.token else (-(2**62), "")
    of, owner = ("session", session_row(db, tenant, session_id)) if session_id else ("tenant", tenant)
    where, parameters = f"open_calls.{of} = ?", [owner]
    if names:
        where += f" AND tool {db.dialect.among}"
        parameters.append(db.dialect.keys(names))
    query = _OPEN_CALLS.format(hint=db.dialect.hint(f"open_calls_of_{of}s"), where=where)
    with db.snapshot():
        rows = db.each(query, (*parameters, *after, limit_of(page)))
        found, more = fitting_page(rows, itemgetter(5), page, light_bytes=max_bytes)
        parts = dict(_parts(db, {one[3] for one in found}))
    calls = tuple(OpenCall(one[0], one[1], one[2], parts[one[3]][one[4]]) for one in found)
    return OpenCallPage(calls, encode_token(listed, *found[-1][-2:]) if more else "")


def _parts(db: Database, messages: set[int]) -> Iterator[tuple[int, tuple[Part, ...]]]:
    query = f"SELECT id, parts, provider_states FROM messages WHERE id {db.dialect.among}"
    for row, *parts in db.rows(query, (db.dialect.keys(messages),)):
        yield row, parts_of(*parts)
