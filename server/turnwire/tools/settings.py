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
    """An [MCP server](../guides/tools.md#mcp-servers): a program to start (`command`) or an address (`url`).

    NAME has at most 32 letters, digits, "_" and "-". Needs the extra `mcp`.
    """

    command: str = ""
    """Program that speaks MCP on its standard input and output."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: tuple[str, ...] = ()
    """NAMES of further variables that it gets, besides HOME, PATH and the like; never values."""
    cwd: Path | None = None
    """Its working directory. Left out: the server's own."""
    url: str = ""
    """Address for streamable HTTP, without user name or password."""
    headers_env: Mapping[str, str] = {}
    """NAME of the variable with the value, by header name."""
    sends_traceparent: bool = False
    """True sends `traceparent` in `_meta` with each call. Needs `tracing.enabled`."""
    timeout_seconds: Seconds = 60.0
    """Time of one call, without waits for a person."""
    questions: bool = True
    """Whether it may ask people [questions](../guides/tools.md#questions)."""
    one_call_at_a_time: bool = False
    """True makes calls wait for each other: for programs of version 2025-11-25 or before that ask."""
    protocol: Literal["auto", "handshake"] = "auto"
    """The newest version that the server speaks, or the handshake of 2025-11-25 and before."""
    start_timeout_seconds: Seconds = 30.0
    """Time from connecting to the list of tools; then the server tries again."""


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
