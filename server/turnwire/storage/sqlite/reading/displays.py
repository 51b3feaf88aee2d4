"""Display forms, joined without parsing them."""

import sqlite3
from typing import NamedTuple

from turnwire.domain.pages import MAX_PAGE_BYTES, encode_token
from turnwire.ports.codec import Codec
from turnwire.ports.pages import DisplayPage, Page
from turnwire.storage.sqlite.part_rows import DISPLAY, DISPLAY_BYTES
from turnwire.storage.sqlite.reading.fitting import check_light, fitting
from turnwire.storage.sqlite.reading.pages import after_token, cut, limit_of, listing, order_of
from turnwire.storage.sqlite.reading.rows import read_messages, session_row


class _Shown(NamedTuple):
    """Display forms as SQL."""

    column: str
    size: str
    """Their lengths, which are known without joining them."""


def display(
    db: sqlite3.Connection,
    tenant: str,
    session_id: str,
    page: Page,
    renewing: Codec | None = None,
    *,
    max_bytes: int | None = None,
) -> DisplayPage:
    """Returns joined display forms; see `Store.display`.

    Args:
        db: The reading connection.
        tenant: The owner of the session.
        session_id: The session.
        page: Which of them.
        renewing: Makes anew, for this answer alone, what an older version of it has stored. None when all is current.
        max_bytes: Of a page to be read here; None for any.

    Raises:
        HeavyRead: the page has more bytes.
    """
    row = session_row(db, tenant, session_id)
    column = DISPLAY if renewing is None else _renewed(db, renewing)
    size = "display_bytes" if renewing is None else f"length({column})"
    if page.size is None:
        return _whole_display(db, row, page, _Shown(column, size))
    where, parameters = after_token(session_id, page)
    listed = f"FROM messages WHERE session = ? AND hidden = 0 {where} ORDER BY {order_of(page)} LIMIT ?"
    if max_bytes is not None:
        sizes = f"SELECT total(size) FROM (SELECT {DISPLAY_BYTES} AS size {listed})"
        check_light(db.execute(sizes, (row, *parameters, limit_of(page))).fetchone()[0], max_bytes)
    found = db.execute(
        f"SELECT {column}, queued, place {listed}",
        (row, *parameters, limit_of(page)),
    )
    rows, left_out = fitting(found, lambda row: len(row[0]), MAX_PAGE_BYTES)
    rows, more = cut(rows, page, left_out)
    token = encode_token(listing(session_id, page), rows[-1][1], rows[-1][2]) if more else ""
    return DisplayPage(b"".join([r[0] for r in rows]), token)


def outdated(version: int) -> str:
    """Returns the condition, as SQL, that a message's display form is older than a version."""
    return f"display_version < {version:d}"


def _renewed(db: sqlite3.Connection, codec: Codec) -> str:
    """Returns the column of display forms, as SQL, that makes outdated ones anew. For the next query alone."""
    frames: dict[int, bytes] = {}  # a whole conversation is measured before it is read

    def renewed(row: int) -> bytes:
        if row not in frames:
            [message] = read_messages(db, "messages.id = ?", (row,), "place")
            frames[row] = codec.encode_display(message)
        return frames[row]

    db.create_function("renewed", 1, renewed)
    return f"CASE WHEN {outdated(codec.version)} THEN renewed(id) ELSE {DISPLAY} END"


def _whole_display(db: sqlite3.Connection, session_row: int, page: Page, shown: _Shown) -> DisplayPage:
    """Returns all display forms, or the newest that fit."""
    if page.max_bytes is None or (frames := _all_that_fits(db, session_row, page, shown)) is None:
        return _newest_that_fit(db, session_row, page, shown)
    return DisplayPage(frames, "")


def _all_that_fits(db: sqlite3.Connection, session_row: int, page: Page, shown: _Shown) -> bytes | None:
    """Returns all display forms; None when they do not fit. One statement measures and reads them."""
    found: tuple[bytes | None] = db.execute(
        f"SELECT CASE WHEN (SELECT total({shown.size}) FROM messages WHERE session = ?1 AND hidden = 0) <= ?2 THEN"
        f" coalesce(({_joined(shown.column, page)}), x'') END",
        (session_row, page.max_bytes),
    ).fetchone()
    return found[0]


def _newest_that_fit(db: sqlite3.Connection, session_row: int, page: Page, shown: _Shown) -> DisplayPage:
    db.execute("BEGIN")  # so that what was measured is what is read
    try:
        first = _first_that_fits(db, session_row, page.max_bytes, shown.size)
        where = "" if first is None else "AND (queued, place) >= (?2, ?3)"
        (frames,) = db.execute(_joined(shown.column, page, where), (session_row, *(first or ()))).fetchone()
    finally:
        db.execute("COMMIT")
    return DisplayPage(frames or b"", "", first is not None)


def _joined(column: str, page: Page, where: str = "") -> str:
    """Returns the query that joins display forms.

    Joining in SQLite takes half the time of fetching row by row: group_concat keeps the bytes of a BLOB unchanged and
    the order of its subquery.
    """
    return (
        "SELECT CAST(group_concat(shown, '') AS BLOB) FROM"
        f" (SELECT {column} AS shown FROM messages WHERE session = ?1 AND hidden = 0 {where} ORDER BY {order_of(page)})"
    )


def _first_that_fits(
    db: sqlite3.Connection, session_row: int, max_bytes: int | None, size: str
) -> tuple[int, int] | None:
    """Returns the place of the oldest message whose display form fits with all newer ones; None when all fit."""
    if max_bytes is None:
        return None
    rows = db.execute(
        f"SELECT {size}, queued, place FROM messages WHERE session = ? AND hidden = 0 ORDER BY queued DESC, place DESC",
        (session_row,),
    )
    fit, left_out = fitting(rows, lambda row: row[0], max_bytes, refuses=True)
    return fit[-1][1:] if left_out else None
