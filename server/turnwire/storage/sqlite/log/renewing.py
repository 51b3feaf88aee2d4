"""Rows of messages that an older version of the codec has made, made anew. Runs inside a transaction."""

import sqlite3

import msgspec

from turnwire.ports.codec import Codec
from turnwire.storage.sqlite.part_rows import part_row
from turnwire.storage.sqlite.reading.displays import outdated
from turnwire.storage.sqlite.reading.rows import read_messages


def renew_message(db: sqlite3.Connection, codec: Codec, message_id: str) -> None:
    """Makes a message that is stored, and of an older version, one of today. One that cannot be read is left."""
    where = f"message_id = ? AND {outdated(codec.version)}"
    row = db.execute(f"SELECT id FROM messages WHERE {where}", (message_id,)).fetchone()
    if row is not None:
        renew_row(db, codec, row[0])


def renew_row(db: sqlite3.Connection, codec: Codec, row: int) -> None:
    """Makes the display form of a message anew, and stores the texts of its parts beside their bodies."""
    try:
        [message] = read_messages(db, "messages.id = ?", (row,), "place")
    except (msgspec.DecodeError, UnicodeDecodeError):  # `turnwire doctor` finds it
        return
    form = codec.display_form(message)
    db.execute(
        "UPDATE messages SET display = ?, display_bytes = ?, display_version = ? WHERE id = ?",
        (form.head, form.size_bytes, codec.version, row),
    )
    db.executemany(
        "UPDATE parts SET body = ?, text = ?, output = ?, shown = ?, shown_between = ?"
        " WHERE message = ? AND part_index = ?",
        [(*part_row(part, shown), row, part.index) for part, shown in zip(message.parts, form.parts, strict=True)],
    )
