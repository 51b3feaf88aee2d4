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
    """NAMES of the variables that the program gets besides common ones (HOME, PATH and others); never values."""
    cwd: Path | None = None
    """Working directory of the program. Left out: the server's own."""
    url: str = ""
    """Address of a server that speaks streamable HTTP, without user name or password."""
    headers_env: Mapping[str, str] = {}
    """Headers of each request: the NAME of the variable that holds the value, by header name."""
    sends_traceparent: bool = False
    """True sends the place in the trace with each call, as `traceparent` in `_meta`, so that the server's own traces
    join ours. Needs `tracing.enabled`."""
    timeout_seconds: Seconds = 60.0
    """Time limit of one call, without the time in which it waits for a person's answer."""
    questions: bool = True
    """False does not offer the server to ask people while a call runs."""
    one_call_at_a_time: bool = False
    """True lets calls of all sessions wait for each other. Needed where a program that speaks version 2025-11-25 or
    before asks questions and gets several calls at once: nothing says which of them asks, so such questions are
    refused."""
    protocol: Literal["auto", "handshake"] = "auto"
    """"auto" takes the newest version that the server speaks; "handshake" begins as servers of version 2025-11-25 and
    before expect it, without trying a newer one first."""
    start_timeout_seconds: Seconds = 30.0
    """Time limit from the start of a connection to its list of tools; then the server tries again. Programs that
    install themselves take long. Turns wait that long too, the first time."""


class Backoff(Struct, frozen=True):
    """How long to wait before connecting again: doubled after each failure, half of it random."""

    first: timedelta = timedelta(milliseconds=500)
    longest: timedelta = timedelta(minutes=1)

    def delay(self, failures: int, chance: float) -> float:
        """Returns the seconds to wait after this many failures in a row (from 1); `chance` is random, from 0 to 1."""
        whole: float = min(self.first.total_seconds() * 2 ** min(failures - 1, 30), self.longest.total_seconds())
        return whole * (0.5 + chance / 2)
