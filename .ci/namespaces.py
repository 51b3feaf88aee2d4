"""Namespaces of Linux for the scripts beside this file: folders and a network that this machine does not see."""

import os
import subprocess
import sys
from pathlib import Path

_LOOPBACK_UP = (
    "import fcntl, socket, struct; SIOCSIFFLAGS, UP = 0x8914, 0x41; "
    "fcntl.ioctl(socket.socket(), SIOCSIFFLAGS, struct.pack('16sh14x', b'lo', UP))"
)


def enter_mount_namespace(**environ: str) -> None:
    """Starts the program again where mounts are its own, and /run is empty memory; returns there. Needs root."""
    if os.geteuid() != 0:
        raise SystemExit(f"{sys.argv[0]} needs root, to mount folders and to change the user")
    if "TURNWIRE_NAMESPACE" not in os.environ:
        os.environ.update(environ, TURNWIRE_NAMESPACE="1")
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"], check=True)


def own_network(handle: Path) -> list[str]:
    """Makes a network with nothing but a loopback address; returns the words that run a command in it."""
    handle.touch()
    up = f'"{sys.executable}" -c "{_LOOPBACK_UP}" && mount --bind /proc/self/ns/net {handle}'
    subprocess.run(["unshare", "--net", "sh", "-c", up], check=True)
    return ["/usr/bin/nsenter", f"--net={handle}"]


def bind(source: Path, target: Path, *, writable: bool = False) -> None:
    """Mounts a folder or a device at another place."""
    (target if source.is_dir() else target.parent).mkdir(parents=True, exist_ok=True)
    if not source.is_dir():
        target.touch()
    subprocess.run(["mount", "--bind", str(source), str(target)], check=True)
    if not writable and source.is_dir():
        subprocess.run(["mount", "-o", "remount,bind,ro", str(target)], check=True)
