"""The database file and those beside it: which ones they are, and whether they are still there."""

import os
from pathlib import Path

from turnwire.domain.errors import StorageCorrupt
from turnwire.ports.store import FileIdentity

LOCK_SUFFIX = ".lock"

_LIVE_SUFFIXES = ("", "-wal", "-shm")
"""Of the files that SQLite holds open and never replaces while it does."""

_ALL_SUFFIXES = (*_LIVE_SUFFIXES, "-journal", LOCK_SUFFIX)


class DatabaseFiles:
    """The files of one open database. After `remember` nothing in it changes, so any thread may use it."""

    def __init__(self, path: Path) -> None:
        """Takes the database's path, which may be a link: SQLite puts its files beside what that leads to."""
        self._database = path.resolve()
        self._opened: dict[Path, FileIdentity] = {}
        self._live: dict[str, tuple[int, int]] = {}  # device and inode by path

    def remember(self) -> None:
        """Takes down the files as they are now, which is when all connections have opened them."""
        self._opened = self._present(_ALL_SUFFIXES)
        live = self._present(_LIVE_SUFFIXES)
        self._live = {str(path): (identity.device, identity.inode) for path, identity in live.items()}

    def beside(self, suffix: str) -> Path:
        """Returns the path of the database with a suffix."""
        return self._database.with_name(self._database.name + suffix)

    def identities(self) -> frozenset[FileIdentity]:
        """Returns the files that were opened and those that stand at their paths now."""
        return frozenset((*self._opened.values(), *self._present(_ALL_SUFFIXES).values()))

    def loss(self) -> StorageCorrupt | None:
        """Returns an error when a file that the server writes was deleted or replaced; None when all are in place.

        What is written to a file without a name is gone with the process. Takes a few microseconds.
        """
        for path, opened in self._live.items():
            try:
                status = os.stat(path)  # noqa: PTH116 - each transaction waits for this; a Path takes twice as long
            except (FileNotFoundError, NotADirectoryError):
                word = "deleted"
            except OSError:  # a folder that may not be searched any more takes nothing from open files
                continue
            else:
                if (status.st_dev, status.st_ino) == opened:
                    continue
                word = "replaced"
            return StorageCorrupt(
                f"{path} was {word} while the server had it open; nothing more is stored, the server stops",
                {"path": path},
            )
        return None

    def _present(self, suffixes: tuple[str, ...]) -> dict[Path, FileIdentity]:
        found = {}
        for path in map(self.beside, suffixes):
            try:
                found[path] = FileIdentity.of(path.stat())
            except OSError:
                continue
        return found
