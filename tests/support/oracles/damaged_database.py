"""A whole database, and what can go wrong with it, each as SQL."""

import itertools
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.support.fakes.domain_values import (
    NOW,
    adding,
    creating,
    make_answer,
    make_end,
    make_file,
    make_message,
    make_turn,
    removing,
)
from turnwire.api.wire.codec import ProtoCodec
from turnwire.ports.commit import Commit, NewEvent, PutFile, PutTurn
from turnwire.ports.moving.uploads import Chunk, Upload, UploadLimits
from turnwire.storage.accounts import Ledger
from turnwire.storage.sql import uploads
from turnwire.storage.sql.accounts import count_anew
from turnwire.storage.sql.engine import SqlEngine
from turnwire.storage.sql.words import adopt_words
from turnwire.storage.sqlite.database import SqliteDatabase
from turnwire.storage.sqlite.schema import migrate
from turnwire.storage.units import CommitWriter, Transaction

NOTES = make_file(b"notes", "notes.txt")
_ENDED = make_end("trn_1")

COMMITS = (
    creating("ses_1"),
    adding(
        make_message("msg_1", "draw it", NOTES),
        NOW,
        (PutFile(NOTES.sha256, b"notes"),),
        PutTurn(make_turn("trn_1", user_message_id="msg_1")),
    ),
    adding(make_answer("msg_2", "I draw.")),
    Commit(session_id="ses_1", at=NOW, changes=(PutTurn(_ENDED.turn),), events=(NewEvent(_ENDED, "trn_1"),)),
    creating("ses_2"),
    *(adding(make_message(f"msg_2{n}", f"number {n}", session_id="ses_2")) for n in range(5)),
    creating("ses_gone"),
    removing("ses_gone"),
)
"""Two sessions, and one that was deleted."""


def _add_uploads(db: sqlite3.Connection) -> None:
    """Adds an upload that grows, and one that is being removed."""
    ledger = Ledger()
    for upload_id in ("upl_open", "upl_gone"):
        new = Upload(upload_id=upload_id, tenant="default", subject="", created_at=NOW, expires_at=NOW)
        uploads.create(db, ledger, new, UploadLimits(max_uploads=9, max_removed_bytes=0), None)
        chunk = Chunk(offset=0, data=b"begun", is_last=False)
        uploads.write(db, ledger, tenant="default", upload_id=upload_id, chunk=chunk, expires_at=NOW)
    uploads.remove(db, ledger, "default", "upl_gone")


def fill(db: sqlite3.Connection) -> None:
    """Makes an empty database one without a problem. The second session has dropped its first two events."""
    migrate(db)
    adopt_words(db)
    db.execute("PRAGMA foreign_keys=ON")
    writer = CommitWriter(ProtoCodec(), 10_000)
    transaction = Transaction(SqlEngine(db), itertools.count(1).__next__, 1)
    for commit in COMMITS:
        writer.apply(transaction, commit)
        transaction.keep()
    transaction.finish()
    _add_uploads(db)
    db.execute("UPDATE sessions SET pruned_through = 2, pruned_position = 12 WHERE session_id = 'ses_2'")
    db.execute("DELETE FROM events WHERE session_id = 'ses_2' AND sequence <= 2")
    count_anew(db)


def make_database(path: Path, *damage: str) -> Path:
    """Writes such a database, damaged by statements, to a file in WAL mode. Returns its path."""
    with closing(sqlite3.connect(path, isolation_level=None, factory=SqliteDatabase)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        fill(db)
        db.execute("PRAGMA foreign_keys=OFF")
        for statement in damage:
            db.execute(statement)
    return path


@dataclass(frozen=True)
class Damage:
    """One thing that can be wrong."""

    finding: str
    sql: str
    is_repaired: bool = True
    also: frozenset[str] = frozenset()
    """Other findings that follow from it."""


DAMAGES = (
    Damage(
        "sessions.stored",
        "UPDATE sessions SET stored_bytes = 0 WHERE session_id = 'ses_2'",
        also=frozenset({"tenants.totals"}),
    ),
    Damage("tenants.totals", "UPDATE tenant_totals SET sessions = sessions + 1"),
    Damage("tenants.totals", "INSERT INTO tenant_totals VALUES ('nobody', 1, 1)"),
    Damage(
        "references",
        f"DELETE FROM files WHERE sha256 = '{NOTES.sha256}'",
        is_repaired=False,
        also=frozenset({"tenants.totals"}),
    ),
)
"""Damage by statements. SQLite's own findings (`file.damaged`, `file.index`) are made otherwise."""


def damage_index(path: Path) -> None:
    """Makes an index disagree with its table: the schema names another one's pages."""
    with closing(sqlite3.connect(path, isolation_level=None, factory=SqliteDatabase)) as db:
        db.execute("PRAGMA writable_schema=ON")
        sql = "CREATE INDEX messages_by_turn ON messages (turn_id) WHERE turn_id <> '' AND turn_id <> 'trn_1'"
        update = "UPDATE sqlite_master SET sql = ? WHERE name = 'messages_by_turn'"
        (right,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'messages_by_turn'").fetchone()
        db.execute(update, (sql,))
    with closing(sqlite3.connect(path, isolation_level=None, factory=SqliteDatabase)) as db:  # reads the schema anew
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
