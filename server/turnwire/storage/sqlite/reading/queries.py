"""Queries. Each is one function that runs on the reading connection's thread."""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from turnwire.domain.conversation.messages import Message, MessageType
from turnwire.domain.conversation.permissions import PermissionChoice, PermissionRequest
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.conversation.sizes import BARE_BYTES, check_conversation, message_bytes
from turnwire.domain.conversation.turns import Turn, TurnStatus
from turnwire.domain.errors import (
    MessageNotFound,
    PermissionRequestNotFound,
    SessionNotFound,
    TurnNotFound,
)
from turnwire.domain.money import Usage, add_known, add_usage
from turnwire.domain.pages import MAX_PAGE_BYTES, decode_token, encode_token, wrong_token
from turnwire.domain.principal import Principal
from turnwire.ports.conversations import Conversation
from turnwire.ports.pages import MessagePage, Page, TurnPage
from turnwire.ports.store import Spent, StoredRequest
from turnwire.storage.rows import permission_of, turn_of
from turnwire.storage.sqlite.message_rows import HEADER, MESSAGE_BYTES, PARTS_BYTES, WITH_PARTS
from turnwire.storage.sqlite.reading.alternatives import with_alternatives
from turnwire.storage.sqlite.reading.fitting import check_light, fitting
from turnwire.storage.sqlite.reading.pages import after_token, cut, limit_of, listing, order_of
from turnwire.storage.sqlite.reading.rows import (
    ONE_SESSION,
    SESSION_COLUMNS,
    each_message,
    read_messages,
    session_of,
    session_row,
)

_usage = msgspec.json.Decoder(Usage).decode

TURN = (
    "turns.turn_id, (SELECT session_id FROM sessions WHERE id = turns.session), turns.body, turns.settings,"
    " turns.start_sequence, turns.end_sequence"
)
"""What `turn_of` takes."""

TURN_HEADER = TURN.replace("turns.settings", "NULL")
"""See `Turn.header`: what is left out may be a megabyte a turn, and is not read."""


def session(db: sqlite3.Connection, tenant: str, session_id: str) -> Session:
    """Returns a session; see `TenantStore.session`."""
    row = db.execute(f"SELECT {SESSION_COLUMNS} {ONE_SESSION}", (tenant, session_id)).fetchone()
    if row is None:
        raise SessionNotFound(session_id)
    return session_of(*row)


def known_sessions(db: sqlite3.Connection, tenant: str, session_ids: Sequence[str]) -> tuple[Session, ...]:
    """Returns those of some sessions that there are; see `TenantStore.known_sessions`."""
    rows = (db.execute(f"SELECT {SESSION_COLUMNS} {ONE_SESSION}", (tenant, one)).fetchone() for one in session_ids)
    return tuple(session_of(*row) for row in rows if row)


def message(
    db: sqlite3.Connection, tenant: str, session_id: str, message_id: str, *, max_bytes: int | None = None
) -> Message:
    """Returns one message; see `TenantStore.message`. Raises HeavyRead: it has more bytes."""
    row = session_row(db, tenant, session_id)
    _check_light(db, row, "message_id = ?", message_id, max_bytes)
    found = read_messages(db, "messages.message_id = ? AND session = ?", (message_id, row), "place")
    if not found:
        raise MessageNotFound(message_id)
    return with_alternatives(db, row, found)[0]


def _check_light(db: sqlite3.Connection, session_row: int, where: str, wanted: str, max_bytes: int | None) -> None:
    """Raises HeavyRead when the parts of a session's messages have more bytes. `where` is SQL."""
    (stored,) = db.execute("SELECT stored_bytes FROM sessions WHERE id = ?", (session_row,)).fetchone()
    if max_bytes is not None and stored > max_bytes:
        query = f"SELECT total({MESSAGE_BYTES}) FROM messages WHERE {where} AND session = ?"
        (size,) = db.execute(query, (wanted, session_row)).fetchone()
        check_light(size, max_bytes)


def messages(
    db: sqlite3.Connection, tenant: str, session_id: str, page: Page, *, max_bytes: int | None = None
) -> MessagePage:
    """Returns a page of messages; see `TenantStore.messages`. Raises HeavyRead: they have more bytes."""
    db.execute("BEGIN")  # so that the page and the head are of the same moment
    try:
        row = session_row(db, tenant, session_id)
        (head,) = db.execute("SELECT head_sequence FROM sessions WHERE id = ?", (row,)).fetchone()
        ids, token = _page_of_ids(db, session_id, row, page, max_bytes)
        where = f"messages.id IN ({','.join(map(str, ids))})"
        found = read_messages(db, where, (), order_of(page), columns=WITH_PARTS)
        found = with_alternatives(db, row, found)
    finally:
        db.execute("COMMIT")
    return MessagePage(found, token, head)


def history(db: sqlite3.Connection, tenant: str, session_id: str) -> tuple[Message, ...]:
    """Returns the conversation; see `TenantStore.history`."""
    shown, row = "session = ? AND on_path = 1 AND queued = 0", session_row(db, tenant, session_id)
    (size,) = db.execute(f"SELECT total({MESSAGE_BYTES}) FROM messages WHERE {shown}", (row,)).fetchone()
    check_conversation(int(size))
    found, memory_bytes = list[Message](), 0  # which may be four times as much as is stored
    for one in each_message(db, shown, (row,), "place"):
        found.append(one)
        memory_bytes += message_bytes(one)
        check_conversation(memory_bytes)
    return tuple(found)


def history_bytes(db: sqlite3.Connection, tenant: str, session_id: str) -> int:
    """Returns about how much memory a conversation takes; see `TenantStore.history_bytes`."""
    query = (
        f"SELECT count(*) * {BARE_BYTES} + total({MESSAGE_BYTES}) FROM messages"
        " WHERE session = ? AND on_path = 1 AND queued = 0"
    )
    (size,) = db.execute(query, (session_row(db, tenant, session_id),)).fetchone()
    return int(size)


def conversation(db: sqlite3.Connection, tenant: str, session_id: str) -> Conversation:
    """Returns a session with its whole conversation; see `TenantStore.conversation`."""
    db.execute("BEGIN")  # so that everything is of the same moment
    try:
        found = session(db, tenant, session_id)
        turns = db.execute(
            f"SELECT {TURN_HEADER} FROM turns WHERE session = ? AND json_extract(body, '$.status') <> ? ORDER BY id",
            (session_row(db, tenant, session_id), TurnStatus.QUEUED),
        )
        return Conversation(found, history(db, tenant, session_id), tuple(turn_of(*row) for row in turns))
    finally:
        db.execute("COMMIT")


def turn_messages(db: sqlite3.Connection, turn_id: str) -> tuple[Message, ...]:
    """Returns the messages of a turn; see `Store.turn_messages`."""
    of_turn = "messages.turn_id = ? AND messages.turn_id <> ''"
    found = read_messages(db, of_turn, (turn_id,), "queued, place", columns=HEADER)
    if not found:
        return ()
    newest = (
        f"messages.id = (SELECT id FROM messages WHERE {of_turn} AND json_extract(body, '$.type') = ?"
        " AND (length(parts) > 1 OR EXISTS (SELECT 1 FROM drafts WHERE message = messages.id))"
        " ORDER BY place DESC LIMIT 1)"
    )
    whole = {one.message_id: one for one in read_messages(db, newest, (turn_id, MessageType.ASSISTANT), "place")}
    found = tuple(whole.get(message.message_id, message) for message in found)
    (row,) = db.execute("SELECT session FROM messages WHERE message_id = ?", (found[0].message_id,)).fetchone()
    return with_alternatives(db, row, found)


def turn(db: sqlite3.Connection, tenant: str, session_id: str, turn_id: str) -> Turn:
    """Returns one turn; see `TenantStore.turn`."""
    row = db.execute(
        f"SELECT {TURN} FROM turns WHERE turn_id = ? AND session = ?",
        (turn_id, session_row(db, tenant, session_id)),
    ).fetchone()
    if row is None:
        raise TurnNotFound(turn_id)
    return turn_of(*row)


def turns(
    db: sqlite3.Connection,
    tenant: str,
    session_id: str,
    page: Page,
    statuses: frozenset[TurnStatus],
    *,
    max_bytes: int | None = None,
) -> TurnPage:
    """Returns a page of turns; see `TenantStore.turns`. Raises HeavyRead: they have more bytes."""
    turns_listed = f"turns of {session_id} {sorted(statuses)} {page.newest_first}"
    where = f"session = ? AND json_extract(body, '$.status') IN ({','.join('?' * len(statuses))})"
    row = session_row(db, tenant, session_id)
    parameters = [row, *statuses]
    if TurnStatus.ENDED not in statuses:
        where += " AND ended = 0"  # has an index, which finds the few without reading the others
    if page.token:
        [turn_id] = decode_token(page.token, turns_listed, str)
        where += f" AND id {'<' if page.newest_first else '>'} ?"
        parameters.append(_turn_row(db, row, turn_id))
    order = "id DESC" if page.newest_first else "id"
    found = db.execute(
        f"SELECT {TURN_HEADER} FROM turns WHERE {where} ORDER BY {order} LIMIT ?",
        (*parameters, limit_of(page)),
    )
    most = None if page.size is None else MAX_PAGE_BYTES
    rows, left_out = fitting(found, lambda row: len(row[2].encode()), most, light_bytes=max_bytes)
    rows, more = cut(rows, page, left_out)
    token = encode_token(turns_listed, rows[-1][0]) if more else ""
    return TurnPage(tuple(turn_of(*row) for row in rows), token)


def unfinished_turns(db: sqlite3.Connection) -> tuple[Turn, ...]:
    """Returns turns that have not ended; see `Store.unfinished_turns`."""
    rows = db.execute(f"SELECT {TURN_HEADER} FROM turns WHERE ended = 0 ORDER BY id")
    return tuple(turn_of(*row) for row in rows)


def request(db: sqlite3.Connection, principal: Principal, request_id: str) -> StoredRequest | None:
    """Returns the remembered answer to a request; see `Store.request`."""
    row = db.execute(
        "SELECT fingerprint, receipt, before_sequence FROM requests"
        " WHERE tenant = ?1 AND subject = ?2 AND request_id = ?3"
        " AND EXISTS (SELECT 1 FROM live_sessions WHERE id = requests.session)"
        " UNION ALL SELECT fingerprint, receipt, 0 FROM uploads"
        " WHERE tenant = ?1 AND subject = ?2 AND request_id = ?3 AND request_id <> ''",
        (principal.tenant, principal.subject, request_id),
    ).fetchone()
    return StoredRequest(*row) if row else None


def spent(db: sqlite3.Connection, tenant: str, session_id: str) -> Spent:
    """Returns what the ended turns have used; see `TenantStore.spent`."""
    rows = db.execute(  # the same expressions as in the index turns_spent, so bodies are not read
        "SELECT json_extract(body, '$.usage'),"
        " coalesce(json_extract(body, '$.cost_pico_usd'), json_extract(body, '$.known_cost_pico_usd')) FROM turns"
        " WHERE session = ? AND ended = 1",
        (session_row(db, tenant, session_id),),
    )
    total, total_cost = None, None
    for usage, cost in rows:
        total = add_usage(total, None if usage is None else _usage(usage))
        total_cost = add_known(total_cost, cost)
    return Spent(total, total_cost)


def permission(db: sqlite3.Connection, tenant: str, session_id: str, permission_id: str) -> PermissionRequest:
    """Returns a permission request; see `TenantStore.permission`."""
    row = db.execute(
        "SELECT permissions.body FROM permissions JOIN live_sessions AS sessions ON sessions.id = permissions.session"
        " WHERE permission_id = ? AND session_id = ? AND sessions.tenant = ?",
        (permission_id, session_id, tenant),
    ).fetchone()
    if row is None:
        raise PermissionRequestNotFound(permission_id)
    return permission_of(row[0])


def always_allowed(db: sqlite3.Connection, tenant: str, session_id: str) -> frozenset[str]:
    """Returns the patterns that were allowed; see `TenantStore.always_allowed`."""
    rows = db.execute(
        "SELECT permissions.body FROM permissions JOIN live_sessions AS sessions ON sessions.id = permissions.session"
        " WHERE session_id = ? AND sessions.tenant = ? AND json_extract(permissions.body, '$.answer.response') = ?",
        (session_id, tenant, PermissionChoice.ALWAYS.value),
    )
    return frozenset(pattern for (body,) in rows for pattern in permission_of(body).patterns)


def session_file(
    db: sqlite3.Connection, tenant: str, session_id: str, sha256: str, *, max_bytes: int | None = None
) -> bytes | None:
    """Returns the bytes of a session's file; see `TenantStore.session_file`. Raises HeavyRead: it has more."""
    size = "SELECT length(content) FROM files WHERE tenant = ? AND sha256 = ?"
    for (found,) in db.execute(size, (tenant, sha256)).fetchall():
        check_light(found, max_bytes)
    row = db.execute(
        "SELECT content FROM files WHERE tenant = :tenant AND sha256 = :sha256 AND EXISTS (SELECT 1 FROM message_files"
        " JOIN messages ON messages.id = message WHERE file = files.id AND session = :session)",
        {"session": session_row(db, tenant, session_id), "tenant": tenant, "sha256": sha256},
    ).fetchone()
    return None if row is None else row[0]


def files(db: sqlite3.Connection, tenant: str, hashes: Iterable[str]) -> dict[str, bytes]:
    """Returns the bytes of files; see `TenantStore.files`."""
    query = "SELECT sha256, content FROM files WHERE tenant = ? AND sha256 = ?"
    found = (db.execute(query, (tenant, sha256)).fetchone() for sha256 in hashes)
    return dict(row for row in found if row)


def stored_files(db: sqlite3.Connection, tenant: str, hashes: Iterable[str]) -> frozenset[str]:
    """Returns which files there are; see `TenantStore.stored_files`."""
    query = "SELECT 1 FROM files WHERE tenant = ? AND sha256 = ?"
    return frozenset(sha256 for sha256 in hashes if db.execute(query, (tenant, sha256)).fetchone())


def _turn_row(db: sqlite3.Connection, session_row: int, turn_id: str) -> int:
    """Returns the row of the turn in a page token. The row itself would show how many turns the server has."""
    row = db.execute("SELECT id FROM turns WHERE turn_id = ? AND session = ?", (turn_id, session_row)).fetchone()
    if row is None:
        raise wrong_token()
    return int(row[0])


def _page_of_ids(
    db: sqlite3.Connection, session_id: str, session_row: int, page: Page, max_bytes: int | None
) -> tuple[list[int], str]:
    where, parameters = after_token(session_id, page)
    found = db.execute(
        f"SELECT id, queued, place, {PARTS_BYTES} FROM messages"
        f" WHERE session = ? AND on_path = 1 {where} ORDER BY {order_of(page)} LIMIT ?",
        (session_row, *parameters, limit_of(page)),
    )
    rows, left_out = fitting(found, lambda row: row[3], None if page.size is None else MAX_PAGE_BYTES)
    rows, more = cut(rows, page, left_out)
    check_light(sum(row[3] for row in rows), max_bytes)
    token = encode_token(listing(session_id, page), rows[-1][1], rows[-1][2]) if more else ""
    return [row[0] for row in rows], token
