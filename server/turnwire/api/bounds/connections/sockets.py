"""The sockets of this process, by the address of their peer: closes one, and tells how much has come by them.

gRPC for Python shows who calls, and has no way to close a connection or to ask how much it has sent. The descriptors of
this process do: the socket whose peer has the address is shut down for both directions, which gRPC takes as a peer that
has gone. The descriptor itself stays gRPC's: a second one of the same socket is used, so that it cannot become another
file meanwhile.
"""

import contextlib
import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import unquote

_DESCRIPTORS = Path("/proc/self/fd")

_RECEIVED_AT = 128
"""Place of `tcpi_bytes_received` in what Linux tells of a connection (`struct tcp_info`, since version 4.1)."""

_Peer = tuple[str, int]


def shut_down(peer: str) -> bool:
    """Closes the connection of a peer. Looks at all files of the process, so call it beside the event loop.

    Args:
        peer: As gRPC names it: "ipv4:192.0.2.1:5000" or "ipv6:[2001:db8::1]:5000"; or as the web listener does, which
            has neither the kind nor brackets.

    Returns:
        Whether there was such a connection.
    """
    wanted = _peer(peer)
    if wanted is not None:
        for descriptor in _descriptors():
            with _connection(descriptor) as (one, address):
                if one is not None and address == wanted:
                    one.shutdown(socket.SHUT_RDWR)
                    return True
    return False


class Received:
    """Tells how many bytes connections have received since they began. Belongs to one thread."""

    def __init__(self) -> None:
        """No connection is known yet."""
        self._known: dict[str, int] = {}
        """Descriptors of those that were asked for last, so that not all files are looked at each time."""

    def __call__(self, peers: Collection[str]) -> dict[str, int]:
        """Returns the bytes by peer, without those that are not connected or of which the system does not tell it.

        May look at all files of the process, so call it beside the event loop.

        Args:
            peers: As `shut_down` takes them.
        """
        wanted = {address: peer for peer in peers if (address := _peer(peer)) is not None}
        found: dict[str, int] = {}
        known: dict[str, int] = {}

        def look(descriptor: int) -> None:
            with _connection(descriptor) as (one, address):
                peer = wanted.get(address) if address is not None else None
                if one is not None and peer is not None and (size := _received(one)) is not None:
                    found[peer], known[peer] = size, descriptor

        for peer in peers:
            if peer in self._known:
                look(self._known[peer])
        if len(found) < len(wanted):
            for descriptor in _descriptors():
                look(descriptor)
        self._known = known
        return found


def _received(one: socket.socket) -> int | None:
    with contextlib.suppress(OSError, AttributeError, struct.error):
        (size,) = struct.unpack_from("=Q", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), _RECEIVED_AT)
        return int(size)
    return None


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
