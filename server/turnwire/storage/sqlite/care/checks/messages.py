"""Messages: the parts are the truth, and everything that is derived from them agrees with them."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from turnwire.domain.conversation.messages import File, Message, MessageStatus, Part, ToolUse
from turnwire.domain.principal import STAGING_MARK, is_staging
from turnwire.storage.sqlite.care.findings import Finding, Problem, Severity, Statement
from turnwire.storage.sqlite.care.inspection import Inspection
from turnwire.storage.sqlite.hiding.marks import NEVER_HIDDEN, OFF_PATH
from turnwire.storage.sqlite.part_rows import DISPLAY, PART_COLUMNS, part_of, part_row
from turnwire.storage.sqlite.writing.unit import microseconds

UNREADABLE_MESSAGE = Problem("messages.body", Severity.ERROR, "a message cannot be read, or is not of its place")
UNREADABLE_PART = Problem("parts.body", Severity.ERROR, "a part cannot be read, or is not of its place")
MISSING_PART = Problem("parts.order", Severity.ERROR, "a message lacks a part between others")
WRONG_GROWTH = Problem("parts.growth", Severity.ERROR, "how much the text of a part has grown is noted wrongly")
WRONG_DISPLAY = Problem(
    "messages.display", Severity.ERROR, "what clients are shown of a message is not what its parts say"
)
WRONG_TURN = Problem("messages.turn", Severity.ERROR, "the turn of a message is filed wrongly")
WRONG_QUEUED = Problem("messages.queued", Severity.ERROR, "the mark of a waiting message does not agree with it")
WRONG_PREVIOUS = Problem("messages.previous", Severity.ERROR, "the message before a message is another one")
WRONG_HIDDEN = Problem("messages.hidden", Severity.ERROR, "the marks of a hidden message do not agree")
NEVER_ENDS = Problem("messages.unfinished", Severity.ERROR, "a message streams or waits, and its turn is not there")
WRONG_COLUMN = Problem(
    "parts.columns", Severity.ERROR, "the file of a part is not stored, or the file or the tool call is filed wrongly"
)
WRONG_FILES = Problem(
    "parts.files", Severity.ERROR, "a file of a tool call's result is not stored, or is filed wrongly"
)

WRONG_OPEN_CALL = Problem(
    "parts.open", Severity.ERROR, "a call that a client may run is not listed, or one that none may run is"
)

_message = msgspec.json.Decoder(Message).decode


class _Row(NamedTuple):
    """One part with its message; a message without parts has one row."""

    id: int
    message_id: str
    session_id: str
    tenant: str
    turn_id: str
    queued: int
    body: str
    previous: str
    display: bytes
    display_bytes: int
    unfinished_turn: int
    part: int | None
    part_index: int
    part_body: str
    text: bytes | None
    output: bytes | None
    shown: bytes | None
    shown_between: bytes | None
    grown: int
    growth: int
    """How many bytes of growth are there."""
    file: int | None
    tool_call_id: str | None
    is_open: int
    """Whether the part is listed, in the right place, as a call that a client may run."""
    is_listed: int


_ROWS = f"""
SELECT messages.id, message_id, session_id, sessions.tenant, messages.turn_id, queued, messages.body,
       previous, {DISPLAY}, display_bytes,
       EXISTS (SELECT 1 FROM turns WHERE turns.turn_id = messages.turn_id
               AND json_extract(turns.body, '$.status') <> 'ended'),
       parts.id, part_index, {PART_COLUMNS}, shown, shown_between, grown,
       (SELECT coalesce(sum(length(text)), 0) FROM part_growth WHERE part = parts.id), file, parts.tool_call_id,
       EXISTS (SELECT 1 FROM open_calls AS listed WHERE part = parts.id AND listed.session = messages.session
               AND listed.tenant = sessions.tenant AND listed.tool_call_id = parts.tool_call_id
               AND listed.tool = json_extract(parts.body, '$.content.name')),
       EXISTS (SELECT 1 FROM open_calls WHERE part = parts.id)
FROM messages JOIN sessions ON sessions.id = messages.session LEFT JOIN parts ON parts.message = messages.id
ORDER BY messages.id, part_index
"""


def check_messages(inspection: Inspection) -> Iterator[Finding]:
    """Reads each message with its parts and makes what is derived from them anew."""
    rows = (_Row(*row) for row in inspection.db.execute(_ROWS))
    for _, group in itertools.groupby(rows, key=lambda row: row.id):
        inspection.advance("messages", 1)
        of_message = list(group)
        if is_staging(of_message[0].tenant):  # filed under names of its future session
            continue
        yield from _check_message(inspection, of_message[0], of_message)


def check_order(inspection: Inspection) -> Iterator[Finding]:
    """Follows the chain of messages of each conversation.

    What came before a hidden message may be hidden too, have moved behind it since, or wait to be answered. What is off
    the path comes behind what it follows, unless that waits.
    """
    rows = inspection.db.execute(
        "SELECT messages.id, session, branched_at, queued, hidden, hidden_at, message_id, previous"
        " FROM messages JOIN sessions ON sessions.id = messages.session WHERE substr(tenant, 1, 1) <> ?"
        " ORDER BY session, queued, place",
        (STAGING_MARK,),  # those that are removed in steps have lost some
    )
    for (session, branched_at), group in itertools.groupby(rows, key=lambda row: row[1:3]):
        before, known, waiting = "", {""}, set[str]()
        not_yet_known = list[tuple[str, Finding, set[str]]]()
        for row, _, _, queued, hidden, hidden_at, message_id, previous in group:
            if hidden != (hidden_at % NEVER_HIDDEN > 0) or (hidden and queued):
                yield Finding(WRONG_HIDDEN, message_id)
            elif hidden_at == OFF_PATH and not branched_at:
                repair = Statement("UPDATE sessions SET branched_at = 1 WHERE id = ?", (session,))
                yield Finding(WRONG_HIDDEN, message_id, (repair,))
            right = "" if queued else before
            if (previous not in known) if hidden else previous != right:
                repair = Statement("UPDATE messages SET previous = ? WHERE id = ?", (right, row))
                is_off_path = hidden_at == OFF_PATH  # then nothing else says what it follows
                wrong = Finding(WRONG_PREVIOUS, message_id, () if is_off_path else (repair,))
                if hidden:
                    not_yet_known.append((previous, wrong, waiting if is_off_path else known))
                else:
                    yield wrong
            known.add(message_id)
            if queued:
                waiting.add(message_id)
            if not hidden and not queued:
                before = message_id
        yield from (wrong for previous, wrong, among in not_yet_known if previous not in among)


def _check_message(inspection: Inspection, row: _Row, rows: list[_Row]) -> Iterator[Finding]:
    header = _header(row)
    if header is None:
        yield Finding(UNREADABLE_MESSAGE, row.message_id)
        return
    if header.turn_id != row.turn_id:
        repair = Statement("UPDATE messages SET turn_id = ? WHERE id = ?", (header.turn_id, row.id))
        yield Finding(WRONG_TURN, row.message_id, (repair,))
    elif header.status in (MessageStatus.QUEUED, MessageStatus.STREAMING) and not row.unfinished_turn:
        yield Finding(NEVER_ENDS, row.message_id)
    if bool(row.queued) != (header.status is MessageStatus.QUEUED):
        yield Finding(WRONG_QUEUED, row.message_id)
    parts: list[Part] = []
    for place, found in enumerate(found for found in rows if found.part is not None):
        if found.grown != found.growth:
            yield Finding(WRONG_GROWTH, f"{row.message_id} {found.part_index}", _right_growth(found))
        part = _read_part(found)
        if part is None:
            yield Finding(UNREADABLE_PART, f"{row.message_id} {found.part_index}")
            return  # what is derived from the parts cannot be made
        if found.part_index != place:
            yield Finding(MISSING_PART, f"{row.message_id} {place}")
            return
        parts.append(part)
        yield from _check_part(inspection, found, part)
    yield from _check_display(inspection, row, rows, msgspec.structs.replace(header, parts=tuple(parts)))


def _right_growth(row: _Row) -> tuple[Statement, ...]:
    """Returns what makes the growth of a part agree: rows that no reader sees go, others count as they are."""
    if row.grown == 0:
        return (Statement("DELETE FROM part_growth WHERE part = ?", (row.part,)),)
    return (Statement("UPDATE parts SET grown = ? WHERE id = ?", (row.growth, row.part)),)


def _check_part(inspection: Inspection, row: _Row, part: Part) -> Iterator[Finding]:
    named = part.content.sha256 if isinstance(part.content, File) else None
    file = _file_row(inspection, row, named) if named else None
    call = part.part_id if isinstance(part.content, ToolUse) else None
    if named and file is None:
        if row.file is None or _exists(inspection, row.file):  # else it is among the broken references already
            yield Finding(WRONG_COLUMN, f"{row.message_id} {row.part_index}")
    elif (row.file, row.tool_call_id) != (file, call):
        repair = Statement("UPDATE parts SET file = ?, tool_call_id = ? WHERE id = ?", (file, call, row.part))
        yield Finding(WRONG_COLUMN, f"{row.message_id} {row.part_index}", (repair,))
    if isinstance(part.content, ToolUse):
        yield from _check_result_files(inspection, row, part.content)
    awaits_client = isinstance(part.content, ToolUse) and part.content.awaits_client
    if (row.is_open, row.is_listed) != (awaits_client, awaits_client):
        yield Finding(WRONG_OPEN_CALL, f"{row.message_id} {row.part_index}", _listing(row, part))


def _listing(row: _Row, part: Part) -> tuple[Statement, ...]:
    """Returns what lists a call, or what removes it from the list."""
    remove = Statement("DELETE FROM open_calls WHERE part = ?", (row.part,))
    if not isinstance(part.content, ToolUse) or not part.content.awaits_client or part.content.started_at is None:
        return (remove,)
    insert = (
        "INSERT INTO open_calls SELECT parts.id, messages.session, sessions.tenant, ?, ?, ? FROM parts"
        " JOIN messages ON messages.id = message JOIN sessions ON sessions.id = messages.session WHERE parts.id = ?"
    )
    values = (part.content.name, part.part_id, microseconds(part.content.started_at), row.part)
    return remove, Statement(insert, values)


def _check_result_files(inspection: Inspection, row: _Row, call: ToolUse) -> Iterator[Finding]:
    hashes = {file.sha256 for file in call.stored_files()}
    rows = {_file_row(inspection, row, sha256) for sha256 in hashes}
    named = rows - {None}
    filed = {file for (file,) in inspection.db.execute("SELECT file FROM part_files WHERE part = ?", (row.part,))}
    if filed == rows:
        return
    delete = "DELETE FROM part_files WHERE part = ? AND file = ?"
    insert = "INSERT OR IGNORE INTO part_files (part, file) VALUES (?, ?)"
    repair = [Statement(delete, (row.part, file)) for file in filed - named]
    repair += [Statement(insert, (row.part, file)) for file in named - filed]
    yield Finding(WRONG_FILES, f"{row.message_id} {row.part_index}", tuple(repair))


def _check_display(inspection: Inspection, row: _Row, rows: list[_Row], message: Message) -> Iterator[Finding]:
    made = inspection.codec.encode_display(message)
    is_same = row.display_bytes == len(row.display) and inspection.frames.same_display(row.display, made)
    if made != row.display and not is_same:
        yield Finding(WRONG_DISPLAY, row.message_id, _display_anew(inspection, row, rows, message))


def _display_anew(inspection: Inspection, row: _Row, rows: list[_Row], message: Message) -> tuple[Statement, ...]:
    """Returns what stores a display form again, with what the parts add to it."""
    form = inspection.codec.display_form(message)
    update = "UPDATE messages SET display = ?, display_bytes = ? WHERE id = ?"
    values = (form.head, form.size_bytes, row.id)
    part = "UPDATE parts SET body = ?, text = ?, output = ?, shown = ?, shown_between = ? WHERE id = ?"
    stored = (part_row(one, shown) for one, shown in zip(message.parts, form.parts, strict=True))
    ids = (found.part for found in rows if found.part is not None)
    return (Statement(update, values), *(Statement(part, (*one, id)) for one, id in zip(stored, ids, strict=True)))


def _header(row: _Row) -> Message | None:
    try:
        header = _message(row.body)
    except msgspec.DecodeError:
        return None
    if (header.message_id, header.session_id) != (row.message_id, row.session_id):
        return None
    return msgspec.structs.replace(header, previous_message_id=row.previous)


def _read_part(row: _Row) -> Part | None:
    try:
        part = part_of(row.part_body, row.text, row.output)
    except ValueError:
        return None
    return part if part.index == row.part_index else None


def _file_row(inspection: Inspection, row: _Row, sha256: str) -> int | None:
    """Returns the row of a file of the message's tenant; None when its bytes are not stored."""
    query = "SELECT id FROM files WHERE tenant = ? AND sha256 = ?"
    found = inspection.db.execute(query, (row.tenant, sha256)).fetchone()
    return int(found[0]) if found else None


def _exists(inspection: Inspection, file: int) -> bool:
    return inspection.db.execute("SELECT 1 FROM files WHERE id = ?", (file,)).fetchone() is not None
