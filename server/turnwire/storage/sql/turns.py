"""Turns: pages of them, their usage, and the messages that wait for theirs."""

from collections.abc import Sequence
from operator import itemgetter

import msgspec

from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry, Turn, TurnStatus
from turnwire.domain.errors import TurnNotFound
from turnwire.domain.money import Usage, add_known, add_usage
from turnwire.domain.pages import decode_token, encode_token, wrong_token
from turnwire.ports.pages import Page, QueuePage, TurnPage
from turnwire.ports.store import Spent
from turnwire.storage.rows import turn_of
from turnwire.storage.sql.columns import (
    MESSAGE_BYTES,
    TURN,
    TURN_HEADER,
    number,
    read_messages,
    session_row,
)
from turnwire.storage.sql.database import Database, Dialect
from turnwire.storage.sql.pages import check_light, fitting_page, limit_of

_usage = msgspec.json.Decoder(Usage).decode


def turns_begun(dialect: Dialect) -> str:
    """Returns SQL for the turns of a session whose messages do not wait."""
    return f"session = ? AND {dialect.field('body', 'status')} <> '{TurnStatus.QUEUED.value}'"


def turn(db: Database, tenant: str, session_id: str, turn_id: str) -> Turn:
    """Returns one turn; see `TenantStore.turn`."""
    query = f"SELECT {TURN} FROM turns WHERE turn_id = ? AND session = ?"
    row = db.row(query, (turn_id, session_row(db, tenant, session_id)))
    if row is None:
        raise TurnNotFound(turn_id)
    return turn_of(*row)


def turns(
    db: Database,
    tenant: str,
    session_id: str,
    page: Page,
    statuses: frozenset[TurnStatus],
    *,
    max_bytes: int | None = None,
) -> TurnPage:
    """Returns a page of turns; see `TenantStore.turns`. Raises HeavyRead: they have more bytes."""
    turns_listed = f"turns of {session_id} {sorted(statuses)} {page.newest_first}"
    where = f"session = ? AND {db.dialect.field('body', 'status')} {db.dialect.among}"
    row = session_row(db, tenant, session_id)
    parameters = [row, db.dialect.keys(sorted(statuses))]
    if TurnStatus.ENDED not in statuses:
        where += " AND ended = 0"  # has an index, which finds the few without reading the others
    if page.token:
        [turn_id] = decode_token(page.token, turns_listed, str)
        where += f" AND id {'<' if page.newest_first else '>'} ?"
        parameters.append(_turn_row(db, row, turn_id))
    order = "id DESC" if page.newest_first else "id"
    query = f"SELECT {TURN_HEADER} FROM turns WHERE {where} ORDER BY {order} LIMIT ?"
    with db.snapshot():
        found = db.each(query, (*parameters, limit_of(page)))
        rows, more = fitting_page(found, lambda row: len(row[2].encode()), page, light_bytes=max_bytes)
    token = encode_token(turns_listed, rows[-1][0]) if more else ""
    return TurnPage(tuple(turn_of(*row) for row in rows), token)


def _turn_row(db: Database, session_row: int, turn_id: str) -> int:
    """Returns the row of the turn in a page token. A row number would show how many turns the server has."""
    row = db.row("SELECT id FROM turns WHERE turn_id = ? AND session = ?", (turn_id, session_row))
    if row is None:
        raise wrong_token()
    return int(row[0])


def unfinished_turns(db: Database) -> tuple[Turn, ...]:
    """Returns turns that have not ended; see `Store.unfinished_turns`."""
    return tuple(turn_of(*row) for row in db.rows(f"SELECT {TURN_HEADER} FROM turns WHERE ended = 0 ORDER BY id"))


def busy_sessions(db: Database, session_ids: Sequence[str]) -> frozenset[str]:
    """Returns those of some sessions that have a turn that has not ended."""
    query = (
        "SELECT DISTINCT session_id FROM turns JOIN sessions ON sessions.id = turns.session"
        f" WHERE ended = 0 AND session_id {db.dialect.among}"
    )
    return frozenset(str(session_id) for (session_id,) in db.rows(query, (db.dialect.keys(session_ids),)))


def spent(db: Database, tenant: str, session_id: str) -> Spent:
    """Returns the usage of the ended turns; see `TenantStore.spent`."""
    field = db.dialect.field
    query = (  # the same expressions as in the index turns_spent, so bodies are not read
        f"SELECT {field('body', 'usage')},"
        f" coalesce({field('body', 'cost_pico_usd')}, {field('body', 'known_cost_pico_usd')}) FROM turns"
        " WHERE session = ? AND ended = 1"
    )
    total, total_cost = None, None
    for usage, cost in db.rows(query, (session_row(db, tenant, session_id),)):
        total = add_usage(total, None if usage is None else _usage(usage))
        total_cost = add_known(total_cost, None if cost is None else int(cost))
    return Spent(total, total_cost)


def queue(db: Database, tenant: str, session_id: str, page: Page, *, max_bytes: int | None = None) -> QueuePage:
    """Returns waiting messages; see `TenantStore.queue`. Raises HeavyRead: they have more bytes."""
    listing = f"queue of {session_id}"
    policy = db.dialect.field("turns.body", "busy_policy")
    query = (
        f"SELECT id, place, {MESSAGE_BYTES}, message_id, turn_id,"
        f" (SELECT {policy} FROM turns WHERE turns.turn_id = messages.turn_id)"
        " FROM messages WHERE session = ? AND on_path = 1 AND queued = 1 AND place > ? ORDER BY place LIMIT ?"
    )
    with db.snapshot():
        row = session_row(db, tenant, session_id)
        [after] = decode_token(page.token, listing, int) if page.token else [0]
        revision = number(db, "SELECT queue_revision FROM sessions WHERE id = ?", (row,))
        found = db.each(query, (row, after, limit_of(page)))
        rows, more = fitting_page(found, itemgetter(2), page)
        check_light(sum(one[2] for one in rows), max_bytes)
        ids = db.dialect.keys([one[0] for one in rows])
        messages = read_messages(db, f"messages.id {db.dialect.among}", (ids,), "place")
    entries = (QueueEntry(message, turn, BusyPolicy(policy or BusyPolicy.QUEUE)) for *_, message, turn, policy in rows)
    return QueuePage(tuple(entries), messages, revision, encode_token(listing, rows[-1][1]) if more else "")


def queue_entries(db: Database, tenant: str, session_id: str) -> QueuePage:
    """Returns all waiting messages without content; see `TenantStore.queue_entries`."""
    query = (  # one statement, so that all of it is of the same moment
        f"SELECT queue_revision, message_id, messages.turn_id, {db.dialect.field('turns.body', 'busy_policy')}"
        " FROM sessions LEFT JOIN messages ON messages.session = sessions.id AND on_path = 1 AND queued = 1"
        " LEFT JOIN turns ON turns.turn_id = messages.turn_id WHERE sessions.id = ? ORDER BY place"
    )
    rows = db.rows(query, (session_row(db, tenant, session_id),))
    waiting = ((message, turn, BusyPolicy(policy or BusyPolicy.QUEUE)) for _, message, turn, policy in rows if message)
    return QueuePage(tuple(QueueEntry(*one) for one in waiting), (), rows[0][0], "")
