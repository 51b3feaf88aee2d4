"""The files of the database: which ones they are, and whether they are still in place."""

import os
import stat
from pathlib import Path

from turnwire.domain.errors import StorageCorrupt, StorageError
from turnwire.ports.store import FileIdentity

LOCK_SUFFIX = ".lock"

_LIVE_SUFFIXES = ("", "-wal", "-shm")
"""Suffixes of the files that SQLite keeps open and does not replace while the database is open."""

_ALL_SUFFIXES = (*_LIVE_SUFFIXES, "-journal", LOCK_SUFFIX)


_OWN_MODE = 0o600
"""Conversations are for the server's own user."""

_OF_OTHERS = 0o077


class DatabaseFiles:
    """The files of one open database. Does not change after `remember`, so any thread may use it."""

    def __init__(self, path: Path) -> None:
        """Takes the database's path. A link is resolved, because SQLite puts its files beside the link's target."""
        self._database = path.resolve()
        self._opened: dict[Path, FileIdentity] = {}
        self._live: dict[str, tuple[int, int]] = {}  # device and inode by path

    def create(self) -> None:
        """Makes the database's file if there is none, for the server's own user alone, whatever the umask is.

        SQLite opens an empty file as a new database, and gives the files beside it the same mode. The mode of a file
        that exists is the operator's.

        Raises:
            StorageError: the file cannot be made.
        """
        try:
            descriptor = os.open(self._database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWN_MODE)
        except FileExistsError:
            return
        except OSError as error:
            problem = f"cannot create the database {self._database}: {error.strerror}"
            raise StorageError(problem, {"path": str(self._database)}) from error
        try:
            os.fchmod(descriptor, _OWN_MODE)  # an unusual umask takes rights of the owner away
        finally:
            os.close(descriptor)

    def open_to_others(self) -> dict[Path, int]:
        """Returns the files that other users may read or write, with their permissions."""
        found = {}
        for path in map(self.beside, _ALL_SUFFIXES):
            try:
                mode = stat.S_IMODE(path.stat().st_mode)
            except OSError:
                continue
            if mode & _OF_OTHERS:
                found[path] = mode
        return found

    def remember(self) -> None:
        """Records the files as they are now. Call it once all connections have opened them."""
        self._opened = self._present(_ALL_SUFFIXES)
        live = self._present(_LIVE_SUFFIXES)
        self._live = {str(path): (identity.device, identity.inode) for path, identity in live.items()}

    def beside(self, suffix: str) -> Path:
        """Returns the path of the database with a suffix."""
        return self._database.with_name(self._database.name + suffix)

    def identities(self) -> frozenset[FileIdentity]:
        """Returns the files that were opened and the files that are at their paths now."""
        return frozenset((*self._opened.values(), *self._present(_ALL_SUFFIXES).values()))

    def loss(self) -> StorageCorrupt | None:
        """Returns an error when a file that the server writes was deleted or replaced; None when all are in place.

        What is written to a file without a name is lost when the process ends. Takes a few microseconds.
        """
        for path, opened in self._live.items():
            try:
                status = os.stat(path)  # noqa: PTH116 - each transaction waits for this; a Path takes twice as long
            except (FileNotFoundError, NotADirectoryError):
                word = "deleted"
            except OSError:  # losing access to the folder does not affect open files
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
