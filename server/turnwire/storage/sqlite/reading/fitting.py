"""Listings that are bounded by bytes: as many rows as fit."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

from turnwire.domain.errors import AnswerTooLarge

HEAVY_BYTES = 2**20
"""Reads of more than this are carried out beside all others: reading takes some milliseconds for each of these."""


class HeavyRead(Exception):
    """A read was not carried out, because it is to be carried out beside the others."""


def check_light(size: int, max_bytes: int | None) -> None:
    """Raises HeavyRead for a read of more bytes. None takes any."""
    if max_bytes is not None and size > max_bytes:
        raise HeavyRead


def fitting(
    rows: sqlite3.Cursor,
    size: Callable[[Any], int],
    max_bytes: int | None,
    *,
    refuses: bool = False,
    light_bytes: int | None = None,
) -> tuple[list[Any], bool]:
    """Returns the first rows, as many as fit together, and whether a row was left out. Reads one more row at most.

    Args:
        rows: In the order in which they are wanted. Closed.
        size: Returns the bytes of a row.
        max_bytes: Of all rows together; None takes every row.
        refuses: Whether a first row that does not fit alone is an error; else it is returned alone.
        light_bytes: Of a light read, where the rows have what is read; None takes any.

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
