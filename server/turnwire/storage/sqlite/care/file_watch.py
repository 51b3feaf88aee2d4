"""Looks after the files of the database while nothing is stored."""

from turnwire.storage.sqlite.steps import Steps
from turnwire.storage.sqlite.writing.writer import GroupWriter

LOOK_SECONDS = 1.0
"""Between two looks: a server that only reads hears of a lost file after this time."""


class FileWatch(Steps):
    """Lets the writer look whether the files of the database are in their places, now and then.

    Each transaction looks as well. It is a step of the writing connection, so that it follows a transaction that runs.
    """

    def __init__(self, writer: GroupWriter) -> None:
        """Takes the writer, which is closed after this."""
        super().__init__(writer.connection, lambda _: False, 0, "file watch", idle_seconds=LOOK_SECONDS)
        self._writer = writer

    async def _carry_out(self) -> bool:
        await self._writer.look()
        return False
