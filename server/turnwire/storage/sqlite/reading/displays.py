"""Display forms, joined without parsing them."""

import sqlite3

from turnwire.domain.pages import MAX_PAGE_BYTES, encode_token
from turnwire.ports.pages import DisplayPage, Page
from turnwire.storage.sqlite.part_rows import DISPLAY, DISPLAY_BYTES
from turnwire.storage.sqlite.reading.fitting import check_light, fitting
from turnwire.storage.sqlite.reading.pages import after_token, cut, limit_of, listing, order_of
from turnwire.storage.sqlite.reading.rows import session_row


def display(
    db: sqlite3.Connection,
    tenant: str,
    session_id: str,
    page: Page,
    *,
    max_bytes: int | None = None,
) -> DisplayPage:
    """Returns joined display forms; see `Store.display`.

    Args:
        db: The reading connection.
        tenant: The owner of the session.
        session_id: The session.
        page: Which of them.
        max_bytes: Of a page to be read here; None for any.

    Raises:
        HeavyRead: the page has more bytes.
    """
    row = session_row(db, tenant, session_id)
    if page.size is None:
        return _whole_display(db, row, page)
    where, parameters = after_token(session_id, page)
    listed = f"FROM messages WHERE session = ? AND hidden = 0 {where} ORDER BY {order_of(page)} LIMIT ?"
    if max_bytes is not None:
        sizes = f"SELECT total(size) FROM (SELECT {DISPLAY_BYTES} AS size {listed})"
        check_light(db.execute(sizes, (row, *parameters, limit_of(page))).fetchone()[0], max_bytes)
    found = db.execute(
        f"SELECT {DISPLAY}, queued, place {listed}",
        (row, *parameters, limit_of(page)),
    )
    rows, left_out = fitting(found, lambda row: len(row[0]), MAX_PAGE_BYTES)
    rows, more = cut(rows, page, left_out)
    token = encode_token(listing(session_id, page), rows[-1][1], rows[-1][2]) if more else ""
    return DisplayPage(b"".join([r[0] for r in rows]), token)


def _whole_display(db: sqlite3.Connection, session_row: int, page: Page) -> DisplayPage:
    """Returns all display forms, or the newest that fit."""
    if page.max_bytes is None or (frames := _all_that_fits(db, session_row, page)) is None:
        return _newest_that_fit(db, session_row, page)
    return DisplayPage(frames, "")


def _all_that_fits(db: sqlite3.Connection, session_row: int, page: Page) -> bytes | None:
    """Returns all display forms; None when they do not fit. One statement measures and reads them."""
    found: tuple[bytes | None] = db.execute(
        f"SELECT CASE WHEN (SELECT total({DISPLAY_BYTES}) FROM messages WHERE session = ?1 AND hidden = 0) <= ?2 THEN"
        f" coalesce(({_joined(page)}), x'') END",
        (session_row, page.max_bytes),
    ).fetchone()
    return found[0]


def _newest_that_fit(db: sqlite3.Connection, session_row: int, page: Page) -> DisplayPage:
    db.execute("BEGIN")  # so that what was measured is what is read
    try:
        first = _first_that_fits(db, session_row, page.max_bytes)
        where = "" if first is None else "AND (queued, place) >= (?2, ?3)"
        (frames,) = db.execute(_joined(page, where), (session_row, *(first or ()))).fetchone()
    finally:
        db.execute("COMMIT")
    return DisplayPage(frames or b"", "", first is not None)


def _joined(page: Page, where: str = "") -> str:
    """Returns the query that joins display forms.

    Joining in SQLite takes half the time of fetching row by row: group_concat keeps the bytes of a BLOB unchanged and
    the order of its subquery.
    """
    return (
        "SELECT CAST(group_concat(shown, '') AS BLOB) FROM"
        f" (SELECT {DISPLAY} AS shown FROM messages"
        f" WHERE session = ?1 AND hidden = 0 {where} ORDER BY {order_of(page)})"
    )


def _first_that_fits(db: sqlite3.Connection, session_row: int, max_bytes: int | None) -> tuple[int, int] | None:
    """Returns the place of the oldest message whose display form fits with all newer ones; None when all fit."""
    if max_bytes is None:
        return None
    rows = db.execute(
        f"SELECT {DISPLAY_BYTES}, queued, place FROM messages"
        " WHERE session = ? AND hidden = 0 ORDER BY queued DESC, place DESC",
        (session_row,),
    )
    fit, left_out = fitting(rows, lambda row: row[0], max_bytes, refuses=True)
    return fit[-1][1:] if left_out else None
