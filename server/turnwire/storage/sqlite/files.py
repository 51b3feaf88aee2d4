"""The files of the database: which ones they are, and whether they still exist at their paths."""

import contextlib
import errno
import itertools
import os
import stat
import struct
import tempfile
from pathlib import Path

from turnwire.domain.errors import StorageCorrupt, StorageError, StorageFull
from turnwire.ports.store import FileIdentity

LOCK_SUFFIX = ".lock"

_LIVE_SUFFIXES = ("", "-wal", "-shm")
"""Suffixes of the files that SQLite keeps open and does not replace while the database is open."""

_ALL_SUFFIXES = (*_LIVE_SUFFIXES, "-journal", LOCK_SUFFIX)


_OWN_MODE = 0o600
"""Conversations are for the server's own user."""

_OF_OTHERS = 0o077

_PROBE_BYTES = 2**20
"""Bytes written to find out why a disk rejects writes: mostly more than a transaction writes."""

_LOOKED_AT = 10_000
"""Maximum number of files of a folder among which other names of the database are looked for."""

HEADER_BYTES = 32
"""Size of the log's header; a longer log has contents."""

FRAME_HEADER_BYTES = 24

INDEX_BYTES = 48
"""The header of the index of the log."""


class DatabaseFiles:
    """The files of one open database. Does not change after `remember`, so any thread may use it."""

    def __init__(self, path: Path) -> None:
        """Takes the database's path. SQLite puts its files into the folder of a link's target."""
        self._database = path.resolve()
        self._path = str(self._database)
        self._log = f"{self._path}-wal"
        self._opened: dict[Path, FileIdentity] = {}
        self._live: dict[str, tuple[int, int]] = {}  # device and inode by path
        self._has_content = False
        self._index: int | None = None  # a descriptor of SQLite's index of the log

    def create(self) -> None:
        """Creates the database's file if it does not exist, for the server's own user only, whatever the umask is.

        SQLite opens an empty file as a new database, and gives the files next to it the same mode. The mode of an
        existing file is up to the operator.

        Raises:
            StorageCorrupt: the database is missing or empty, and its log exists: SQLite would create a new database,
                and delete the log.
            StorageError: the file cannot be created.
        """
        self._refuse_log_alone()
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

    def _refuse_log_alone(self) -> None:
        log = self.beside("-wal")
        with contextlib.suppress(OSError):
            if log.stat().st_size <= HEADER_BYTES:
                return
            with contextlib.suppress(FileNotFoundError):
                if self._database.stat().st_size:
                    return
            raise StorageCorrupt(
                f"{self._database} is missing or empty, and its log {log} has what was stored last; put the database"
                " back to its place, or move the log away to begin anew",
                {"path": str(self._database)},
            )

    def refuse_other_log(self) -> None:
        """Looks for the log of another name of the database in its folder. Call it when no server can have it open.

        Raises:
            StorageCorrupt: there is one; SQLite would not find its contents by this name.
        """
        if self.names() < 2:
            return
        identity = FileIdentity.of(self._database.stat())
        for other in itertools.islice(self._database.parent.iterdir(), _LOOKED_AT):
            with contextlib.suppress(OSError):
                if other == self._database or FileIdentity.of(other.lstat()) != identity:
                    continue
                if (log := other.with_name(f"{other.name}-wal")).stat().st_size <= HEADER_BYTES:
                    continue
                raise StorageCorrupt(
                    f"{self._database} is the same file as {other}, whose log {log} has what was stored last; start"
                    " with that name",
                    {"path": str(self._database)},
                )

    def names(self) -> int:
        """Returns the number of names of the database in its file system; all but one are hard links."""
        try:
            return self._database.stat().st_nlink
        except OSError:
            return 0

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
        """Records the files as they are now. Call it once all connections have opened them, and `close` at the end."""
        self._opened = self._present(_ALL_SUFFIXES)
        live = self._present(_LIVE_SUFFIXES)
        self._live = {str(path): (identity.device, identity.inode) for path, identity in live.items()}
        self._has_content = self._database.stat().st_size > 0

        with contextlib.suppress(OSError):
            self._index = os.open(self.beside("-shm"), os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Closes what `remember` has opened. Idempotent.

        Call it after SQLite has closed the database in this process, as `ProcessLock.release`.
        """
        if self._index is not None:
            os.close(self._index)
            self._index = None

    def beside(self, suffix: str) -> Path:
        """Returns the path of the database with a suffix."""
        return self._database.with_name(self._database.name + suffix)

    def identities(self) -> frozenset[FileIdentity]:
        """Returns the files that were opened and the files that are at their paths now."""
        return frozenset((*self._opened.values(), *self._present(_ALL_SUFFIXES).values()))

    def loss(self) -> StorageCorrupt | None:
        """Returns an error when a file that the server writes was deleted, replaced or truncated, else None.

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
                if (status.st_dev, status.st_ino) != opened:
                    word = "replaced"
                elif self._is_cut(path, status.st_size):
                    word = "cut short"
                else:
                    continue
            return StorageCorrupt(
                f"{path} was {word} while the server had it open; nothing more is stored, the server stops",
                {"path": path},
            )
        return None

    def _is_cut(self, path: str, size_bytes: int) -> bool:
        """Returns whether a file ends before the contents that SQLite has in it."""
        if path == self._path:
            return self._has_content and not size_bytes
        if path != self._log or self._index is None:
            return False
        index = os.pread(self._index, INDEX_BYTES, 0)
        if size_bytes >= _log_bytes(index):
            return False
        # others may have emptied or lengthened the log through SQLite meanwhile: both sizes have to be of one moment
        size_bytes = os.stat(path).st_size  # noqa: PTH116
        return size_bytes < _log_bytes(index) and os.pread(self._index, INDEX_BYTES, 0) == index

    def unsynced(self) -> StorageError:
        """Returns the error for a disk that failed to keep what was written, although the kernel may report it as kept.

        A later success cannot be trusted then, so nothing more is stored until the files were opened again.
        """
        problem = f"the disk of {self._path} failed to keep what was written; nothing more is stored, the server stops"
        return StorageError(problem, {"path": self._path})

    def refusal(self) -> StorageError | None:
        """Returns why nothing can be written next to the database, for causes that SQLite reports as something else.

        SQLite does not report an exhausted quota as a full disk, and reports a read-only disk as a failing one.
        """
        try:
            with tempfile.TemporaryFile(dir=self._database.parent, buffering=0) as file:
                file.write(bytes(_PROBE_BYTES))
                os.fsync(file.fileno())
        except OSError as error:
            if error.errno in (errno.EDQUOT, errno.ENOSPC):
                return StorageFull("no space is left for the database")
            failed = StorageError(f"the disk of {self._path} rejects writes: {error.strerror}", {"path": self._path})
            failed.may_pass = True
            return failed
        return None

    def _present(self, suffixes: tuple[str, ...]) -> dict[Path, FileIdentity]:
        found = {}
        for path in map(self.beside, suffixes):
            try:
                found[path] = FileIdentity.of(path.stat())
            except OSError:
                continue
        return found


def log_frames(index: bytes) -> int:
    """Returns the number of frames of the log that SQLite reads, by the beginning of its index: the committed ones.

    The index is part of SQLite's file format ("WAL-Index File Format").
    """
    frames: int
    (frames,) = struct.unpack_from("=I", index.ljust(INDEX_BYTES, b"\0"), 16)
    return frames


def _log_bytes(index: bytes) -> int:
    """Returns the minimum size of the log: a header, and the committed frames."""
    if not (frames := log_frames(index)):  # the log begins again with the next commit
        return 0
    (page_bytes,) = struct.unpack_from("=H", index, 14)
    return HEADER_BYTES + frames * (FRAME_HEADER_BYTES + (65536 if page_bytes == 1 else page_bytes))
