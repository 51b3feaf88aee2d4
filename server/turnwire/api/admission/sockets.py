"""Closes connections of this process by the addresses of their peers.

gRPC for Python shows who calls, and has no way to close a connection. The descriptors of this process have: the socket
whose peer has the address is shut down for both directions, which gRPC takes as a peer that has gone. The descriptor
itself stays gRPC's: a second one of the same socket is used, so that it cannot become another file meanwhile.
"""

import contextlib
import ipaddress
import os
import socket
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import unquote

_DESCRIPTORS = Path("/proc/self/fd")

_Peer = tuple[str, int]


def close_connections(peers: Collection[str]) -> list[str]:
    """Closes the connections of peers. Scans all files of the process, so call it on a worker thread.

    Args:
        peers: As gRPC names them: "ipv4:192.0.2.1:5000" or "ipv6:[2001:db8::1]:5000"; or as the web listener does,
            which has neither the kind nor brackets.

    Returns:
        Those that had a connection.
    """
    wanted = {_peer(peer): peer for peer in peers}
    wanted.pop(None, None)
    closed = list[str]()
    for descriptor in _descriptors() if wanted else ():
        with _connection(descriptor) as (one, address):
            if one is not None and address in wanted:
                one.shutdown(socket.SHUT_RDWR)
                closed.append(wanted.pop(address))
    return closed


def _descriptors() -> list[int]:
    return [int(one.name) for one in _DESCRIPTORS.iterdir()] if _DESCRIPTORS.is_dir() else []


@contextlib.contextmanager
def _connection(descriptor: int) -> Iterator[tuple[socket.socket | None, _Peer | None]]:
    """Yields the connection behind a descriptor and its peer, and None twice if it is none or has ended."""
    with contextlib.ExitStack() as closing:
        found: tuple[socket.socket | None, _Peer | None] = None, None
        with contextlib.suppress(OSError, ValueError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                one = closing.enter_context(socket.socket(fileno=os.dup(descriptor)))
                if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
                    host, port = one.getpeername()[:2]
                    found = one, (_address(host), port)
        with contextlib.suppress(OSError):
            yield found


def _peer(name: str) -> _Peer | None:
    """Returns the address in the name of a peer; None if there is none."""
    host, _, port = unquote(name).removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")
    try:
        return _address(host.strip("[]")), int(port)
    except ValueError:
        return None


def _address(host: str) -> str:
    """Returns an address in one form: a socket of IPv6 shows peers of IPv4 as ::ffff:192.0.2.1. Raises ValueError."""
    found = ipaddress.ip_address(host.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
