"""Whose work a task is."""

import socket
from contextvars import Context, ContextVar, copy_context
from functools import lru_cache
from urllib.parse import unquote

_MAPPED = bytes(10) + b"\xff\xff"
"""The beginning of an address of IPv6 that stands for one of IPv4."""

NOBODY = ""

OWNER: ContextVar[str] = ContextVar("owner", default=NOBODY)
"""Of the current task: a connection, or what works for nobody's call. Empty for what the server does for all.

Tasks and callbacks inherit it, so that a turn is work of the connection that has asked for it.
"""


@lru_cache(8192)
def group_of(owner: str) -> str:
    """Returns what belongs together where owners share something: of connections, their network; else the owner.

    The listeners name peers in two ways: gRPC as "ipv4:192.0.2.1:5000" and "ipv6:%5B2001:db8::1%5D:5000", the web
    listener as "192.0.2.1:5000" and "2001:db8::1:5000". A client of a Unix socket may give its end any name ("unix:",
    "unix:/its/path", "unix-abstract:its%20name"), so all of them belong together.
    """
    if owner.startswith("unix"):
        return "unix"
    name = unquote(owner) if owner.startswith("ipv6:") else owner
    address = name.removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")[0]
    return network_of(address.strip("[]")) if address else owner


def network_of(address: str) -> str:
    """Returns the network that one client may have all addresses of.

    Of IPv6 it is a /64, which has 2**64 of them: one for each connection would be a share for each. An IPv4 address is
    one, also where IPv6 shows it as ::ffff:192.0.2.1. What is neither is returned as it is.
    """
    try:
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])  # without the name of an interface
    except (OSError, ValueError):
        return address
    if packed.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, packed[len(_MAPPED) :])
    return socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8)) + "/64"


def own(owner: str) -> None:
    """Makes what the current task does from its next step on, and what it starts, work of an owner."""
    OWNER.set(owner)


def own_if_nobody(owner: str) -> None:
    """As `own`, unless the task is the work of somebody already."""
    if not OWNER.get():
        OWNER.set(owner)


def for_all() -> Context:
    """Returns a copy of the current context for what the current task begins and others wait for too.

    As work of its owner it would wait for all that this one has to do, and the others with it.
    """
    context = copy_context()
    context.run(OWNER.set, NOBODY)
    return context
