"""Display forms, joined without parsing them."""

import sqlite3

from turnwire.domain.pages import encode_token
from turnwire.ports.store import DisplayPage, Page
from turnwire.storage.sqlite.reading.fitting import MAX_PAGE_BYTES, fitting
from turnwire.storage.sqlite.reading.pages import after_token, cut, limit_of, listing, order_of
from turnwire.storage.sqlite.reading.rows import session_row


def display(db: sqlite3.Connection, session_id: str, page: Page) -> DisplayPage:
    """Returns joined display forms; see `Store.display`."""
    row = session_row(db, session_id)
    if page.size is None:
        return _whole_display(db, row, page)
    where, parameters = after_token(session_id, page)
    found = db.execute(
        f"SELECT display, queued, place FROM messages WHERE session = ? {where} ORDER BY {order_of(page)} LIMIT ?",
        (row, *parameters, limit_of(page)),
    )
    rows, left_out = fitting(found, lambda row: len(row[0]), MAX_PAGE_BYTES)
    rows, more = cut(rows, page, left_out)
    token = encode_token(listing(session_id, page), rows[-1][1], rows[-1][2]) if more else ""
    return DisplayPage(b"".join([r[0] for r in rows]), token)


def _whole_display(db: sqlite3.Connection, session_row: int, page: Page) -> DisplayPage:
    """Returns all display forms, or the newest that fit."""
    db.execute("BEGIN")  # so that what was measured is what is read
    try:
        first = _first_that_fits(db, session_row, page.max_bytes)
        where = "" if first is None else "AND (queued, place) >= (?, ?)"
        # Joining in SQLite takes half the time of fetching row by row: group_concat keeps the bytes of a BLOB
        # unchanged and the order of its subquery.
        (frames,) = db.execute(
            "SELECT CAST(group_concat(display, '') AS BLOB) FROM"
            f" (SELECT display FROM messages WHERE session = ? {where} ORDER BY {order_of(page)})",
            (session_row, *(first or ())),
        ).fetchone()
    finally:
        db.execute("COMMIT")
    return DisplayPage(frames or b"", "", first is not None)


def _first_that_fits(db: sqlite3.Connection, session_row: int, max_bytes: int | None) -> tuple[int, int] | None:
    """Returns the place of the oldest message whose display form fits with all newer ones; None when all fit.

    SQLite knows the length of a BLOB without reading it.
    """
    if max_bytes is None:
        return None
    (total,) = db.execute("SELECT sum(length(display)) FROM messages WHERE session = ?", (session_row,)).fetchone()
    if (total or 0) <= max_bytes:
        return None
    rows = db.execute(
        "SELECT length(display), queued, place FROM messages WHERE session = ? ORDER BY queued DESC, place DESC",
        (session_row,),
    )
    (*_, (_, queued, place)), _ = fitting(rows, lambda row: row[0], max_bytes, refuses=True)
    return queued, place
