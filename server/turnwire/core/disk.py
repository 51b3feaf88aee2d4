"""Files that callers name: opened so that no link leads elsewhere, and read on threads of their own.

Which files a caller may name is decided in `core/intake/readable_files.py`.
"""

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

MAX_FILE_READS = 8
"""Reads of files that callers name, at the same time; further ones wait. A file system that hangs holds up these
threads, and nobody else."""

LOOK_ONLY: int | None = getattr(os, "O_PATH", None)
"""Flag that opens a file without access to its content, so that closing it gives up no lock; None if unsupported."""

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | (LOOK_ONLY or os.O_RDONLY)

P = ParamSpec("P")
T = TypeVar("T")

_threads = ThreadPoolExecutor(MAX_FILE_READS, thread_name_prefix="files")


async def on_file_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what a function returns, or raises what it raises; it may block for long."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(function, *args, **kwargs))


def open_without_links(path: Path, flags: int) -> int:
    """Returns a new descriptor of a file, which is not inherited by programs. Blocks as `os.open` does.

    A path is resolved and checked first, and opened afterwards. In between, somebody who can write to a folder on the
    way can put a link in its place. So the folders are opened one after the other, each in the one before it and none
    through a link: a path without ".." leads nowhere but to the file of that name.

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
        os.close(descriptor)  # only looking opens the link itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return descriptor
