"""Closes a connection of this process by the address of its peer.

gRPC for Python shows who calls, and has no way to close a connection. The descriptors of this process do: the socket
whose peer has the address is shut down for both directions, which gRPC takes as a peer that has gone. The descriptor
itself stays gRPC's: a second one of the same socket is used, so that it cannot become another file meanwhile.
"""

import contextlib
import ipaddress
import os
import socket
import stat
from pathlib import Path
from urllib.parse import unquote

_DESCRIPTORS = Path("/proc/self/fd")


def shut_down(peer: str) -> bool:
    """Closes the connection of a peer. Looks at all files of the process, so call it beside the event loop.

    Args:
        peer: As gRPC names it: "ipv4:192.0.2.1:5000" or "ipv6:[2001:db8::1]:5000"; or as the web listener does, which
            has neither the kind nor brackets.

    Returns:
        Whether there was such a connection.
    """
    host, _, port = unquote(peer).removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")
    if not _DESCRIPTORS.is_dir():
        return False
    try:
        wanted = (_address(host.strip("[]")), int(port))
    except ValueError:
        return False
    return any(_shut_down(int(one.name), wanted) for one in _DESCRIPTORS.iterdir())


def _shut_down(descriptor: int, wanted: tuple[str, int]) -> bool:
    with contextlib.suppress(OSError, ValueError):
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as one:
            if one.family not in (socket.AF_INET, socket.AF_INET6) or one.type != socket.SOCK_STREAM:
                return False
            host, port = one.getpeername()[:2]
            if (_address(host), port) == wanted:
                one.shutdown(socket.SHUT_RDWR)
                return True
    return False


def _address(host: str) -> str:
    """Returns an address in one form: a socket of IPv6 shows peers of IPv4 as ::ffff:192.0.2.1. Raises ValueError."""
    found = ipaddress.ip_address(host.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
