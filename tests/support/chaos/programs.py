"""The programs that follow a session through a bad network, one for each client library, and how they are started.

A program is called with two arguments:

    chaos ADDRESS SESSION_ID

ADDRESS is HOST:PORT for gRPC without TLS; for a program with `web`, http://HOST:PORT of the web listener. The server
asks for no token. The session exists, and may have messages already. The program does no more than a user of its
library does: it opens one watch of the session, begins it so that it holds all messages (the list first, or the first
event), and lets the library resume it. It holds the end of the traffic once all of these are true of its fold:

- the last message that does not wait is of type ASSISTANT with the status COMPLETE, and its text parts, joined, are
  `CHAOS END`;
- no message waits;
- the status of the session is IDLE.

Then it prints one line to standard output, a JSON array of all messages that it holds, each
`opencode.message.SessionMessage` in ProtoJSON, and ends with the exit code 0. Other lines, such as what it counted, go
to standard error. A failure that its library does not recover from ends it with another exit code. While the traffic
runs, connections are refused, cut, reset, delayed, throttled and left half open, and the server is killed and started
again: none of that is a failure. A program that has not ended 30 seconds after the last message fails.

Each owner of a client changes its own row here.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]

END = "CHAOS END"
"""Text of the last message and of its answer."""


@dataclass(frozen=True)
class Program:
    """A client's program, with the commands that build and start it."""

    folder: str
    """Where its commands run, from the root of the project."""
    source: str
    """A file in that folder; while it is missing, there is no such program."""
    command: tuple[str, ...]
    """Command that starts it; address and session are added."""
    build: tuple[tuple[str, ...], ...] = ()
    """Commands that build it, in order. `{work}` is an empty folder, here and in `command`."""
    tools: tuple[str, ...] = ()
    """Programs that must be installed."""
    variable: str = ""
    """The environment variable that must be "1", where the run is long or downloads packages; "" runs always."""
    web: bool = False
    """True: it is given the URL of the web listener."""

    def exists(self) -> bool:
        """Returns whether the program is there."""
        return (ROOT / self.folder / self.source).is_file()


_TYPESCRIPT_BUILD = (("npm", "ci", "--no-audit", "--no-fund"), ("npm", "run", "build"))

PROGRAMS = {
    "python": Program("clients/python", "tests/chaos.py", (sys.executable, "tests/chaos.py")),
    "go": Program(
        "clients/go",
        "internal/chaos/main.go",
        ("{work}/chaos",),
        (("go", "build", "-o", "{work}/chaos", "./internal/chaos"),),
        ("go",),
        "TURNWIRE_TEST_GO",
    ),
    "typescript": Program(
        "clients/typescript",
        "test/chaos.ts",
        ("node", "dist/test/chaos.js"),
        _TYPESCRIPT_BUILD,
        ("node", "npm"),
        "TURNWIRE_TEST_TYPESCRIPT",
    ),
    "typescript-web": Program(
        "clients/typescript",
        "test/chaos.ts",
        ("node", "dist/test/chaos.js"),
        _TYPESCRIPT_BUILD,
        ("node", "npm"),
        "TURNWIRE_TEST_TYPESCRIPT",
        web=True,
    ),
    "swift": Program(
        "clients/swift",
        "Sources/chaos/main.swift",
        (".build/debug/chaos",),
        (("swift", "build"),),
        ("swift",),
        "TURNWIRE_TEST_SWIFT",
    ),
}
"""By name."""
