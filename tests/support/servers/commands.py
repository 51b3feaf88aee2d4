"""Starts the command line in a process of its own: forked where that is safe, else as a new interpreter."""

import asyncio
import atexit
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).parents[3]

FORKS = sys.platform == "linux"
"""Whether processes are forked. Elsewhere a process has no descriptor, and system libraries may start threads."""

_SDKS = ("anthropic", "mcp", "openai")
"""Imported before the fork when the configuration names them: that is most of a start."""


class Command(Protocol):
    """A running command."""

    stderr: asyncio.StreamReader | None

    def send_signal(self, signal: int, /) -> None:
        """Sends a signal. After the end it has no effect, or raises ProcessLookupError."""

    async def wait(self) -> int:
        """Waits for the end and returns the exit code, negative for a signal. Idempotent."""


class _Forked:
    """A command that the fork server started. Its line carries signals there and the exit code back.

    The line is a bare socket: a stream forgets the exit code when a signal comes too late for the process.
    """

    def __init__(self, stderr: asyncio.StreamReader, line: socket.socket) -> None:
        self.stderr: asyncio.StreamReader | None = stderr
        line.setblocking(False)
        self._line = line
        self._code = asyncio.ensure_future(self._end())

    def send_signal(self, number: int, /) -> None:
        if not self._code.done():
            with contextlib.suppress(OSError):
                self._line.send(bytes((number,)))

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    async def _end(self) -> int:
        code = int(await asyncio.get_running_loop().sock_recv(self._line, 16))
        self._line.close()
        return code


async def start_command(
    *arguments: str,
    cwd: Path,
    environ: Mapping[str, str],
    toml: str = "",
    forked: bool = True,
    within: Sequence[str] = (),
) -> Command:
    """Starts `turnwire ARGUMENTS…` with its stderr in a pipe.

    Args:
        *arguments: The command and its options.
        cwd: Its working directory.
        environ: Its whole environment.
        toml: The configuration it reads, for what the fork server should import.
        forked: False for a new interpreter, whose modules see `environ` when they are imported.
        within: Words before the command of a new interpreter, to run it on another host.
    """
    if not (forked and FORKS):
        turnwire = (*within, sys.executable, "-m", "turnwire")
        return await asyncio.create_subprocess_exec(
            *turnwire, *arguments, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    modules = [module for module in _SDKS if module in toml]
    packet = {"arguments": arguments, "cwd": str(cwd), "environ": dict(environ), "modules": modules}
    line, remote_line = socket.socketpair()
    stderr, remote_stderr = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
    with remote_line, remote_stderr, Path(os.devnull).open() as nothing:
        descriptors = (nothing.fileno(), 1, remote_stderr.fileno(), remote_line.fileno())
        socket.send_fds(_fork_server(), [json.dumps(packet).encode()], descriptors)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stderr)
    return _Forked(reader, line)


@functools.cache
def _fork_server() -> socket.socket:
    """Returns the control socket of this process's fork server, which ends with this process."""
    control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with remote:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.servers.fork_server", str(remote.fileno())],
            cwd=ROOT,
            # What `turnwire serve` sets before it imports gRPC.
            env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0", "GRPC_VERBOSITY": "NONE"},
            pass_fds=(remote.fileno(),),
            start_new_session=True,  # an interrupted test run is told to this process alone
        )

    def stop() -> None:
        control.close()
        process.wait()

    atexit.register(stop)
    return control
