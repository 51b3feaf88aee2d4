"""The files of the database are looked at now and then, also while nothing is stored."""

from datetime import timedelta
from typing import cast

import aiosqlite

from tests.support.fakes.loop import elapse, settled
from turnwire.domain.errors import ShuttingDown
from turnwire.storage.sqlite.care.file_watch import LOOK_SECONDS, FileWatch
from turnwire.storage.sqlite.steps import RETRY_SECONDS
from turnwire.storage.sqlite.writing.writer import GroupWriter


class _Writer:
    """Counts the looks."""

    connection = cast(aiosqlite.Connection, None)

    def __init__(self) -> None:
        self.looks = 0
        self.is_closed = False

    async def look(self) -> None:
        """Looks, unless it is closed."""
        self.looks += 1
        assert self.looks < 100, "it does nothing else"
        if self.is_closed:
            raise ShuttingDown


async def test_the_files_are_looked_at_once_a_time() -> None:
    """At the start, then after each pause, until the end; a writer that is closed is left in peace."""
    writer = _Writer()
    watch = FileWatch(cast(GroupWriter, writer))
    watch.start()
    await settled()
    assert writer.looks == 1
    for looks in (2, 3):
        await elapse(timedelta(seconds=LOOK_SECONDS))
        assert writer.looks == looks
    writer.is_closed = True
    for _ in range(10):
        await elapse(timedelta(seconds=LOOK_SECONDS))
    assert writer.looks == 4
    writer.is_closed = False
    await elapse(timedelta(seconds=RETRY_SECONDS))
    assert writer.looks == 5
    await watch.aclose()
    await elapse(timedelta(seconds=RETRY_SECONDS))
    assert writer.looks == 5
