"""A database with everything that can be stored, and what can go wrong with it, each as SQL."""

import contextlib
import hashlib
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.support.fakes.domain_values import (
    NOW,
    added,
    adding,
    creating,
    make_answer,
    make_end,
    make_file,
    make_message,
    make_part,
    make_permission,
    make_question,
    make_turn,
    open_part,
    removing,
)
from tests.support.oracles.totals import count_totals
from turnwire.api.wire.codec import ProtoCodec
from turnwire.domain.conversation.events import PermissionAsked, QueueChanged, TurnStarted
from turnwire.domain.conversation.messages import File, MessageStatus, Text, ToolStatus, ToolUse
from turnwire.domain.conversation.permissions import PermissionAnswer, PermissionChoice
from turnwire.domain.conversation.questions import QuestionAction, QuestionAnswer, QuestionHold
from turnwire.domain.conversation.turns import BusyPolicy, QueueEntry, TurnStatus
from turnwire.domain.principal import BUILT_IN
from turnwire.ports.commit import (
    Commit,
    Growth,
    NewEvent,
    PutFile,
    PutMessage,
    PutPermission,
    PutQuestion,
    PutTurn,
    RecordRequest,
)
from turnwire.ports.moving.uploads import Chunk, Upload, UploadLimits
from turnwire.storage.accounts import Delta
from turnwire.storage.sqlite.schema import migrate
from turnwire.storage.sqlite.searching.upkeep import adopt_words
from turnwire.storage.sqlite.uploads import changes as uploads
from turnwire.storage.sqlite.uploads.blocks import BLOCK_BYTES
from turnwire.storage.sqlite.writing.changes import CommitWriter
from turnwire.storage.sqlite.writing.messages import WHOLE_TEXT_BYTES

CODEC = ProtoCodec()
PLOT, LOG = make_file(b"a plot", "plot.png", "image/png"), make_file(b"all of the log")
NOTES = make_file(b"notes", "notes.txt")

_CALL = ToolUse(
    name="draw", call_id="c", input_json="{}", status=ToolStatus.SUCCESS, output="drawn", files=(PLOT,), full_output=LOG
)
_ENDED = make_end("trn_1").turn
_QUEUED_TURN = make_turn("trn_q", status=TurnStatus.QUEUED, user_message_id="msg_q")
_ANSWERED = make_permission("per_0", message_id="msg_2", answer=PermissionAnswer(PermissionChoice.ONCE))
_OPEN = make_permission("per_1", turn_id="trn_2", message_id="msg_4")

_REPLIED = make_question("que_0", message_id="msg_2", answer=QuestionAnswer(QuestionAction.ACCEPT))
_ASKED = make_question("que_1", turn_id="trn_2", message_id="msg_4")
_MORE = "x" * WHOLE_TEXT_BYTES
_HOLD = QuestionHold(key="file", state='"abc"')


def _stored(*files: tuple[File, bytes]) -> tuple[PutFile, ...]:
    return tuple(PutFile(file.sha256, content) for file, content in files)


COMMITS = (
    creating("ses_1"),
    adding(
        make_message("msg_1", "draw it", NOTES),
        NOW,
        _stored((NOTES, b"notes")),
        PutTurn(make_turn("trn_1", user_message_id="msg_1")),
        RecordRequest(BUILT_IN, "req_1", "digest", '{"message_id": "msg_1"}'),
    ),
    Commit(session_id="ses_1", at=NOW, events=(NewEvent(TurnStarted(make_turn("trn_1", user_message_id="msg_1"))),)),
    adding(
        make_answer("msg_2", "I draw.", make_part(1, _CALL)), NOW, _stored((PLOT, b"a plot"), (LOG, b"all of the log"))
    ),
    Commit(
        session_id="ses_1",
        at=NOW,
        changes=(PutPermission(_ANSWERED), PutQuestion(_REPLIED), PutTurn(_ENDED)),
        events=(NewEvent(make_end("trn_1"), "trn_1"),),
    ),
    adding(make_message("msg_3", "again"), NOW, (), PutTurn(make_turn("trn_2", user_message_id="msg_3"))),
    Commit(
        session_id="ses_1",
        at=NOW,
        changes=(
            PutMessage.whole(
                make_answer("msg_4", open_part(0, Text("half")), turn_id="trn_2", status=MessageStatus.STREAMING)
            ),
            PutPermission(_OPEN),
            PutQuestion(_ASKED, _HOLD),
        ),
        events=(
            added(make_answer("msg_4", open_part(0, Text("half")), turn_id="trn_2", status=MessageStatus.STREAMING)),
            NewEvent(PermissionAsked(_OPEN), "trn_2"),
        ),
    ),
    Commit(
        session_id="ses_1",
        at=NOW,
        changes=(
            PutMessage(
                make_answer("msg_4", open_part(0, Text(_MORE)), turn_id="trn_2", status=MessageStatus.STREAMING),
                (0,),
                growth=(Growth(0, 4),),
            ),
        ),
    ),
    Commit(
        session_id="ses_1",
        at=NOW,
        changes=(
            PutMessage.whole(make_message("msg_q", "later", status=MessageStatus.QUEUED, turn_id="trn_q")),
            PutTurn(_QUEUED_TURN),
        ),
        events=(
            added(make_message("msg_q", "later", status=MessageStatus.QUEUED, turn_id="trn_q")),
            NewEvent(QueueChanged((QueueEntry("msg_q", "trn_q", BusyPolicy.QUEUE),))),
        ),
    ),
    creating("ses_2"),
    *(adding(make_message(f"msg_2{n}", f"number {n}", session_id="ses_2")) for n in range(5)),
    creating("ses_gone"),
    removing("ses_gone"),
)
"""Two sessions, the first in the middle of a turn, and one that was deleted."""


UPLOADED = b"0123456789abcdef" * (BLOCK_BYTES // 16) + b"and more"
"""More than one block."""


def _fill_uploads(db: sqlite3.Connection) -> None:
    """Adds an upload that is complete, one that grows, and one that is being removed."""
    deltas: list[Delta] = []
    for upload_id in ("upl_done", "upl_open", "upl_gone"):
        new = Upload(upload_id=upload_id, tenant="default", subject="", created_at=NOW, expires_at=NOW)
        uploads.create(db, deltas, new, UploadLimits(max_uploads=9, max_removed_bytes=0), None)
        chunk = Chunk(offset=0, data=UPLOADED, is_last=upload_id == "upl_done")
        uploads.write(db, deltas, tenant="default", upload_id=upload_id, chunk=chunk, expires_at=NOW)
    uploads.complete(db, deltas, "default", "upl_done", hashlib.sha256(UPLOADED).hexdigest())
    uploads.remove(db, deltas, "default", "upl_gone")


def fill(db: sqlite3.Connection) -> None:
    """Makes an empty database one without a problem. The second session has dropped its first two events."""
    migrate(db)
    adopt_words(db)
    db.execute("PRAGMA foreign_keys=ON")
    writer = CommitWriter(CODEC, 10_000)
    writer.next_position = 1
    for commit in COMMITS:
        writer.apply(db, commit)
    writer.finish(db)
    _fill_uploads(db)
    db.execute("UPDATE sessions SET pruned_through = 2, pruned_position = 12 WHERE session_id = 'ses_2'")
    db.execute("DELETE FROM events WHERE session_id = 'ses_2' AND sequence <= 2")
    count_totals(db)


def make_database(path: Path, *damage: str) -> Path:
    """Writes such a database, damaged by statements, to a file in WAL mode. Returns its path."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        fill(db)
        db.execute("PRAGMA foreign_keys=OFF")
        db.execute("PRAGMA writable_schema=ON")
        for statement in damage:
            db.execute(statement)
        if not any("tenant_totals" in statement for statement in damage):
            with contextlib.suppress(sqlite3.Error):  # what is damaged may be what is counted
                count_totals(db)
    return path


@dataclass(frozen=True)
class Damage:
    """One thing that can be wrong."""

    finding: str
    sql: tuple[str, ...]
    count: int = 1
    is_repaired: bool = True
    also: frozenset[str] = frozenset()
    """Other findings that follow from it."""


def _one(finding: str, *sql: str, **fields: object) -> Damage:
    return Damage(finding, sql, **fields)  # type: ignore[arg-type]


def _never(finding: str, *sql: str) -> Damage:
    return Damage(finding, sql, is_repaired=False)


def _body(table: str, key: str, value: str, thing: str) -> str:
    """Returns what changes one value of a thing's body."""
    return f"UPDATE {table} SET body = json_set(body, '$.{key}', '{value}') WHERE {table[:-1]}_id = '{thing}'"


def _turn(key: str, value: str, turn_id: str) -> tuple[str, str]:
    """Returns what changes one value of a turn, and the count of what is stored with it: no trigger does that."""
    new = f"json_set(body, '$.{key}', '{value}')"
    more = f"length(CAST({new} AS BLOB)) - length(CAST(body AS BLOB))"
    turn = f"FROM turns WHERE turn_id = '{turn_id}'"
    count = (
        f"UPDATE sessions SET stored_bytes = stored_bytes + (SELECT {more} {turn}) WHERE id = (SELECT session {turn})"
    )
    return count, _body("turns", key, value, turn_id)


_OF = "WHERE message = (SELECT id FROM messages WHERE message_id ="

_LAST_BLOCK = "WHERE number = 1 AND upload = (SELECT id FROM uploads WHERE upload_id ="

DAMAGES = (
    _one("schema.index", "DROP INDEX turns_unfinished"),
    _one("schema.index", "DROP TRIGGER part_added"),
    _never("schema.table", "ALTER TABLE timelines ADD COLUMN theirs TEXT"),
    _one("references.owner", "INSERT INTO parts (message, part_index, body, shown) VALUES (999, 0, '{}', x'')"),
    _one(
        "references.owner",
        "DELETE FROM sessions WHERE session_id = 'ses_2'",
        count=6,
        also=frozenset({"events.session"}),
    ),
    _never("references.file", f"DELETE FROM files WHERE sha256 = '{NOTES.sha256}'"),
    _one("sessions.order", "UPDATE sessions SET title_key = 'x' WHERE session_id = 'ses_2'"),
    _one("sessions.order", "UPDATE sessions SET archived = 1 WHERE session_id = 'ses_2'"),
    _one(
        "sessions.order",
        "DELETE FROM session_facets WHERE session = (SELECT max(id) FROM sessions)",
    ),
    _one("tenants.totals", "UPDATE tenant_totals SET sessions = sessions + 1"),
    _never("sessions.body", "UPDATE sessions SET body = '{}' WHERE session_id = 'ses_2'"),
    _one("sessions.head", "UPDATE sessions SET head_sequence = 5 WHERE session_id = 'ses_2'"),
    _one("sessions.stored", "UPDATE sessions SET stored_bytes = 0 WHERE session_id = 'ses_2'"),
    _one("sessions.queue", "UPDATE sessions SET queue_revision = 7 WHERE session_id = 'ses_1'"),
    _never("turns.body", _body("turns", "turn_id", "trn_x", "trn_1")),
    _never("sessions.tenant", "UPDATE sessions SET body = json_set(body, '$.tenant', 'b') WHERE session_id = 'ses_2'"),
    _never("sessions.tenant", *_turn("tenant", "b", "trn_1")),
    _one("turns.ended", "UPDATE turns SET ended = 1 WHERE turn_id = 'trn_2'"),
    _never("turns.sequences", "UPDATE turns SET end_sequence = 99 WHERE turn_id = 'trn_1'"),
    _never("turns.message", *_turn("user_message_id", "no", "trn_q")),
    _never("turns.several", *_turn("status", "running", "trn_q")),
    _never("permissions.body", "UPDATE permissions SET body = '[]' WHERE permission_id = 'per_0'"),
    _one("permissions.tenant", "UPDATE permissions SET tenant = 'b' WHERE permission_id = 'per_1'"),
    _one("permissions.open", "UPDATE permissions SET open = 1 WHERE permission_id = 'per_0'"),
    _one("permissions.ended", _body("permissions", "turn_id", "trn_1", "per_1")),
    _never("questions.body", "UPDATE questions SET body = '[]' WHERE question_id = 'que_0'"),
    _one("questions.tenant", "UPDATE questions SET tenant = 'b' WHERE question_id = 'que_1'"),
    _one("questions.open", "UPDATE questions SET open = 1 WHERE question_id = 'que_0'"),
    _one("questions.ended", _body("questions", "turn_id", "trn_1", "que_1"), also=frozenset({"questions.hold"})),
    _one("questions.hold", "UPDATE questions SET hold = '{}' WHERE question_id = 'que_1'"),
    _one("questions.hold", "UPDATE questions SET hold = 'x' WHERE question_id = 'que_0'"),
    _never("messages.body", "UPDATE messages SET body = '7' WHERE message_id = 'msg_1'"),
    _one("messages.turn", "UPDATE messages SET turn_id = '' WHERE message_id = 'msg_2'"),
    _never(
        "messages.queued",
        "UPDATE messages SET queued = 1, place = 9, previous = '' WHERE message_id = 'msg_4'",
    ),
    _one("messages.previous", "UPDATE messages SET previous = 'msg_1' WHERE message_id = 'msg_3'"),
    _never("messages.hidden", "UPDATE messages SET hidden = 1 WHERE message_id = 'msg_4'"),
    _one(
        "messages.unfinished",
        "UPDATE messages SET turn_id = 'trn_1' WHERE message_id = 'msg_q'",
        _body("messages", "turn_id", "trn_1", "msg_q"),
        is_repaired=False,
        also=frozenset({"messages.display"}),
    ),
    _one("messages.display", "UPDATE messages SET display = x'0a00' WHERE message_id = 'msg_2'"),
    _one("messages.display", "UPDATE messages SET display = x'ff' WHERE session = 2", count=5),
    _never("parts.body", f"UPDATE parts SET body = '{{}}' {_OF} 'msg_2') AND part_index = 1"),
    _one(
        "parts.growth",
        "INSERT INTO part_growth (part, at, text) SELECT id, 0, x'78' FROM parts WHERE part_index = 0 AND grown = 0",
        count=9,
    ),
    _one("parts.growth", "UPDATE parts SET grown = grown + 1 WHERE grown > 0"),
    _one("references.owner", "INSERT INTO part_growth (part, at, text) VALUES (999, 0, x'78')"),
    _one(
        "parts.order",
        f"DELETE FROM parts {_OF} 'msg_2') AND part_index = 0",
        is_repaired=False,
        also=frozenset({"sessions.stored"}),
    ),
    _one("parts.columns", f"UPDATE parts SET tool_call_id = NULL {_OF} 'msg_2') AND part_index = 1"),
    _one("parts.columns", f"UPDATE parts SET file = NULL {_OF} 'msg_1')", also=frozenset({"files.unused"})),
    _one("parts.files", "DELETE FROM part_files", also=frozenset({"files.unused"})),
    _one(
        "parts.open",
        "INSERT INTO open_calls SELECT id, 1, 'default', 'draw', tool_call_id, 0 FROM parts"
        " WHERE tool_call_id IS NOT NULL",
    ),
    _one("search.index", "DELETE FROM search_entries WHERE id = (SELECT min(id) FROM search_entries)", count=2),
    _one("search.index", "UPDATE search_entries SET facets = '1.s9'", count=10),
    _one("search.index", "INSERT INTO search_entries VALUES (1, 999, 999, 0, 1, '1.s1', NULL)"),
    _one("search.index", "INSERT INTO search_index (search_index) VALUES ('delete-all')", count=10),
    _one("files.unused", "INSERT INTO files (tenant, sha256, content) VALUES ('default', '00', x'00')"),
    _never("files.bytes", f"UPDATE files SET content = x'00' WHERE sha256 = '{LOG.sha256}'"),
    _never("uploads.bytes", f"UPDATE upload_blocks SET bytes = zeroblob(8) {_LAST_BLOCK} 'upl_done')"),
    _never("uploads.received", f"DELETE FROM upload_blocks {_LAST_BLOCK} 'upl_done')"),
    _one("uploads.received", f"DELETE FROM upload_blocks {_LAST_BLOCK} 'upl_open')"),
    _one("uploads.received", f"UPDATE upload_blocks SET number = 2 {_LAST_BLOCK} 'upl_open')"),
    _one("uploads.received", "UPDATE uploads SET received_bytes = 7 WHERE upload_id = 'upl_open'"),
    _one(
        "events.frame",
        "UPDATE events SET frame = x'0aff' WHERE session_id = 'ses_1' AND sequence = 4",
        also=frozenset({"sessions.stored"}),
    ),
    _one("events.frame", "UPDATE events SET frame = x'' WHERE kind = 'SessionDeleted'"),
    _one("events.gap", "DELETE FROM events WHERE session_id = 'ses_1' AND sequence = 4"),
    _one("events.gap", "DELETE FROM events WHERE session_id = 'ses_1' AND sequence > 4"),
    _one("events.gap", "DELETE FROM events WHERE session_id = 'ses_2'"),
    _one("events.order", "UPDATE events SET position = 500 WHERE session_id = 'ses_2' AND sequence = 4", count=2),
    _one("events.kind", "UPDATE events SET kind = 'TurnEnded' WHERE session_id = 'ses_1' AND sequence = 1"),
    _one("events.tenant", "UPDATE events SET tenant = 'b' WHERE session_id = 'ses_2'", count=4),
    _one("events.left", "UPDATE sessions SET pruned_through = 3 WHERE session_id = 'ses_2'"),
    _one(
        "events.session",
        "INSERT INTO events SELECT 900, 'ses_no', 1, kind, frame, tenant FROM events WHERE position = 1",
    ),
)
"""What SQLite itself finds (`file.damaged`, `file.index`) is not made by a statement."""


def damage_index(path: Path) -> None:
    """Makes an index disagree with its table: the schema names another one's pages."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema=ON")
        sql = "CREATE INDEX messages_by_turn ON messages (turn_id) WHERE turn_id <> '' AND turn_id <> 'trn_1'"
        update = "UPDATE sqlite_master SET sql = ? WHERE name = 'messages_by_turn'"
        (right,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'messages_by_turn'").fetchone()
        db.execute(update, (sql,))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:  # reads the schema anew
        db.execute("REINDEX messages_by_turn")
        db.execute("PRAGMA writable_schema=ON")
        db.execute(update, (right,))


def damage_pages(path: Path) -> None:
    """Overwrites the first page of the messages in a closed file."""
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = b"\x5a" * size
    path.write_bytes(content)
