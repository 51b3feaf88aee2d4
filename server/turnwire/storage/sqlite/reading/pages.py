"""Pages: the order of a session's messages, where a page begins, and how many rows it has."""

from typing import Any

from turnwire.domain.pages import decode_token
from turnwire.ports.pages import Page


def listing(session_id: str, page: Page) -> str:
    """Returns what a page token of a session's messages belongs to."""
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


def limit_of(page: Page) -> int:
    """Returns one row more than the page, to see whether there is a next page. SQLite takes -1 as no limit."""
    return -1 if page.size is None else page.size + 1


def cut(rows: list[Any], page: Page, left_out: bool = False) -> tuple[list[Any], bool]:
    """Returns at most a page of the rows, and whether there is a next page."""
    more = page.size is not None and (left_out or len(rows) > page.size)
    return rows[: page.size], more
