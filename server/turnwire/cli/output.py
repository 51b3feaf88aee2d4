"""Prints what the commands say: JSON for programs, text, tables and progress for people, one line for an error."""

import contextlib
import json
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from turnwire.cli.visible_text import one_line, visible


def print_json(value: Any) -> None:
    """Prints a value as one line of JSON, in ASCII: no text can control the terminal. A reader may take it at once."""
    print(json.dumps(value, separators=(",", ":")), flush=True)


def print_error(text: str) -> None:
    """Prints what is wrong, as one line on standard error."""
    print(f"turnwire: {one_line(text)}", file=sys.stderr)


def print_line(text: str, style: str = "") -> None:
    """Prints a line for people; it is not wrapped."""
    Console(highlight=False).print(Text(visible(text), style=style), soft_wrap=True)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Container[str] = ()) -> None:
    """Prints rows in columns as wide as their longest text: nothing is cut.

    Args:
        heads: The first line.
        rows: The texts; each is shown on one line.
        numbers: Heads of columns whose texts end below each other.
    """
    lines = [list(heads), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.rjust(width) if head in numbers else cell.ljust(width)
            for head, cell, width in zip(heads, line, widths, strict=True)
        )
        print("  ".join(cells).rstrip())


class Bar:
    """One bar for one kind of work after the other."""

    def __init__(self, progress: Progress) -> None:
        """Takes a running display; use `progress_bar`."""
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def begin(self, work: str, total: int | None = None) -> None:
        """Starts to show other work; without a total, shows only that it proceeds."""
        self._progress.reset(self._task, description=work, total=total)

    def show(self, done: int, total: int) -> None:
        """Shows how much is done, and how much there is."""
        self._progress.update(self._task, completed=done, total=total)


@contextlib.contextmanager
def progress_bar() -> Iterator[Bar]:
    """Gives a bar that disappears at the end; it prints nothing when standard error is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        yield Bar(progress)
