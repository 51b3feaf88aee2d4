"""The bytes of an upload, in blocks of one size: however small the pieces are in which they come.

So a place is found by its number, and comparing or removing some bytes costs what these bytes are, not how many writes
there were. Everything here runs on the thread of a connection; what writes, inside the writer's transaction.
"""

import sqlite3

BLOCK_BYTES = 256 * 1024
"""Of each block but the last one. An append writes the last block again, so that of a single byte costs this much at
most; a piece of a megabyte at a multiple of this size writes nothing twice."""


def read(db: sqlite3.Connection, upload: int, start: int, end: int) -> bytes:
    """Returns the stored bytes between two offsets, the second exclusive; fewer at the end of what is stored."""
    if end <= start:
        return b""
    first = start // BLOCK_BYTES
    rows = db.execute(
        "SELECT bytes FROM upload_blocks WHERE upload = ? AND number BETWEEN ? AND ? ORDER BY number",
        (upload, first, (end - 1) // BLOCK_BYTES),
    )
    found = b"".join(block for (block,) in rows)
    return found[start - first * BLOCK_BYTES : end - first * BLOCK_BYTES]


def append(db: sqlite3.Connection, upload: int, received: int, data: memoryview) -> None:
    """Stores bytes behind those that are stored. `received` is how many these are."""
    number, filled = divmod(received, BLOCK_BYTES)
    if filled and data:
        (last,) = db.execute(
            "SELECT bytes FROM upload_blocks WHERE upload = ? AND number = ?", (upload, number)
        ).fetchone()
        head = data[: BLOCK_BYTES - filled]
        db.execute("UPDATE upload_blocks SET bytes = ? WHERE upload = ? AND number = ?", (last + head, upload, number))
        data, number = data[len(head) :], number + 1
    blocks = (data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES))
    db.executemany(
        "INSERT INTO upload_blocks (upload, number, bytes) VALUES (?, ?, ?)",
        ((upload, place, block) for place, block in enumerate(blocks, number)),
    )


def remove_all(db: sqlite3.Connection, upload: int) -> None:
    """Removes the blocks of an upload in one step: for one that is small, or whose bytes are written again anyway."""
    db.execute("DELETE FROM upload_blocks WHERE upload = ?", (upload,))


def remove_some(db: sqlite3.Connection, upload: int, blocks: int) -> int:
    """Removes some blocks of an upload. Returns how many it removed; 0 when none is left."""
    some = "SELECT id FROM upload_blocks WHERE upload = ? ORDER BY number DESC LIMIT ?"
    return db.execute(f"DELETE FROM upload_blocks WHERE id IN ({some})", (upload, blocks)).rowcount
