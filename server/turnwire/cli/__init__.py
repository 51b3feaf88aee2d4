"""The command line, `turnwire`.

`commands` declares the commands and their options. The work of each is in a module of its own, imported when it runs,
so `turnwire --help` does not wait for gRPC and SQLite. Commands that talk to a server are clients like any other. Only
this package and `turnwire.app` read the process's environment.
"""

import os
import sys


def main() -> None:
    """Runs the command that the arguments name and exits with its code."""
    _open_standard_streams()
    from turnwire.cli.commands import app  # noqa: PLC0415 - keeps `import turnwire.cli` free of the command line's parser

    app(prog_name="turnwire")


def _open_standard_streams() -> None:
    """Opens those of the first three descriptors that are closed, on nothing.

    Otherwise the next file or socket has such a number, and what a library writes to standard error goes there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
