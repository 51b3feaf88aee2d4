"""What an attack is."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

TOKEN = "token"
"""Name of the file in which `Attack.around` leaves the neighbour's credential, if the server wants one."""


class Target(NamedTuple):
    """The attacked server."""

    address: str
    """host:port of gRPC."""
    web: str
    """host:port of the web listener."""
    pid: int
    """Of its process."""
    folder: Path
    """Has the server's database and log, and what `Attack.around` left there."""

    def host_and_port(self, *, web: bool = False) -> tuple[str, int]:
        """Returns the address for a socket."""
        host, _, port = (self.web if web else self.address).rpartition(":")
        return host, int(port)


class Attack(NamedTuple):
    """One attack; see the package."""

    name: str
    what: str
    """In a few words."""
    run: Callable[[Target], Awaitable[None]]
    """Attacks until it is cancelled."""
    toml: str = ""
    """Configuration of the server."""
    around: Callable[[Path], AbstractAsyncContextManager[str]] | None = None
    """What is there before the server starts, and until it has ended; yields more configuration."""
    seconds: float = 10.0
    """How long it lasts."""
