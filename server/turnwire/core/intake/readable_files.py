"""Files on the server's disk that a caller may name: decides which, and reads them.

A path must begin with a root as it is written. Its links are resolved one by one and each must stay below a root, so
nothing outside is ever looked at. The file is opened without following a link (`open_without_links`), so the file that
was checked is the file that is read.

The database must never be opened for reading here. POSIX locks belong to the process: closing any descriptor of a file
releases all locks that the process holds on it, including the store's. The next program that closes the database would
then believe that it is the last user and delete the log that the server writes. So a file is checked before it is
opened.
"""

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import ParamSpec, TypeVar

from msgspec import Struct

from turnwire.core.environment import Environment
from turnwire.core.intake.uploads import complete_upload
from turnwire.domain.conversation.sessions import Session
from turnwire.domain.errors import InvalidRequest, MessageTooLarge, UploadNotFound
from turnwire.ports.moving.uploads import Upload
from turnwire.ports.store import FileIdentity

KERNEL_FOLDERS = (Path("/proc"), Path("/sys"), Path("/dev"))
"""Never read, even as a root: files of the kernel can hold secrets of the server (its environment, with its keys, is a
file of procfs), have effects when they are read, or never end. Where else they are mounted, they are on another device
than the root."""

DESCRIPTORS = Path("/proc/self/fd")
"""The folder in which Linux lists the process's descriptors as paths."""

_NO_EFFECT = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Opens for reading without waiting for a pipe's writer and without acquiring a terminal; the checks reject both."""


async def _no_upload(upload_id: str, field: str) -> Upload:
    raise UploadNotFound(upload_id)


class ReadableFiles(Struct, frozen=True, kw_only=True):
    """The files that a session may name: by path, or as uploads. Nothing outside `roots` is ever looked at."""

    directory: str = ""
    """The session's working directory, where relative paths start; "" for none."""
    roots: tuple[Path, ...] = ()
    """Folders whose files may be read: absolute, with links resolved."""
    written_roots: Mapping[Path, Path] = {}
    """Maps other names of roots, which lead through links, to them."""
    max_bytes: int
    """Size limit of one file, inclusive."""
    own_files: Callable[[], Set[FileIdentity]] = frozenset
    """Returns the server's own files: those of its store (`Store.own_files`), and others that hold secrets."""
    upload: Callable[[str, str], Awaitable[Upload]] = _no_upload
    """Returns a complete upload of the session's tenant, given its id and the field that names it; `complete_upload`
    has the errors."""

    def read(self, path: str, field: str) -> bytes:
        """Returns the bytes of a file. Blocks; call it in a thread.

        Args:
            path: Absolute, or relative to the session's directory.
            field: Path of the field in the request, for errors.

        Raises:
            InvalidRequest: the path is not allowed, not a regular file with data, or one of the store's own files.
            MessageTooLarge: the file is over the limit, or grows over it while it is read.
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
        """Returns the path with links resolved. Raises InvalidRequest unless it is below a root."""
        if "\0" in path:
            raise InvalidRequest.of(field, "holds a NUL character")
        if not self.roots:
            raise InvalidRequest.of(field, "names a file of the server, and none may be read", "PATH_NOT_ALLOWED")
        if is_relative := not path.startswith("/"):
            self._check_directory(field)
        # one error for "missing" and "not allowed", or a caller could explore the disk
        target = _followed(f"{self.directory}/{path}" if is_relative else path, self.roots, self.written_roots)
        if target is None or _is_below(target, KERNEL_FOLDERS):
            raise _not_readable(field)
        return target

    def _check_directory(self, field: str) -> None:
        """Raises InvalidRequest unless a relative path may start at the session's directory."""
        if not self.directory:
            raise InvalidRequest.of(field, "is relative and the session has no directory")
        if not is_allowed_directory(self.directory, self.roots, self.written_roots):
            # the configuration may have changed since the session got its directory
            raise InvalidRequest.of(
                field,
                "is relative, but the session's directory is not below a folder that the server may read; "
                "change the directory",
                "PATH_NOT_ALLOWED",
            )

    def _open(self, target: Path, field: str) -> int:
        """Returns a descriptor for reading the file that was checked, even if files are moved meanwhile."""
        if LOOK_ONLY is None or not DESCRIPTORS.is_dir():
            return self._open_by_path(target, field)
        try:
            seen = open_without_links(target, LOOK_ONLY)
        except OSError as error:
            raise _not_readable(field) from error
        try:
            self._check(os.fstat(seen), target, field)
            return os.open(DESCRIPTORS / str(seen), _NO_EFFECT)
        except OSError as error:
            raise _not_readable(field) from error
        finally:
            os.close(seen)

    def _open_by_path(self, target: Path, field: str) -> int:
        """Like `_open`, for systems that cannot check a file without opening it, such as macOS.

        Checks the path first. If one of the store's own files is moved there before the path is opened, its descriptor
        stays open forever, because closing it would release the locks.
        """
        try:
            self._check(target.lstat(), target, field)
            descriptor = open_without_links(target, _NO_EFFECT)
        except OSError as error:
            raise _not_readable(field) from error
        try:
            self._check(os.fstat(descriptor), target, field)
        except (InvalidRequest, OSError) as error:
            if FileIdentity.of(os.fstat(descriptor)) not in self.own_files():
                os.close(descriptor)
            raise error if isinstance(error, InvalidRequest) else _not_readable(field) from error
        return descriptor

    def _check(self, status: os.stat_result, target: Path, field: str) -> None:
        """Raises InvalidRequest unless it is a regular file on a root's own device, within the limit and not the
        store's own.

        Raises OSError when the root cannot be examined.
        """
        devices = {root.stat().st_dev for root in self.roots if target.is_relative_to(root)}
        if not stat.S_ISREG(status.st_mode) or status.st_dev not in devices:
            raise _not_readable(field)
        if FileIdentity.of(status) in self.own_files():
            raise InvalidRequest.of(field, "is a file of the server itself", "PATH_NOT_ALLOWED")
        if status.st_size > self.max_bytes:
            raise too_large(field, status.st_size, self.max_bytes)


def readable_files(environment: Environment, session: Session, *, used_uploads_too: bool = False) -> ReadableFiles:
    """Returns the files that messages and results of a session may name.

    Args:
        environment: Ports and settings.
        session: The session.
        used_uploads_too: Whether to find recently used uploads too: for requests without a name that may be retried. A
            commit does not accept them.
    """
    uploads, tenant = environment.store.uploads, session.tenant
    return ReadableFiles(
        directory=session.directory,
        roots=environment.settings.roots(session.tenant),
        written_roots=environment.settings.written_roots,
        max_bytes=environment.settings.files.max_bytes,
        own_files=lambda: environment.store.own_files() | _present(environment.settings.private_files),
        upload=lambda upload_id, field: complete_upload(uploads, tenant, upload_id, field, used_too=used_uploads_too),
    )


def is_allowed_directory(
    directory: str, roots: tuple[Path, ...], written_roots: Mapping[Path, Path] = MappingProxyType({})
) -> bool:
    """Returns whether a session may have a directory: it is a root or below one, or will be once it is made.

    Links are resolved as far as they exist. Blocks; call it in a thread.

    Args:
        directory: An absolute path.
        roots: Absolute, with links resolved.
        written_roots: Maps other names of roots to them.
    """
    return _followed(directory, roots, written_roots) is not None


def too_large(field: str, actual_bytes: int, max_bytes: int) -> MessageTooLarge:
    """Returns the error for a file over `files.max_bytes`."""
    return MessageTooLarge.over("files.max_bytes", max_bytes, field, actual_bytes)


def _present(paths: Iterable[Path]) -> frozenset[FileIdentity]:
    """Returns the identities of the files now at the paths: a renewed key is another file."""
    found = set()
    for path in paths:
        with contextlib.suppress(OSError):
            found.add(FileIdentity.of(path.stat()))
    return frozenset(found)


def _followed(path: str, roots: tuple[Path, ...], written_roots: Mapping[Path, Path]) -> Path | None:
    """Returns an absolute path without links, whether or not it exists; None unless each step stays below a root.

    A path that does not begin with a root, or that goes up, is not looked at: the answer would reveal what exists.
    """
    written = Path(f"/{path.lstrip('/')}")
    if ".." in written.parts:
        return None
    for name, root in (*((root, root) for root in roots), *written_roots.items()):
        if root in roots and written.is_relative_to(name):
            return _without_links(root, written.relative_to(name).parts, roots)
    return None


def _without_links(root: Path, parts: Iterable[str], roots: tuple[Path, ...]) -> Path | None:
    found = root.parent
    try:
        for part in (root.name, *parts):  # the root itself may have become a link
            found /= part
            if found.is_symlink():
                found = found.resolve()
            if not _is_below(found, roots) or found.is_symlink():
                return None
    except (OSError, RuntimeError):  # a name that is too long, a loop of links, a folder that may not be searched
        return None
    return found


def _is_below(path: Path, folders: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _not_readable(field: str) -> InvalidRequest:
    return InvalidRequest.of(
        field, "is not a readable file below a folder that the server may read", "PATH_NOT_ALLOWED"
    )


MAX_FILE_READS = 8
"""Maximum concurrent reads of files that callers name; further ones wait. A file system that hangs blocks these threads
only."""

LOOK_ONLY: int | None = getattr(os, "O_PATH", None)
"""Flag that opens a file without access to its content, so that closing it releases no lock; None if unsupported."""

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | (LOOK_ONLY or os.O_RDONLY)

P = ParamSpec("P")
T = TypeVar("T")

_threads = ThreadPoolExecutor(MAX_FILE_READS, thread_name_prefix="files")


async def on_file_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a function that may block for long on a thread; returns its result, or raises its error."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(function, *args, **kwargs))


def open_without_links(path: Path, flags: int) -> int:
    """Returns a new descriptor of a file, which is not inherited by programs. Blocks as `os.open` does.

    A path is resolved and checked first, and opened later. In between, somebody who can write to one of its folders can
    replace it by a link. So the folders are opened one after the other, each in the one before it and none through a
    link: a path without ".." then leads only to the file of that name.

    Args:
        path: Absolute, without "..".
        flags: As for `os.open`.

    Raises:
        OSError: the file cannot be opened, or a part of the path is a link.
    """
    folder = os.open("/", _FOLDER)
    try:
        for name in path.parts[1:-1]:
            inner = os.open(name, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(path.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    if LOOK_ONLY is not None and flags & LOOK_ONLY and stat.S_ISLNK(os.fstat(descriptor).st_mode):
        os.close(descriptor)  # this flag opens the link itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return descriptor
