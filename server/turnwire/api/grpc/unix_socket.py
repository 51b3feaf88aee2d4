"""The file of a Unix socket. A user who may write to the file may connect."""

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct

_PRIVATE = 0o600

_DESCRIPTORS = Path("/proc/self/fd")


class SocketAccess(Struct, frozen=True):
    """The users that may connect to a Unix socket."""

    mode: int = _PRIVATE
    """Permissions of the socket's file."""
    group: int | None = None
    """Number of the file's group; None leaves it as the system makes it."""


@contextlib.contextmanager
def socket_access(listen: str, access: SocketAccess) -> Iterator[None]:
    """Gives the socket that is bound in the context its permissions; without effect for other addresses.

    The socket is never more open than that: it is made for the server's own user alone. This sets the umask of the
    process for a moment, so a file that another thread makes meanwhile is private as well.

    Args:
        listen: The address: unix:path, host:port.
        access: The users that may connect.

    Raises:
        OSError: the server may not give the socket this group, or the socket is not in its place.
    """
    if not listen.startswith("unix:"):
        yield
        return
    umask = os.umask(0o777 ^ _PRIVATE)
    try:
        yield
    finally:
        os.umask(umask)
    if access != SocketAccess():
        _open_to(socket_path(listen), access)


def is_taken(listen: str) -> bool:
    """Returns whether a program listens on a Unix socket; False for other addresses.

    gRPC binds the path of a socket that exists already, and the program that listened on it is no longer reached.
    A socket that a dead program left is free. Two servers that start in the same moment can both find it free.
    """
    if not listen.startswith("unix:"):
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(socket_path(listen)))
        except (BlockingIOError, PermissionError):  # its queue is full, or it belongs to another user
            return True
        except OSError:
            return False
    return True


def socket_path(listen: str) -> Path:
    """Returns the file of an address unix:path or unix:///path, as gRPC reads it: it may have %-escapes."""
    path = unquote(listen.removeprefix("unix:"))
    return Path(path.removeprefix("//") if path.startswith("///") else path)


def _open_to(path: Path, access: SocketAccess) -> None:
    if os.chmod in os.supports_follow_symlinks:
        _check(path.lstat(), path)
        _give(path, path, access.group)
        os.chmod(path, access.mode, follow_symlinks=False)  # noqa: PTH101 - a Path cannot leave a link alone
        return
    # Linux changes the mode of a link's target only, so the socket is held by a descriptor
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check(os.fstat(descriptor), path)
        held = _DESCRIPTORS / str(descriptor)
        _give(held, path, access.group)
        held.chmod(access.mode)
    finally:
        os.close(descriptor)


def _give(file: Path, path: Path, group: int | None) -> None:
    if group is None:
        return
    try:
        os.chown(file, -1, group, follow_symlinks=file != path)
    except OSError as error:
        raise OSError(f"cannot give the socket {path} the group {group}: {error.strerror}") from error


def _check(status: os.stat_result, path: Path) -> None:
    """Raises OSError unless it is a socket of the server's own user: someone may have replaced the file."""
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        raise OSError(f"{path} is not the socket that the server made")
