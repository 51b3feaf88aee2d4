"""Files on the server's disk that a caller may name: decides which, and opens them safely.

The database must never be opened for reading here. POSIX locks belong to the process: closing any descriptor of a file
gives up all locks that the process holds on it, including SQLite's. The next program that closes the database would
then believe that it is the last user and delete the log that the server writes. So a file is checked before it is
opened.
"""

import os
import stat
from collections.abc import Callable, Set
from pathlib import Path

from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.domain.errors import InvalidRequest, MessageTooLarge
from turnwire.ports.store import FileIdentity

KERNEL_FOLDERS = (Path("/proc"), Path("/sys"), Path("/dev"))
"""Never read, even inside an allowed folder: the server's environment, with its keys, is a file there."""

DESCRIPTORS = Path("/proc/self/fd")
"""Where Linux lists the process's descriptors as paths."""

LOOK_ONLY: int | None = getattr(os, "O_PATH", None)
"""Flag that opens a file without access to its content, so that closing it gives up no lock; None if unsupported."""


class ReadableFiles(Struct, frozen=True, kw_only=True):
    """The files that a session may name by path. Nothing outside `directory` and `roots` is ever opened.

    Symbolic links are resolved first, and the resolved path decides.
    """

    directory: str = ""
    """The session's working directory; "" for none."""
    roots: tuple[Path, ...] = ()
    """Further folders whose files may be read."""
    max_bytes: int
    """Size limit of one file, inclusive."""
    own_files: Callable[[], Set[FileIdentity]] = frozenset
    """Returns the store's own files; see `Store.own_files`."""

    def read(self, path: str, field: str) -> bytes:
        """Returns the bytes of a file. Blocks; call it in a thread.

        Args:
            path: Absolute, or relative to the session's directory.
            field: Path of the field in the request, for errors.

        Raises:
            InvalidRequest: the path is not allowed, not a regular file, or one of the store's own files.
            MessageTooLarge: the file is over the limit.
        """
        with os.fdopen(self._open(self._resolve(path, field), field), "rb") as file:
            try:
                content = file.read(self.max_bytes + 1)
            except OSError as error:
                raise _not_readable(field) from error
        if len(content) > self.max_bytes:
            raise too_large(field, len(content), self.max_bytes)
        return content

    def _resolve(self, path: str, field: str) -> Path:
        """Returns the path with links resolved. Raises InvalidRequest unless it is inside an allowed folder."""
        if "\0" in path:
            raise InvalidRequest.of(field, "holds a NUL character")
        folders = [Path(self.directory), *self.roots] if self.directory else [*self.roots]
        allowed = [folder.resolve() for folder in folders]
        named = Path(path)
        if not named.is_absolute() and not self.directory:
            raise InvalidRequest.of(field, "is relative and the session has no directory")
        try:
            target = (Path(self.directory) / named).resolve(strict=True)
        except (OSError, RuntimeError) as error:
            # one error for "missing" and "not allowed", or a caller could explore the disk
            raise _not_readable(field) from error
        inside = any(target.is_relative_to(folder) for folder in allowed)
        if not inside or any(target.is_relative_to(folder) for folder in KERNEL_FOLDERS):
            raise _not_readable(field)
        return target

    def _open(self, target: Path, field: str) -> int:
        """Returns a descriptor for reading. It is of the file that was checked, even if files are moved meanwhile."""
        if LOOK_ONLY is None or not DESCRIPTORS.is_dir():
            return self._open_by_path(target, field)
        try:
            # O_NOFOLLOW: the path is resolved, so a link here was put there just now
            seen = os.open(target, LOOK_ONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise _not_readable(field) from error
        try:
            self._check(os.fstat(seen), field)
            return os.open(DESCRIPTORS / str(seen), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _not_readable(field) from error
        finally:
            os.close(seen)

    def _open_by_path(self, target: Path, field: str) -> int:
        """Like `_open`, for systems that cannot check a file without opening it, such as macOS.

        Checks the path first. If one of the store's own files is moved there before the path is opened, its descriptor
        stays open forever, because closing it would give up the locks.
        """
        try:
            self._check(target.lstat(), field)
            # O_NONBLOCK: a pipe may have replaced the file
            descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _not_readable(field) from error
        status = os.fstat(descriptor)
        try:
            self._check(status, field)
        except InvalidRequest:
            if FileIdentity.of(status) not in self.own_files():
                os.close(descriptor)
            raise
        return descriptor

    def _check(self, status: os.stat_result, field: str) -> None:
        """Raises InvalidRequest unless it is a regular file within the limit and not the store's own."""
        if not stat.S_ISREG(status.st_mode):
            raise _not_readable(field)
        if FileIdentity.of(status) in self.own_files():
            raise InvalidRequest.of(field, "is a file of the server's own database", "PATH_NOT_ALLOWED")
        if status.st_size > self.max_bytes:
            raise too_large(field, status.st_size, self.max_bytes)


def readable_files(environment: Environment, directory: str) -> ReadableFiles:
    """Returns the files that a session may name by path; `directory` is "" when the session has none."""
    return ReadableFiles(
        directory=directory,
        roots=environment.settings.files.roots,
        max_bytes=environment.settings.files.max_bytes,
        own_files=environment.store.own_files,
    )


def too_large(field: str, actual_bytes: int, max_bytes: int) -> MessageTooLarge:
    """Returns the error for content over a limit."""
    return MessageTooLarge.of(
        field,
        f"holds {actual_bytes} bytes, at most {max_bytes} are allowed",
        "TOO_LARGE",
        maxBytes=str(max_bytes),
        actualBytes=str(actual_bytes),
    )


def _not_readable(field: str) -> InvalidRequest:
    return InvalidRequest.of(
        field, "is not a readable file inside the session's directory or an allowed root", "PATH_NOT_ALLOWED"
    )
