"""Pages: the beginning of a page of a list, its number of rows, and how many of these fit."""

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

from turnwire.domain.errors import AnswerTooLarge
from turnwire.domain.pages import MAX_PAGE_BYTES, decode_token
from turnwire.ports.pages import Page

HEAVY_BYTES = 2**20
"""Size above which a read runs on a connection of its own: reading that much takes some milliseconds."""

NO_LIMIT = 2**62
"""More rows than any list has."""


class HeavyRead(Exception):
    """A read was not carried out, because it needs the connection for long reads."""


def check_light(size: int, max_bytes: int | None) -> None:
    """Raises HeavyRead for a read of more bytes. None allows any size."""
    if max_bytes is not None and size > max_bytes:
        raise HeavyRead


def fitting(
    rows: Generator[Any],
    size: Callable[[Any], int],
    max_bytes: int | None,
    *,
    refuses: bool = False,
    light_bytes: int | None = None,
) -> tuple[list[Any], bool]:
    """Returns the first rows that fit together, and whether a row was left out. Reads at most one row more.

    Args:
        rows: In the order in which they are wanted. Closed.
        size: Returns the bytes of a row.
        max_bytes: Maximum size of all rows together; None returns every row.
        refuses: Whether a first row that does not fit alone is an error; else it is returned alone.
        light_bytes: Maximum size of a light read, if the rows contain what is read; None allows any size.

    Raises:
        HeavyRead: the rows have more than a light read.
        AnswerTooLarge: the first row that has any bytes does not fit alone.
    """
    fit: list[Any] = []
    total = 0
    with closing(rows):
        for row in rows:
            total += (one := size(row))
            check_light(total, light_bytes)
            if max_bytes is not None and total > max_bytes:
                if total > one or not one:
                    return fit, True
                if refuses:
                    raise AnswerTooLarge(one, max_bytes)
            fit.append(row)
    return fit, False


def listing(session_id: str, page: Page) -> str:
    """Returns the listing to which a page token of a session's messages belongs."""
    return f"messages-newest-first of {session_id}" if page.newest_first else f"messages of {session_id}"


def order_of(page: Page) -> str:
    """Returns the order of messages as SQL."""
    return "queued DESC, place DESC" if page.newest_first else "queued, place"


def after_token(session_id: str, page: Page) -> tuple[str, tuple[int, ...]]:
    """Returns the condition for the messages after the page's token, with its parameters; "" at the beginning.

    Raises:
        InvalidRequest: the token is not of this listing.
    """
    if not page.token:
        return "", ()
    key = decode_token(page.token, listing(session_id, page), int, int)
    return f"AND (queued, place) {'<' if page.newest_first else '>'} (?, ?)", key


def fitting_page(
    rows: Generator[Any], size: Callable[[Any], int], page: Page, *, light_bytes: int | None = None
) -> tuple[list[Any], bool]:
    """Returns the rows of a page that fit into an answer, and whether there is a next page; see `fitting`."""
    most = None if page.size is None else MAX_PAGE_BYTES
    return cut(*fitting(rows, size, most, light_bytes=light_bytes), page)


def limit_of(page: Page) -> int:
    """Returns the size of the page plus one row, which shows whether there is a next page."""
    return NO_LIMIT if page.size is None else page.size + 1


def cut(rows: list[Any], left_out: bool, page: Page) -> tuple[list[Any], bool]:
    """Returns at most a page of the rows, and whether there is a next page."""
    more = page.size is not None and (left_out or len(rows) > page.size)
    return rows[: page.size], more
