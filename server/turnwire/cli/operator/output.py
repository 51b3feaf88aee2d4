"""How the commands print: JSON for programs, text and tables for people, one line for an error."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from turnwire.cli.visible_text import one_line, visible

PIPE_WIDTH = 160
"""Columns of a table that is not printed on a terminal."""

TABLE_ROWS = 100
"""Rows that are laid out together, so that a long list is printed while it is read."""


def print_json(value: Any) -> None:
    """Prints a value as one line of JSON, in ASCII: no text can control the terminal. A reader may take it at once."""
    print(json.dumps(value, separators=(",", ":")), flush=True)


def print_error(text: str) -> None:
    """Prints what is wrong, as one line on standard error."""
    print(f"turnwire: {one_line(text)}", file=sys.stderr)


def print_line(text: str, style: str = "") -> None:
    """Prints a line for people; it is not wrapped."""
    Console(highlight=False).print(Text(visible(text), style=style), soft_wrap=True)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> int:
    """Prints rows as they come, in columns that keep their places. Returns how many there were.

    Args:
        columns: All but the last with a width, so that the parts of a long table agree.
        rows: The texts; each is shown on one line, and cut where its column ends.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH)
    count, waiting = 0, list[Sequence[str]]()
    for row in rows:
        waiting.append(row)
        if len(waiting) == TABLE_ROWS:
            _print_rows(console, columns, waiting, is_first=count == 0)
            count, waiting = count + len(waiting), []
    if waiting or count == 0:
        _print_rows(console, columns, waiting, is_first=count == 0)
    return count + len(waiting)


def _print_rows(console: Console, columns: Sequence[Column], rows: list[Sequence[str]], *, is_first: bool) -> None:
    is_wide = any(column.width is None for column in columns)
    table = Table(box=None, expand=is_wide, show_header=is_first, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column.header,
            width=column.width,
            justify=column.justify,
            ratio=None if column.width else 1,
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    for line in console.render_lines(table, pad=False):
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        text.rstrip()
        console.print(text, soft_wrap=True)
