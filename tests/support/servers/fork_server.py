"""A process that forks `turnwire` processes: each begins with everything imported, which is most of a start.

    python -m tests.support.servers.fork_server FD

A forked process is a real one: it runs the command line until the interpreter ends, and has its own exit code, stderr
and signals. Only what modules read from the environment at their import is that of the parent. Forking is safe because
the parent has one thread at that moment, which is checked: importing gRPC starts none; the channels and servers that do
are made after the fork.

FD is a socket of packets. A packet is a JSON object (`arguments`, `cwd`, `environ`, and `modules` to import first) with
four file descriptors: stdin, stdout and stderr of the process, and its line. The line carries signal numbers to the
fork server, a byte each, and the exit code back. A line that closes kills its process: none outlives a test run.
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NamedTuple

import turnwire.cli

MAX_PACKET_BYTES = 1 << 20


class _Child(NamedTuple):
    pid: int
    pidfd: int
    line: socket.socket


class ForkServer:
    """The loop. It uses neither threads nor asyncio: each forked process begins inside it, and leaves it at once."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def run(self) -> list[str] | None:
        """Forks until the control socket closes.

        Returns:
            In a forked process the arguments of its command line; in this one None, at the end.
        """
        while True:
            for key, _ in self._selector.select():
                child = key.data
                if child is None:
                    packet, descriptors, _, _ = socket.recv_fds(self._control, MAX_PACKET_BYTES, 4)
                    if not packet:
                        return None
                    if (arguments := self._fork(json.loads(packet), descriptors)) is not None:
                        return arguments
                elif key.fd == child.pidfd:
                    self._report(child)
                elif child.line.fileno() >= 0:  # else the process ended in this very round
                    self._signal(child)

    def _fork(self, packet: dict[str, Any], descriptors: list[int]) -> list[str] | None:
        for name in packet["modules"]:
            importlib.import_module(name)
        *standard, line = descriptors
        assert len(list(Path("/proc/self/task").iterdir())) == 1, "the forked process would lack threads"
        gc.freeze()
        pid = os.fork()
        if pid:
            for descriptor in standard:
                os.close(descriptor)
            child = _Child(pid, os.pidfd_open(pid), socket.socket(fileno=line))
            self._selector.register(child.pidfd, selectors.EVENT_READ, child)
            self._selector.register(child.line, selectors.EVENT_READ, child)
            return None
        os.close(line)
        self._leave()
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(packet["cwd"])
        os.environ.clear()
        os.environ.update(packet["environ"])
        return packet["arguments"]

    def _leave(self) -> None:
        """Closes, in a forked process, what belongs to its parent."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            else:
                os.close(key.fd)
        self._selector.close()

    def _report(self, child: _Child) -> None:
        _, status = os.waitpid(child.pid, 0)
        for each in (child.pidfd, child.line):
            with contextlib.suppress(KeyError):
                self._selector.unregister(each)
        with contextlib.suppress(OSError):
            child.line.send(str(os.waitstatus_to_exitcode(status)).encode())
        child.line.close()
        os.close(child.pidfd)

    def _signal(self, child: _Child) -> None:
        numbers = child.line.recv(16)
        if not numbers:
            self._selector.unregister(child.line)
        for number in numbers or (signal.SIGKILL,):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, number)


def main() -> None:
    """Runs the fork server, and in each process that it forks the command line."""
    for module in ("turnwire.cli.commands", "turnwire.cli.serve"):
        importlib.import_module(module)
    arguments = ForkServer(socket.socket(fileno=int(sys.argv[1]))).run()
    if arguments is not None:
        sys.argv = ["turnwire", *arguments]
        turnwire.cli.main()


if __name__ == "__main__":
    main()
