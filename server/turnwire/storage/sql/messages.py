"""Messages: pages of them, complete conversations, those of a turn, those that call tools or are to be answered."""

from collections.abc import Collection
from contextlib import closing
from operator import itemgetter

from turnwire.domain.conversation.messages import Message, MessageType
from turnwire.domain.conversation.sizes import BARE_BYTES, check_conversation, message_bytes
from turnwire.domain.errors import MessageNotFound, ToolCallNotFound
from turnwire.domain.pages import encode_token
from turnwire.ports.conversations import Conversation, StoredQuestion
from turnwire.ports.pages import MessagePage, Page
from turnwire.storage.rows import NOT_TAKEN_BACK, turn_of
from turnwire.storage.sql.alternatives import with_alternatives
from turnwire.storage.sql.columns import (
    HEADER,
    MESSAGE_BYTES,
    PARTS_BYTES,
    TURN_HEADER,
    WITH_PARTS,
    each_message,
    number,
    read_messages,
    session_row,
    total,
)
from turnwire.storage.sql.database import Database
from turnwire.storage.sql.pages import after_token, check_light, fitting, fitting_page, limit_of, listing, order_of
from turnwire.storage.sql.sessions import session
from turnwire.storage.sql.turns import turns_begun

MAX_CALLERS = 100
"""Maximum messages with a call of one id, because some APIs give the calls of each answer the same ids."""

MAX_CALLERS_BYTES = 64 * 2**20
"""Maximum size of all these messages, unless one alone is larger: an answer may have 32 MiB for its provider alone."""

_SHOWN = "session = ? AND on_path = 1 AND queued = 0"

_OF_SESSION = "+session = ? AND on_path = 1 AND queued = 0"
"""The same, where the planner should find messages by another condition."""

_ON_PATH = "messages.message_id = ? AND session = ? AND on_path = 1"

_NEXT_ONE = (
    f"messages.id = (SELECT id FROM messages WHERE {_SHOWN}"
    f" AND place > (SELECT place FROM messages WHERE {_ON_PATH} AND queued = 0) ORDER BY place LIMIT 1)"
)

_CALLING = (
    "SELECT calls.message FROM tool_calls AS calls CROSS JOIN messages AS made"
    " WHERE made.id = calls.message AND calls.tool_call_id {} AND made.session = ?"
)
"""The rows of messages of a session that make certain calls. CROSS JOIN keeps SQLite from scanning all messages of the
session; calls of other sessions are left out before anything is counted."""


def message(db: Database, tenant: str, session_id: str, message_id: str, *, max_bytes: int | None = None) -> Message:
    """Returns one message; see `TenantStore.message`. Raises HeavyRead: it has more bytes."""
    row = session_row(db, tenant, session_id)
    if max_bytes is not None and number(db, "SELECT stored_bytes FROM sessions WHERE id = ?", (row,)) > max_bytes:
        sized = f"SELECT {total(MESSAGE_BYTES)} FROM messages WHERE message_id = ? AND session = ?"
        check_light(number(db, sized, (message_id, row)), max_bytes)
    found = read_messages(db, "messages.message_id = ? AND session = ?", (message_id, row), "place")
    if not found:
        raise MessageNotFound(message_id)
    return with_alternatives(db, row, found)[0]


def messages(db: Database, tenant: str, session_id: str, page: Page, *, max_bytes: int | None = None) -> MessagePage:
    """Returns a page of messages; see `TenantStore.messages`. Raises HeavyRead: they have more bytes."""
    where, parameters = after_token(session_id, page)
    query = (
        f"SELECT id, queued, place, {PARTS_BYTES} FROM messages"
        f" WHERE session = ? AND on_path = 1 {where} ORDER BY {order_of(page)} LIMIT ?"
    )
    with db.snapshot():
        row = session_row(db, tenant, session_id)
        head = number(db, "SELECT head_sequence FROM sessions WHERE id = ?", (row,))
        sized = db.each(query, (row, *parameters, limit_of(page)))
        rows, more = fitting_page(sized, itemgetter(3), page)
        check_light(sum(row[3] for row in rows), max_bytes)
        ids = db.dialect.keys([row[0] for row in rows])
        found = read_messages(db, f"messages.id {db.dialect.among}", (ids,), order_of(page), columns=WITH_PARTS)
        found = with_alternatives(db, row, found)
    token = encode_token(listing(session_id, page), rows[-1][1], rows[-1][2]) if more else ""
    return MessagePage(found, token, head)


def history(db: Database, tenant: str, session_id: str) -> tuple[Message, ...]:
    """Returns the conversation; see `TenantStore.history`."""
    with db.snapshot():
        return _history(db, session_row(db, tenant, session_id))


def _history(db: Database, row: int) -> tuple[Message, ...]:
    check_conversation(number(db, f"SELECT {total(MESSAGE_BYTES)} FROM messages WHERE {_SHOWN}", (row,)))
    found, memory_bytes = list[Message](), 0  # which may be four times as large as what is stored
    with closing(each_message(db, _SHOWN, (row,), "place")) as shown:
        for one in shown:
            found.append(one)
            memory_bytes += message_bytes(one)
            check_conversation(memory_bytes)
    return tuple(found)


def history_bytes(db: Database, tenant: str, session_id: str) -> int:
    """Returns the approximate memory of a conversation; see `TenantStore.history_bytes`."""
    query = f"SELECT count(*) * {BARE_BYTES} + {total(MESSAGE_BYTES)} FROM messages WHERE {_SHOWN}"
    return number(db, query, (session_row(db, tenant, session_id),))


def conversation(db: Database, tenant: str, session_id: str) -> Conversation:
    """Returns a session with its complete conversation; see `TenantStore.conversation`."""
    with db.snapshot():
        row = session_row(db, tenant, session_id)
        turns = db.rows(f"SELECT {TURN_HEADER} FROM turns WHERE {turns_begun(db.dialect)} ORDER BY id", (row,))
        return Conversation(session(db, tenant, session_id), _history(db, row), tuple(turn_of(*one) for one in turns))


def turn_messages(db: Database, turn_id: str) -> tuple[Message, ...]:
    """Returns the messages of a turn; see `Store.turn_messages`."""
    of_turn = "messages.turn_id = ? AND messages.turn_id <> ''"
    found = read_messages(db, of_turn, (turn_id,), "queued, place", columns=HEADER)
    if not found:
        return ()
    newest = (
        f"messages.id = (SELECT id FROM messages WHERE {of_turn} AND {db.dialect.field('body', 'type')} = ?"
        " AND (length(parts) > 1 OR EXISTS (SELECT 1 FROM drafts WHERE message = messages.id))"
        " ORDER BY place DESC LIMIT 1)"
    )
    whole = {one.message_id: one for one in read_messages(db, newest, (turn_id, MessageType.ASSISTANT), "place")}
    found = tuple(whole.get(message.message_id, message) for message in found)
    row = number(db, "SELECT session FROM messages WHERE message_id = ?", (found[0].message_id,))
    return with_alternatives(db, row, found)


def message_of_call(
    db: Database, tenant: str, session_id: str, part_id: str, *, max_bytes: int | None = None
) -> Message:
    """Returns the message of a tool call; see `TenantStore.message_of_call`. Raises HeavyRead: it has more bytes."""
    row = session_row(db, tenant, session_id)
    measured = f"SELECT {total(MESSAGE_BYTES)} FROM messages WHERE id IN ({_CALLING.format('= ?')})"
    check_light(number(db, measured, (part_id, row)), max_bytes)
    calling = f"messages.id IN ({_CALLING.format('= ?')}) AND taken_back = {NOT_TAKEN_BACK}"
    found = read_messages(db, calling, (part_id, row), "place")
    if not found:
        raise ToolCallNotFound(part_id)
    return found[0]


def callers(db: Database, tenant: str, session_id: str, message_ids: Collection[str]) -> tuple[Message, ...]:
    """Returns messages that make calls; see `TenantStore.callers`."""
    where = f"message_id {db.dialect.among} AND {_OF_SESSION}"
    return read_messages(db, where, (db.dialect.keys(message_ids), session_row(db, tenant, session_id)), "place")


def caller_sizes(
    db: Database, tenant: str, session_id: str, part_ids: frozenset[str], call_ids: frozenset[str]
) -> dict[str, int]:
    """Returns the messages that make some calls, and their bytes; see `TenantStore.caller_sizes`.

    Reads other messages no further than their calls.
    """
    among, keys = db.dialect.among, db.dialect.keys
    by_part = f"{_CALLING.format(among)} LIMIT {MAX_CALLERS}"
    by_call = (
        f"SELECT id FROM messages WHERE {_SHOWN} AND EXISTS (SELECT 1 FROM tool_calls"
        f" WHERE message = messages.id AND call_id {among}) ORDER BY place DESC LIMIT {MAX_CALLERS}"
    )
    sized = (
        f"SELECT message_id, {MESSAGE_BYTES} FROM messages WHERE messages.id {among} AND {_OF_SESSION}"
        f" ORDER BY place DESC LIMIT {MAX_CALLERS}"
    )
    row = session_row(db, tenant, session_id)
    found = [id for (id,) in db.rows(by_part, (keys(part_ids), row))] if part_ids else []
    if call_ids:
        found += [id for (id,) in db.rows(by_call, (row, keys(call_ids)))]
    with db.snapshot():
        return dict(fitting(db.each(sized, (keys(found), row)), itemgetter(1), MAX_CALLERS_BYTES)[0])


def question_bytes(db: Database, tenant: str, session_id: str, message_id: str) -> int:
    """Returns the bytes that are read to answer a message; see `TenantStore.question_bytes`."""
    row = session_row(db, tenant, session_id)
    answered = f"SELECT {db.dialect.field('body', 'parent_id')} FROM messages WHERE message_id = ? AND session = ?"
    wanted = f"(message_id IN (?, ({answered})) AND +session = ?) OR {_NEXT_ONE}"
    values = (message_id, message_id, row, row, row, message_id, row)
    return number(db, f"SELECT {total(MESSAGE_BYTES)} FROM messages WHERE {wanted}", values)


def question(
    db: Database, tenant: str, session_id: str, message_id: str, *, max_bytes: int | None = None
) -> StoredQuestion:
    """Returns a message that may be answered; see `TenantStore.question`. Raises HeavyRead: it has more bytes."""
    check_light(question_bytes(db, tenant, session_id, message_id), max_bytes)
    with db.snapshot():
        row = session_row(db, tenant, session_id)
        found = read_messages(db, _ON_PATH, (message_id, row), "place")
        if not found:
            raise MessageNotFound(message_id)
        behind = read_messages(db, _NEXT_ONE, (row, message_id, row), "place")
        head = number(db, "SELECT head_sequence FROM sessions WHERE id = ?", (row,))
        return StoredQuestion(found[0], next(iter(behind), None), _has_turn(db, row, found[0]), head)


def _has_turn(db: Database, session: int, message: Message) -> bool:
    """Returns whether the turn that a message has or joined has not ended, or has left an answer that is not hidden.

    Only turns of its session count, because an archive may name another session's.
    """
    field = db.dialect.field
    joined = (
        f"SELECT coalesce({field('body', 'merged_into_turn_id')}, turn_id) FROM turns WHERE turn_id = ? AND session = ?"
    )
    (turn_id,) = db.row(joined, (message.turn_id, session)) or (message.turn_id,)
    turn = db.row("SELECT ended FROM turns WHERE turn_id = ? AND session = ?", (turn_id, session))
    answer = (
        "SELECT 1 FROM messages WHERE turn_id = ? AND turn_id <> '' AND session = ? AND on_path = 1"
        f" AND {field('body', 'type')} = ? AND place > (SELECT place FROM messages WHERE message_id = ?) LIMIT 1"
    )
    answered = db.row(answer, (turn_id, session, MessageType.ASSISTANT, message.message_id)) is not None
    return answered or (turn is not None and not turn[0])
