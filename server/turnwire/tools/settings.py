"""Settings of MCP servers.

The configuration reads its tables as `McpSettings`: the fields, defaults, ranges and docstrings of that type are the
reference of the keys (docs/reference/configuration.md).
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Literal

from msgspec import Struct

from turnwire.domain.bounds import Seconds


class McpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MCP server: either a program to start (`command`) or an address (`url`).

    NAME has at most 32 letters, digits, "_" and "-"; the server's tools are called `NAME.TOOL`. Needs the extra `mcp`
    (docs/operate/install.md).
    """

    command: str = ""
    """Program to start; it speaks MCP on its standard input and output."""
    args: tuple[str, ...] = ()
    """Arguments of the program."""
    env: tuple[str, ...] = ()
    """NAMES of further variables that the program gets, in addition to HOME, PATH and the like; never values."""
    cwd: Path | None = None
    """Working directory of the program. Left out: the server's own."""
    url: str = ""
    """Address of a server that speaks streamable HTTP, without user name or password."""
    headers_env: Mapping[str, str] = {}
    """NAME of the variable with the value, by header name."""
    sends_traceparent: bool = False
    """True sends `traceparent` in `_meta` with each call, so that the server's traces join ours. Needs
    `tracing.enabled`."""
    timeout_seconds: Seconds = 60.0
    """Time limit of one call, not counting waits for a person."""
    questions: bool = True
    """False: the server may not ask people questions during calls."""
    one_call_at_a_time: bool = False
    """True makes calls of all sessions wait for each other. Use it for programs of version 2025-11-25 or before that
    ask questions, because questions are rejected while several calls run."""
    protocol: Literal["auto", "handshake"] = "auto"
    """"auto" uses the newest version that the server speaks; "handshake" begins in the way that servers of 2025-11-25
    and before expect."""
    start_timeout_seconds: Seconds = 30.0
    """Time limit from connecting to the list of tools; then the server tries again. The first turns also wait for at
    most this time."""


class Backoff(Struct, frozen=True):
    """The delay before the next attempt to connect: doubled after each failure, half of it random."""

    first: timedelta = timedelta(milliseconds=500)
    longest: timedelta = timedelta(minutes=1)

    def delay(self, failures: int, chance: float) -> float:
        """Returns the delay in seconds after a number of failures in a row (from 1); `chance` is random,
        from 0 to 1.
        """
        whole: float = min(self.first.total_seconds() * 2 ** min(failures - 1, 30), self.longest.total_seconds())
        return whole * (0.5 + chance / 2)
