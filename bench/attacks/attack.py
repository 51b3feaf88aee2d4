"""Attacks: a row of the table, what it needs, and what it observes."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

_LIMIT = re.compile(rb"\x0a\x05limit\x12(.)", re.DOTALL)
"""In ErrorInfo, the entry of the metadata that names a limit; its last byte is the length of the name."""

TOO_MANY = "TOO_MANY"
"""The reason of a violation that says that a request has too many values."""


class Target(NamedTuple):
    """The attacked server."""

    address: str
    """host:port of gRPC."""
    web: str
    """host:port of the web listener."""
    folder: Path
    """Has what was prepared."""

    def host_and_port(self, *, web: bool = False) -> tuple[str, int]:
        """Returns the address for a socket."""
        host, _, port = (self.web if web else self.address).rpartition(":")
        return host, int(port)


class Seen:
    """Reactions of the server to an attack."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.limits = set[str]()
        """Names of limits in refusals."""

    def note(self, details: bytes) -> None:
        """Takes an encoded status, or bytes that contain one."""
        for found in _LIMIT.finditer(details):
            self.limits.add(details[found.end() : found.end() + found[1][0]].decode())
        if TOO_MANY.encode() in details:
            self.limits.add(TOO_MANY)


class Prepared(NamedTuple):
    """Configuration of a server, and the credential of its neighbour."""

    toml: str = ""
    """Its configuration."""
    token: str = ""
    """The neighbour's credential; empty when the server wants none."""


def nothing(_: Path) -> Prepared:
    """Prepares nothing."""
    return Prepared()


class Attack(NamedTuple):
    """A row of the table."""

    name: str
    how: str
    """The way to reach the limit."""
    limits: tuple[str, ...]
    """Refusals name one of these; empty where nothing is refused within the time of the attack."""
    refused: str
    """The calls that are refused, or the bound that needs no refusal."""
    run: Callable[[Target, Seen], Awaitable[None]]
    prepare: Callable[[Path], Prepared] = nothing
    """Prepares the server, in an empty folder."""
    seconds: float = 2.0
    """Least duration; it lasts longer until one of its limits refuses it."""
