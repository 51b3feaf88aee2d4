"""Opens a file by its path without following any link.

A path is resolved and checked first, and opened afterwards. In between, somebody who can write to a folder on the way
can put a link in its place. Without links, a path without ".." leads nowhere but to the file of that name.

Linux has one system call for this since 5.6. Where it is missing (older kernels, macOS) or forbidden (some containers),
the folders are opened one after the other, each in the one before it.
"""

import ctypes
import errno
import functools
import os
import stat
import sys
from pathlib import Path

LOOK_ONLY: int | None = getattr(os, "O_PATH", None)
"""Flag that opens a file without access to its content, so that closing it gives up no lock; None if unsupported."""

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | (LOOK_ONLY or os.O_RDONLY)

_OPENAT2 = 437
"""Number of the system call on all systems for which there are packages of grpcio."""

_NO_LINKS = 0x02 | 0x04
"""RESOLVE_NO_MAGICLINKS and RESOLVE_NO_SYMLINKS of linux/openat2.h."""

_WORKING_DIRECTORY = -100
"""AT_FDCWD of linux/fcntl.h; without meaning for an absolute path."""


class _OpenHow(ctypes.Structure):
    """struct open_how of linux/openat2.h."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_without_links(path: Path, flags: int) -> int:
    """Returns a new descriptor of a file, which is not inherited by programs. Blocks as `os.open` does.

    Args:
        path: Absolute, without "..".
        flags: As for `os.open`.

    Raises:
        OSError: the file cannot be opened, or a part of the path is a link.
    """
    return _open_at_once(path, flags) if kernel_refuses_links() else _open_by_steps(path, flags)


@functools.cache
def kernel_refuses_links() -> bool:
    """Returns whether this process may use the system call that opens without links."""
    if sys.platform != "linux" or LOOK_ONLY is None:
        return False
    try:
        os.close(_open_at_once(Path("/"), LOOK_ONLY))
    except OSError:  # ENOSYS of an old kernel; ENOSYS or EPERM of a container's filter
        return False
    return True


def _open_at_once(path: Path, flags: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _NO_LINKS)
    system_call = ctypes.CDLL(None, use_errno=True).syscall
    arguments = (ctypes.c_long(_OPENAT2), ctypes.c_int(_WORKING_DIRECTORY), os.fsencode(path))
    while True:
        descriptor = int(system_call(*arguments, ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))))
        if descriptor >= 0:
            return descriptor
        if (code := ctypes.get_errno()) != errno.EINTR:
            raise OSError(code, os.strerror(code), str(path))


def _open_by_steps(path: Path, flags: int) -> int:
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
        os.close(descriptor)  # only looking opens the link itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return descriptor
