"""Progress bars on standard error, only where a person sees them."""

import contextlib
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """One bar for one kind of work after the other."""

    def __init__(self, progress: Progress) -> None:
        """Takes a running display; use `progress_bar`."""
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def begin(self, work: str, total: int | None = None) -> None:
        """Starts to show other work; without a total, that it goes on."""
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
