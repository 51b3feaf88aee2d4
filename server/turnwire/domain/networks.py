"""Networks of clients: the unit by which everything that clients share is divided."""

import socket
from functools import lru_cache
from urllib.parse import unquote

_MAPPED = bytes(10) + b"\xff\xff"
"""Prefix of an IPv6 address that stands for an IPv4 address."""


@lru_cache(8192)
def network_of_peer(peer: str) -> str:
    """Returns the network of a connection, by the name that a listener gives its peer.

    gRPC names peers "ipv4:192.0.2.1:5000" and "ipv6:%5B2001:db8::1%5D:5000", the web listener "192.0.2.1:5000" and
    "2001:db8::1:5000". A client of a Unix socket may give its end any name ("unix:", "unix:/its/path",
    "unix-abstract:its%20name"), so all Unix sockets are one network. A name without an address is returned unchanged.
    """
    if peer.startswith("unix"):
        return "unix"
    name = unquote(peer) if peer.startswith("ipv6:") else peer
    address = name.removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")[0]
    return network_of(address.strip("[]")) if address else peer


def network_of(address: str) -> str:
    """Returns the network all of whose addresses one client may have.

    That is a /64 of IPv6, and a single IPv4 address, also in the form ::ffff:192.0.2.1. Anything else is returned
    unchanged.
    """
    try:
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])  # without the interface
    except (OSError, ValueError):
        return address
    if packed.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, packed[len(_MAPPED) :])
    return socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8)) + "/64"
